"""The set-up carries Spark: a session starts and Python workers with Arrow do real work.

It runs in a process of its own: Spark leaves a JVM and threads behind, which belong to no other
test, and its own warnings are not ours to fail on.
"""

import os
import subprocess
import sys

import pytest

from kraftpy.cli.java import require_java
from kraftpy.errors import ConfigError

PROGRAM = """
from collections.abc import Iterator
import pyarrow as pa
from pyspark.sql import SparkSession

def double(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": [2 * n for n in batch.column(0).to_pylist()]})

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
total = spark.range(1000).mapInArrow(double, "id long").groupBy().sum("id").collect()[0][0]
print("total", total)
spark.stop()
"""


def test_a_local_session_runs_python_workers() -> None:
    try:
        require_java()
    except ConfigError as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["total", str(sum(2 * n for n in range(1000)))]
