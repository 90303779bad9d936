"""The oracle tells what the local engine tells, of every rule that it decides; what is no log is a
line for every engine.

It runs in a process of its own, as Spark leaves threads behind: one session, all logs at once. A
rule that is spoilt on purpose is seen, so the comparison can fail. The local engine is shown every
kind of bad directory, Spark one that is damaged, one that is empty and one that is foreign, and the
oracle the damaged one, since planning its SQL takes longest.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the oracle needs the audit extra")

from kraftpy.audit.catalyst import DECIDED, UNDECIDED, UNDECIDED_OF_KAFKA, engine
from kraftpy.audit.local import Options, audit
from kraftpy.audit.rules import RULES
from kraftpy.audit.run import CATALYST, Asked, lost_ranges, run_audit
from kraftpy.cli.java import require_java
from kraftpy.errors import ConfigError
from kraftpy.storage.file_layer import OsFiles
from tests.audit_proof.oracle import Row, differences, local_rows, write_small
from tests.unit.audit.kafka_encoding import kafka_batches
from tests.unit.audit.log_files import write_segment
from tests.unit.audit.logs import cluster
from tests.unit.audit.test_spark import JAVA

FOR_SPARK = ("corrupt", "empty", "foreign")
GOOD_RECORDS = 50  # In each log; audit-proof has more.
SPOILT = 2  # The rule of which one condition is turned round.
PROGRAM = """
import json, sys
from pathlib import Path
from kraftpy.audit.catalyst import changes
from kraftpy.audit.catalyst.engine import audit as by_oracle
from kraftpy.audit.catalyst.words import Check, violations
from kraftpy.audit.run import lost_ranges
from kraftpy.audit.spark.pipeline import audit as by_spark
from kraftpy.audit.spark.session import new_session
from tests.audit_proof.oracle import oracle_rows, write_small

place, good_records, bad = json.load(sys.stdin)
small = write_small(Path(place), good_records)
spark = new_session("local[2]", {"spark.sql.shuffle.partitions": "2"})
told, of_nodes = oracle_rows(spark, small)
check = Check(2, "is_change and not within(old.isr, new.replicas)")
spoilt = spark.sql(violations("partition_changes", [check], "to_json(new)", "topic_id, partition"))
lines = [[small.names[row.log], row.offset] for row in spoilt.collect()]
results = {}
for path in bad:
    found = [audit(spark, [path]) for audit in ([by_spark] if results else [by_spark, by_oracle])]
    for each in found:
        each.problems += lost_ranges(each)
    results[path] = [[list(each.problems), int(each.exit_code)] for each in found]
spark.stop()
told = {name: [list(row) for row in rows] for name, rows in told.items()}
print("RESULT", json.dumps([told, sorted(of_nodes), lines, results]))
"""


def bad_directories(directory: Path) -> list[str]:
    """Empty, half-written, foreign, damaged, or not there at all."""
    batches = kafka_batches(cluster())
    whole, middle = b"".join(batches), batches[5][:-1] + bytes([batches[5][-1] ^ 0xFF])
    contents = {
        "corrupt": b"".join([*batches[:5], middle, *batches[6:]]),
        "corrupt-from-the-start": bytes([0xFF]) * 100 + whole[100:],
        "empty-segment": b"",
        "half-a-header": whole[:30],
        "noise": bytes(range(256)) * 16,
        "zeros": bytes(4096),
        "truncated": whole[:-40],
    }
    for name, data in contents.items():
        write_segment(directory / name, [data])
    (directory / "empty").mkdir()
    (directory / "foreign").mkdir()
    (directory / "foreign" / "notes.txt").write_text("hello")
    (directory / "a-file").write_text("hello")
    return [str(directory / name) for name in (*contents, "empty", "foreign", "a-file", "missing")]


class Told:
    """What one process with a session told, and what it is held against."""

    def __init__(self, directory: Path) -> None:
        (directory / "bad").mkdir()
        self.bad = bad_directories(directory / "bad")
        for_spark = [path for path in self.bad if Path(path).name in FOR_SPARK]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=json.dumps([str(directory / "oracle"), GOOD_RECORDS, for_spark]),
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "JAVA_TOOL_OPTIONS": JAVA},
        )
        assert "RESULT" in done.stdout, done.stderr[-3000:]
        found = json.loads(done.stdout.split("RESULT", 1)[1])
        small = write_small(directory / "local", GOOD_RECORDS)  # The same once more.
        self.ours = local_rows(small)
        self.of_nodes_due = small.quorum.due
        self.theirs = {name: {Row(*row) for row in rows} for name, rows in found[0].items()}
        self.of_nodes = {tuple(row) for row in found[1]}
        self.spoilt = {tuple(each) for each in found[2]}
        self.results: dict[str, list[Any]] = found[3]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    try:
        require_java()
    except ConfigError as missing:
        pytest.skip(str(missing))
    return Told(tmp_path_factory.mktemp("oracle"))


def test_the_oracle_tells_the_rows_of_the_local_engine(told: Told) -> None:
    assert list(differences(told.ours, told.theirs)) == []
    assert told.of_nodes == told.of_nodes_due


def test_every_rule_that_it_decides_fires(told: Told) -> None:
    fired = {row.rule for rows in told.theirs.values() for row in rows}
    fired |= {int(code[1:]) for code, _, _ in told.of_nodes}
    assert fired == DECIDED
    assert len(DECIDED) == 54


def test_a_rule_that_is_spoilt_is_seen(told: Told) -> None:
    breaking = {
        (name, row.offset) for name, rows in told.ours.items() for row in rows if row.rule == SPOILT
    }
    assert breaking
    assert told.spoilt != breaking


def test_a_row_that_only_one_of_them_tells_is_a_difference(told: Told) -> None:
    name, rows = next((name, rows) for name, rows in told.ours.items() if rows)
    assert len(list(differences({name: rows}, {name: set()}))) == len(rows)
    assert len(list(differences({name: set()}, {name: rows}))) == len(rows)


def test_what_is_no_log_is_a_line_for_every_engine(told: Told) -> None:
    for path in told.bad:
        local = audit([path], Options())
        local.problems += lost_ranges(local)
        ours = [list(local.problems), int(local.exit_code)]
        by_spark = told.results.get(path, [])
        assert by_spark[:1] == [ours] * (Path(path).name in FOR_SPARK), path
        for problems, code in [ours, *by_spark]:
            # A log that ends within a batch may be in the writing.
            assert code == (0 if path.endswith("/truncated") else 2), (path, problems)
            assert len(problems) == (code == 2), path
            assert all("\n" not in line for line in problems)


def test_what_is_left_out_has_a_reason() -> None:
    assert DECIDED | set(UNDECIDED) == set(RULES)
    assert not DECIDED & set(UNDECIDED)
    assert set(UNDECIDED_OF_KAFKA) < DECIDED
    assert all({*UNDECIDED.values(), *UNDECIDED_OF_KAFKA.values()})


def test_a_large_log_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(tmp_path, kafka_batches(cluster()))
    monkeypatch.setattr(engine, "BYTES_MAX", 10)
    session: Any = None  # It is not asked for anything.
    result = engine.audit(session, [str(tmp_path)])
    (line,) = result.problems
    assert "use --engine spark" in line
    assert int(result.exit_code) == 2


def test_it_keeps_no_state(tmp_path: Path) -> None:
    write_segment(tmp_path, kafka_batches(cluster()))
    with pytest.raises(ConfigError, match="--state"):
        run_audit(
            OsFiles(), Asked(paths=[str(tmp_path)], run="t", engine=CATALYST, state=str(tmp_path))
        )
