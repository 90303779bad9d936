"""For every rule a log that breaks it once, among a million records that break none.

`make audit-proof`: all is found and nothing else, by the local engine and by Spark. The short
version, over fewer records and without Spark, is tests/unit/audit/test_proof.py. The good records
come before the fault and behind it, are of other brokers and topics, and only their offsets are
written anew: a batch's checksum does not cover those.
"""

import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from bench.audit_log import EPOCH, HealthyLog, LogWriter
from kraftpy.audit.local import SCREENED, Options, audit
from kraftpy.audit.violations import AuditResult
from kraftpy.metadata_log.batches import record_batch
from kraftpy.storage.record_batch import read_header
from tests.unit.audit import cluster_logs, partition_logs, placement_logs
from tests.unit.audit.cases import BREAKING, Case
from tests.unit.audit.log_files import evidence_of, write_segment
from tests.unit.audit.logs import Log

LOADED = (partition_logs, placement_logs, cluster_logs)
_OFFSET = struct.Struct(">q")


@dataclass(frozen=True)
class Good:
    """Batches of a healthy cluster: those before a fault, and those behind it."""

    before: bytes
    behind: bytes
    offset: int  # Where the fault goes.
    records: int


def good_records(records: int, directory: Path) -> Good:
    writer = LogWriter([directory / "before"], 1 << 40)
    cluster = HealthyLog(writer, brokers=20, topics=100, per_topic=20)
    cluster.run(records // 2)
    offset = writer.end_offset
    path = directory / "before" / f"{0:020d}.log"
    size = path.stat().st_size
    cluster.run(records)
    data = path.read_bytes()
    return Good(data[:size], data[size:], offset, writer.records)


@contextmanager
def logs_begin_at(offset: int) -> Iterator[None]:
    """Cases write their logs as if they began there."""
    plain = Log.__init__

    def begin(log: Log) -> None:
        plain(log)
        log.end_offset = offset

    Log.__init__ = begin  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Log.__init__ = plain  # type: ignore[method-assign]


def shifted(data: bytes, by: int) -> bytes:
    """The same batches, further on in the log."""
    moved, at = bytearray(data), 0
    while at < len(moved):
        header = read_header(moved, at)
        _OFFSET.pack_into(moved, at, header.base_offset + by)
        at += header.size
    return bytes(moved)


def write_case(case: Case, good: Good, directory: Path) -> Log:
    with logs_begin_at(good.offset):
        log = case.write()
    log.end_offset = max(base + len(records) for base, records, _ in log.batches)
    fault = b"".join(
        bytes(record_batch(records, base_offset=base, epoch=EPOCH, timestamp_ms=0))
        for base, records, _ in log.batches
        if records
    )
    behind = shifted(good.behind, log.end_offset - good.offset)
    write_segment(directory, [good.before, fault, behind])
    return log


def wrong(case: Case, log: Log, good: Good, result: AuditResult) -> str | None:
    """Why the result is not what it should be, or None."""
    due = {f"A{number}" for number in (case.rule, *case.also)}
    if set(result.counts) != due:
        return f"found {dict(result.counts)} where {sorted(due)} were due"
    outside = [v for v in result.violations if not good.offset <= v.offset < log.end_offset]
    if outside:
        return f"found among good records: {outside[0]}"
    if result.records < good.records:
        return f"looked at {result.records} records only"
    return None


@click.command()
@click.option("--records", default=1_000_000, help="Good records around each fault.")
@click.option("--rule", type=int, multiple=True, help="Only this one.")
@click.option("--spark/--no-spark", "with_spark", default=True, help="Also by the Spark engine.")
def main(records: int, rule: tuple[int, ...], with_spark: bool) -> None:
    """Prove every rule."""
    cases = [case for case in BREAKING if not rule or case.rule in rule]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="audit-proof-") as temporary:
        root = Path(temporary)
        good = good_records(records, root)
        spark = _session() if with_spark else None
        for number, case in enumerate(cases):
            place = root / "case"
            log = write_case(case, good, place)
            options = Options(mode=SCREENED, evidence=evidence_of(log))
            found = {"local": audit([str(place)], options)}
            if spark is not None:
                found["spark"] = _on_spark(spark, place, options)
            reasons = {name: wrong(case, log, good, each) for name, each in found.items()}
            failed += any(reasons.values())
            told = "; ".join(f"{name}: {reason or 'ok'}" for name, reason in reasons.items())
            click.echo(f"{number + 1}/{len(cases)} A{case.rule} {case.name}: {told}")
    click.echo(f"{len(cases) - failed} of {len(cases)} faults found, and nothing else")
    sys.exit(1 if failed else 0)


def _session() -> object:
    from kraftpy.audit.spark.session import new_session

    return new_session("local[2]")


def _on_spark(spark: object, place: Path, options: Options) -> AuditResult:
    from kraftpy.audit.spark.pipeline import audit as audit_on

    return audit_on(spark, [str(place)], options)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
