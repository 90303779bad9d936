"""Audits on Spark: a data source for metadata logs, and the pipeline that judges them."""
