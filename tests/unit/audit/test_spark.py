"""The Spark engine gives the same rows as the local one: one session, logs of several kinds.

It runs in a process of its own: Spark leaves a JVM and threads behind, which belong to no other
test, and its own warnings are not ours to fail on. Logs are small, so that starting and compiling
is what costs: Java and Spark are told to compile little.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kraftpy
from kraftpy.audit.local import CHUNKED, SCREENED, SHARDED, WHOLE, Options, audit
from kraftpy.audit.source.stores import from_anywhere
from kraftpy.audit.state import STATE_FILE
from kraftpy.audit.state import audit as audit_with_state
from kraftpy.audit.violations import AuditResult
from kraftpy.cli import spark_audit
from kraftpy.cli.java import require_java
from kraftpy.errors import ConfigError
from kraftpy.metadata_log import EMPTY, replay_batch
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.snapshot_file import write_snapshot
from kraftpy.storage.file_layer import OsFiles
from kraftpy.types import BrokerId, Offset
from tests.unit.audit import cluster_logs, partition_logs, placement_logs
from tests.unit.audit.cases import BREAKING
from tests.unit.audit.log_files import SEGMENT, batch, batches_of, leader, write_segment
from tests.unit.audit.logs import Log, cluster, ids, new_partition, topic
from tests.unit.audit.test_stretches import busy_log

pytest.importorskip("pyspark", reason="the Spark engine needs the audit extra")

import pyspark
from pyspark.sql.types import StructType

from kraftpy.audit.spark.kraft_log import KraftReader, SplitPartition

LOADED = (partition_logs, placement_logs, cluster_logs)
# All of them are compared without Spark (test_engines.py).
CASES = {"a_fence_before_its_changes"}
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
INTERPRETED = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

# Is given jobs: the log, how its replay is cut, and the state to go on from. Then it counts the
# rows of all tables, and reads a log while a batch is being written, and when it is there.
PROGRAM = """
import json, sys
from kraftpy.audit.local import Options
from kraftpy.audit.spark.pipeline import audit
from kraftpy.audit.spark.session import new_session
from tests.unit.audit.test_spark import told

given = json.load(sys.stdin)
spark = new_session("local[2]", given["conf"])
results = []
for path, replay, state in given["jobs"]:
    options = Options(split_bytes=4096, shards=3, replay=replay)
    results.append(told(audit(spark, [path], options, state)))
tables = {}
def read(table, path):
    reader = spark.read.format("kraft_log").option("table", table).option("split_mb", "0.004")
    return reader.load(path).count()
for table in ("batches", "control", "records", "sharded", "snapshots"):
    tables[table] = read(table, given["tables"])
live = [read("records", given["live"])]
with open(given["live"] + "/00000000000000000000.log", "ab") as file:
    file.write(bytes.fromhex(given["rest"]))
live.append(read("records", given["live"]))
spark.stop()
print("RESULT", json.dumps({"results": results, "tables": tables, "live": live}))
"""


def three_nodes(directory: Path) -> None:
    """One is damaged, one differs in a batch, one lags; and a snapshot that is not the log's."""
    log = cluster()
    for number in range(200):
        changed = ids(1, 2) if number % 2 == 0 else ids(1, 2, 3)
        log.write(log.change(isr=changed))
    first = leader(0, 1)
    batches = [first, *batches_of(log, first_offset=1)]
    damaged = [*batches[:20], batches[20][:-1] + b"\xff", *batches[21:]]
    differs = [*batches[:30], batch([log.fence(4)], 30), *batches[31:]]
    write_segment(directory / "node-1" / "__cluster_metadata-0", damaged)
    write_segment(directory / "node-2" / "__cluster_metadata-0", differs)
    write_segment(directory / "node-3" / "__cluster_metadata-0", batches[:-5])
    image, offset = EMPTY, 1
    for _, records, _ in log.batches[:60]:
        image = replay_batch(image, records, offset, 1)
        offset += len(records)
    known = image.partition(new_partition().topic_id, 0)
    assert known is not None
    lie = r.PartitionChangeRecord(
        topic_id=new_partition().topic_id,
        partition_id=0,
        leader=BrokerId(2),
        leader_epoch=1,
        partition_epoch=known.partition_epoch + 1,
    )
    other = replay_batch(image, [lie], offset, 1)
    files, place = OsFiles(), str(directory / "node-1" / "__cluster_metadata-0")
    write_snapshot(files, place, image)
    place = str(directory / "node-2" / "__cluster_metadata-0")
    write_snapshot(files, place, replace(other, end_offset=Offset(offset)))


def lost_range(directory: Path) -> None:
    """A batch that nobody has whole, and what follows from it."""
    log = cluster()
    for number in range(40):
        changed = ids(1, 2) if number % 2 == 0 else ids(1, 2, 3)
        log.write(log.change(isr=changed))
    batches = [leader(0, 1), *batches_of(log, first_offset=1)]
    batches[25] = batches[25][:-2] + b"\xee\xee"
    write_segment(directory, batches)


def write_all(directory: Path) -> list[Path]:
    for case in BREAKING:
        if case.name in CASES:
            write_segment(directory / case.name, batches_of(case.write()))
    three_nodes(directory / "three-nodes")
    lost_range(directory / "lost-range")
    write_segment(
        directory / "torn", [*batches_of(Log()), batch([topic(), new_partition()], 0)[:40]]
    )
    return sorted(directory.iterdir())


def told(result: AuditResult) -> dict[str, object]:
    return {
        "rows": [str(each) for each in result.violations],
        "secondary": sum(result.secondary.values()),
        "looked_at": result.looked_at,
        "unchecked": sorted(map(list, result.unchecked)),
        "records": result.records,
        "exit_code": int(result.exit_code),
    }


Job = tuple[Path, str, Path | None]


def run_spark(tables: Path, live: Path, jobs: Sequence[Job]) -> Any:
    """What Spark tells of each job, and the sizes of tables."""
    try:
        require_java()
    except ConfigError as missing:
        pytest.skip(str(missing))
    given = {
        "conf": INTERPRETED,
        "jobs": [(str(log), replay, state and str(state)) for log, replay, state in jobs],
        "tables": str(tables),
        "live": str(live),
        "rest": write_live(live).hex(),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "JAVA_TOOL_OPTIONS": JAVA},
    )
    assert "RESULT" in done.stdout, done.stderr[-3000:]
    return json.loads(done.stdout.split("RESULT", 1)[1])


def write_live(place: Path) -> bytes:
    """A log that ends in half of a batch of one record; what is missing of it."""
    log = cluster()
    for number in range(5):
        log.write(log.change(isr=ids(1, 2) if number % 2 == 0 else ids(1, 2, 3)))
    batches = batches_of(log)
    half = len(batches[-1]) // 2
    write_segment(place, [*batches[:-1], batches[-1][:half]])
    return batches[-1][half:]


def as_json(result: AuditResult) -> Any:
    return json.loads(json.dumps(told(result)))


def test_spark_tells_what_the_local_engine_tells(tmp_path: Path) -> None:
    """However it cuts the replay, and if it goes on from either engine's state."""
    logs = write_all(tmp_path / "logs")
    batches = batches_of(busy_log(1))
    begun, whole = tmp_path / "begun", tmp_path / "whole"
    states = [tmp_path / f"state-{number}" for number in range(3)]
    write_begun(begun, batches, states[2])
    write_segment(whole, batches)
    jobs: list[Job] = [(log, SHARDED, None) for log in logs if log.name != "lost-range"]
    jobs += [(tmp_path / "logs" / name, CHUNKED, None) for name in ("three-nodes", "lost-range")]
    going_on: list[Job] = [
        (begun, SHARDED, states[0]),
        (whole, CHUNKED, states[0]),
        (begun, CHUNKED, states[1]),
        (whole, SHARDED, states[2]),
    ]
    found = run_spark(tmp_path / "logs" / "three-nodes", tmp_path / "live", [*jobs, *going_on])
    for number, (log, replay, _) in enumerate([*jobs, *going_on]):
        for mode in (WHOLE, SCREENED):
            expected = as_json(audit([str(log)], Options(mode=mode)))
            assert found["results"][number] == expected, (log, replay, mode)
    offsets = [json.loads((each / STATE_FILE).read_text())["offset"] for each in states]
    assert offsets == [len_of(whole), len_of(begun), len_of(whole)]
    gone_on = audit_with_state([str(whole)], Options(), str(states[1]))
    assert as_json(gone_on) == as_json(audit([str(whole)]))
    assert found["tables"]["sharded"] == 1
    assert all(count > 0 for count in found["tables"].values())
    assert found["live"][1] == found["live"][0] + 1 > 1


def elsewhere() -> dict[str, str]:
    """Our environment, without a path to modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def python_without_kraftpy(directory: Path) -> Path:
    """One that has what kraftpy needs, but not kraftpy, which is only linked into ours."""
    venv.create(directory)
    (own,) = directory.glob("lib/python*/site-packages")
    (own / "required.pth").write_text(str(Path(pyspark.__file__).parents[1]))
    python = directory / "bin" / "python"
    tried = subprocess.run(
        [python, "-c", "import numba, pyspark; import kraftpy"],
        env=elsewhere(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=directory,
    )
    assert "No module named 'kraftpy'" in tried.stderr
    return python


def test_spark_submit_runs_the_audit_from_a_zip(tmp_path: Path) -> None:
    """Its exit code and rows are the command's; what spark-submit sets is heeded. Tasks, which may
    run in another directory, are given whole paths."""
    three_nodes(tmp_path / "logs")
    try:
        require_java()
    except ConfigError as missing:
        pytest.skip(str(missing))
    home = Path(pyspark.__file__).parent
    package = Path(kraftpy.__file__).parent
    zipped = shutil.make_archive(str(tmp_path / "kraftpy"), "zip", package.parent, package.name)
    program = shutil.copy(spark_audit.__file__, tmp_path)
    flags = ["--master", "local[1]", "--py-files", zipped]
    flags += [word for name, value in INTERPRETED.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [home / "bin" / "spark-submit", *flags, program, "logs", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=tmp_path,
        env={
            **elsewhere(),
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": str(python_without_kraftpy(tmp_path / "bare")),
            "JAVA_TOOL_OPTIONS": JAVA,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "NUMBA_DISABLE_JIT": "1",  # The log is small; what is zipped is compiled every time.
        },
    )
    assert done.returncode == 1, done.stderr[-3000:]
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    local = audit([str(tmp_path / "logs")])
    assert told["engine"] == "spark"
    assert [node["path"] for node in told["nodes"]] == [node.path for node in local.nodes]
    assert told["found"] == [str(each) for each in local.violations]


def test_tasks_of_a_table_are_given_whole_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_live(tmp_path / "log")
    monkeypatch.chdir(tmp_path)
    (task,) = KraftReader({"path": "log"}, StructType()).partitions()
    assert isinstance(task, SplitPartition)
    assert task.split is not None
    assert task.split.path == str(tmp_path / "log" / SEGMENT)
    assert from_anywhere("s3://logs/node-1") == "s3://logs/node-1"


def write_begun(place: Path, batches: Sequence[bytes], state: Path) -> None:
    """About half of a log, and what the local engine keeps of it: it ends in no transaction."""
    for count in range(len(batches) // 2, 0, -1):
        write_segment(place, batches[:count])
        audit_with_state([str(place)], Options(), str(state))
        if (state / STATE_FILE).exists():
            return


def len_of(place: Path) -> int:
    return audit([str(place)]).nodes[0].end_offset


def test_the_local_engine_tells_the_same_whole_and_screened(tmp_path: Path) -> None:
    for directory in map(str, write_all(tmp_path)):
        whole = audit([directory], Options(mode="whole"))
        assert told(audit([directory], Options(mode="screened"))) == told(whole)


def test_many_nodes_are_mended_and_compared(tmp_path: Path) -> None:
    three_nodes(tmp_path)
    result = audit([str(tmp_path)])
    assert result.records == audit([str(tmp_path / "node-3")]).records + 5
    assert {"A46", "A50"} <= set(result.counts)
    assert not {"A5", "A6"} & set(result.counts), "the damaged batch was taken from another node"
    assert {each.kind for each in result.unchecked} == {"damaged"}


def test_what_follows_from_a_lost_range_is_secondary(tmp_path: Path) -> None:
    lost_range(tmp_path)
    result = audit([str(tmp_path)])
    # Behind a LeaderChange the cases' brokers have epochs that are off by one.
    assert set(result.counts) == {"A26"}  # A damaged batch is no gap.
    assert result.secondary["A6"] == 24
    assert [each.kind for each in result.unchecked] == ["damaged", "lost_range"]
