"""Audits on Spark: a data source for metadata logs, and the pipeline that judges them."""

from kraftpy.audit.spark.engine import audit

__all__ = ["audit"]
