"""How users' own Spark programs get at metadata logs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make `spark.read.format("kraft_log")` work in this session."""
    from kraftpy.audit.spark.kraft_log import KraftLog

    spark.dataSource.register(KraftLog)
