"""A SparkSession for audits: local by default, any master by flag."""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kraftpy.errors import ConfigError

# Where the JVM's answers go over loopback only, unless the user says otherwise.
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_MASTERS: Final = ("local", "spark://", "yarn", "k8s://")
# What Spark raises. The second is of a package that comes with PySpark, and goes with it.
SPARK_ERRORS: Final[tuple[type[Exception], ...]] = (
    PySparkException,
    importlib.import_module("py4j.protocol").Py4JError,
)
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # spark-submit tells what it runs how to reach the JVM.
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.python.worker.reuse": "true",
    "spark.driver.memory": "3g",
}


def _quiet() -> dict[str, str]:
    """Modules in a zip have no file to configure the JVM with."""
    path = os.path.join(os.path.dirname(__file__), "log4j2.properties")
    if not os.path.exists(path):
        return {}
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={path}"}


def new_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Under spark-submit, what that sets wins over everything but `conf`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("kraftpy audit")
    settings = dict(_SETTINGS)
    if _SUBMITTED in os.environ:
        SparkContext._ensure_initialized()  # Only the JVM knows what was set.
        known = dict(SparkConf().getAll())
        settings = {name: value for name, value in settings.items() if name not in known}
    else:
        settings |= _quiet()
        master = master or "local[*]"
        if not master.startswith(_MASTERS):
            raise ConfigError(f"--master {master}: Spark knows {', '.join(_MASTERS)}")
        if master.startswith("local"):
            settings |= _LOCAL
    if master is not None:
        builder = builder.master(master)
    for name, value in {**settings, **(conf or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
