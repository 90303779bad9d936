"""A SparkSession for audits: local by default, any master by flag."""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

# Where the JVM's answers go over loopback only, unless the user says otherwise.
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
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


def new_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Under spark-submit, what that sets wins over everything but `conf`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("kraftpy audit")
    settings = dict(_SETTINGS)
    if _SUBMITTED in os.environ:
        SparkContext._ensure_initialized()  # Only the JVM knows what was set.
        known = dict(SparkConf().getAll())
        settings = {name: value for name, value in settings.items() if name not in known}
    elif master is None or master.startswith("local"):
        settings |= _LOCAL
        master = master or "local[*]"
    if master is not None:
        builder = builder.master(master)
    for name, value in {**settings, **(conf or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
