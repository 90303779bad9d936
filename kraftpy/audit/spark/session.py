"""A SparkSession for audits: local by default, any master by flag."""

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

# Where the JVM's answers go over loopback only, unless the user says otherwise.
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
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
    submitted = "SPARK_ENV_LOADED" in os.environ and master is None
    if not submitted:
        chosen = master or "local[*]"
        builder = builder.master(chosen)
        for name, value in (_LOCAL if chosen.startswith("local") else {}).items():
            builder = builder.config(name, value)
    for name, value in {**_SETTINGS, **(conf or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
