"""How fast the log is, beside plain `os.write` and `os.read` of the same bytes: `make bench-log`.

Ours and the plain way take turns on the same disk, several rounds each, and the best round of each
counts: whatever else the machine does then hits both alike. Nothing is synced unless a row says
so, since a sync measures the disk. CPU is user and system time together.
"""

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import click
from rich.console import Console
from rich.table import Table

from bench.measure import Measured, measure
from bench.table import progress
from kraftpy.clock import SystemClock
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.record_batch import Record, build_batch
from kraftpy.storage.segment import SegmentConfig

MEGABYTE = 1_000_000
READ_BYTES = 1024 * 1024
GROUP = 64
CONFIG = LogConfig(segment=SegmentConfig(segment_bytes=1024**3), batch_bytes_max=4 * 1024**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The same bytes through the log and past it."""

    name: str
    ours: Callable[[str], Measured]
    plain: Callable[[str], Measured]
    aim: float | None = None  # Our MB/s over the plain MB/s.


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The best rounds of a case."""

    name: str
    ours_mb_per_s: float
    ours_cpu_s_per_gb: float
    plain_mb_per_s: float
    plain_cpu_s_per_gb: float
    ratio: float
    aim: float | None


def batch_of(size: int) -> bytearray:
    """A batch of about this many bytes, of records of 1000 bytes that do not compress."""
    rng = random.Random(size)
    count = max(1, size // 1010)
    records = [
        Record(offset=i, timestamp=1_700_000_000_000 + i, key=None, value=rng.randbytes(1000))
        for i in range(count)
    ]
    return build_batch(records)


def cases(total: int) -> list[Case]:
    """What is compared, each with `total` bytes."""
    found = []
    for label, size, aim in (("1 MB", 1024 * 1024, 0.5), ("16 KB", 16 * 1024, 0.25)):
        batch, count = batch_of(size), max(GROUP, total // size)
        found += [
            Case(
                name=f"append {label} batches",
                ours=partial(append, batch=batch, count=count),
                plain=partial(plain_write, batch=batch, count=count),
                aim=aim,
            ),
            Case(
                name=f"append {label} batches, then fsync",
                ours=partial(append, batch=batch, count=count, sync=True),
                plain=partial(plain_write, batch=batch, count=count, sync=True),
            ),
            Case(
                name=f"read {label} batches, {READ_BYTES // 1024} KB at a time",
                ours=partial(read, batch=batch, count=count),
                plain=partial(plain_read, batch=batch, count=count),
            ),
        ]
    found.append(
        Case(
            name=f"append 16 KB batches, {GROUP} requests per write",
            ours=partial(append_groups, batch=batch, count=count),
            plain=partial(plain_write, batch=batch, count=count),
        )
    )
    return found


def open_log(directory: str) -> Log:
    return Log.open(OsFiles(), os.path.join(directory, "bench-0"), CONFIG, SystemClock())


def append(directory: str, batch: bytearray, count: int, *, sync: bool = False) -> Measured:
    log = open_log(directory)

    def work() -> None:
        for _ in range(count):
            log.append(batch, epoch=1)
        if sync:
            log.flush()

    return measure("append", count * len(batch), work)[0]


def append_groups(directory: str, batch: bytearray, count: int) -> Measured:
    log = open_log(directory)
    copies = [bytearray(batch) for _ in range(GROUP)]

    def work() -> None:
        for _ in range(count // GROUP):
            log.append_all([log.check(copy) for copy in copies], epoch=1)

    return measure("append", count // GROUP * GROUP * len(batch), work)[0]


def plain_write(directory: str, batch: bytearray, count: int, *, sync: bool = False) -> Measured:
    fd = os.open(os.path.join(directory, "plain"), os.O_WRONLY | os.O_CREAT)

    def work() -> None:
        for _ in range(count):
            os.write(fd, batch)
        if sync:
            os.fdatasync(fd)

    try:
        return measure("write", count * len(batch), work)[0]
    finally:
        os.close(fd)


def read(directory: str, batch: bytearray, count: int) -> Measured:
    log = open_log(directory)
    for _ in range(count):
        log.append(batch, epoch=1)
    records = log.end_offset // count

    def work() -> None:
        offset = 0
        while offset < log.end_offset:
            found = log.read(offset, READ_BYTES)
            found.read()
            offset += found.count // len(batch) * records

    return measure("read", count * len(batch), work)[0]


def plain_read(directory: str, batch: bytearray, count: int) -> Measured:
    plain_write(directory, batch, count)
    fd = os.open(os.path.join(directory, "plain"), os.O_RDONLY)

    def work() -> None:
        while os.read(fd, READ_BYTES):
            pass

    try:
        return measure("read", count * len(batch), work)[0]
    finally:
        os.close(fd)


def run(case: Case, directory: str, rounds: int, advance: Callable[[float], None]) -> Result:
    """Ours and the plain way by turns; the best of each."""
    ours: list[Measured] = []
    plain: list[Measured] = []
    for done in range(rounds):
        for side, results in ((case.plain, plain), (case.ours, ours)):
            place = tempfile.mkdtemp(dir=directory)
            try:
                results.append(side(place))
            finally:
                shutil.rmtree(place)
        advance((done + 1) / rounds)
    ours_rate = max(each.per_wall_s for each in ours)
    plain_rate = max(each.per_wall_s for each in plain)
    return Result(
        name=case.name,
        ours_mb_per_s=ours_rate / MEGABYTE,
        ours_cpu_s_per_gb=min(each.cpu_s / each.count for each in ours) * 1e9,
        plain_mb_per_s=plain_rate / MEGABYTE,
        plain_cpu_s_per_gb=min(each.cpu_s / each.count for each in plain) * 1e9,
        ratio=ours_rate / plain_rate,
        aim=case.aim,
    )


def as_table(results: list[Result]) -> Table:
    table = Table(title="The log beside plain os.write and os.read", title_justify="left")
    table.add_column("what")
    for side in ("kraftpy", "plain"):
        table.add_column(f"{side} MB/s", justify="right")
        table.add_column("CPU-s/GB", justify="right")
    table.add_column("MB/s ratio", justify="right")
    table.add_column("aim")
    for each in results:
        aim = ""
        if each.aim is not None:
            reached = "[green]reached" if each.ratio >= each.aim else "[red]missed"
            aim = f"{each.aim}x: {reached}[/]"
        table.add_row(
            each.name,
            f"{each.ours_mb_per_s:,.0f}",
            f"{each.ours_cpu_s_per_gb:.2f}",
            f"{each.plain_mb_per_s:,.0f}",
            f"{each.plain_cpu_s_per_gb:.2f}",
            f"{each.ratio:.2f}x",
            aim,
        )
    return table


@click.command()
@click.option("--megabytes", default=256, help="How much each round writes or reads.")
@click.option("--rounds", default=5, help="How often each side takes its turn.")
@click.option("--dir", "where", default=None, help="Write here, not where temporary files go.")
@click.option("--json", "for_machines", is_flag=True, help="Print JSON instead of a table.")
def main(megabytes: int, rounds: int, where: str | None, for_machines: bool) -> None:
    """Measure the log against plain reads and writes."""
    with (
        tempfile.TemporaryDirectory(dir=where, prefix="kraftpy-bench-") as directory,
        progress(Console(stderr=True, quiet=for_machines)) as begin,
    ):
        results = [
            run(case, directory, rounds, begin(case.name)) for case in cases(megabytes * MEGABYTE)
        ]
    if for_machines:
        click.echo(json.dumps([asdict(each) for each in results], indent=2))
    else:
        Console(width=None if os.isatty(1) else 160).print(as_table(results))


if __name__ == "__main__":
    main()
