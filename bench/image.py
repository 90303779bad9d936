"""How fast metadata is replayed and loaded: `python -m bench.image [--scale 0.01] [--json]`.

Each group of measurements runs in a process of its own, so that neither memory nor caches of one
show up in another; of three runs the least disturbed counts. Beside each figure stands the same
work done plainly, in the same run:

replay   a mixed log of a million records, from batches in memory: CRC, iter_values, decode, replay.
         Plain: the same batches, and msgpack.unpackb of each value, which is then thrown away.
load     a snapshot of 100,000 topics and 1,000,000 partitions, from a file, into an image.
         Plain: the arrays, kept in dicts, with no checks and nothing shared.
kafka    Kafka's own image benchmarks, at its four sizes: the time that TopicsDelta.apply() takes.
         Plain: an image of dicts, which must be copied before it may be changed.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from bench import image_cases, workloads
from bench.measure import Measured, report_results, run_worker
from bench.table import Row, Section, as_json, progress, show

REPLAY_AIM_PER_S = 250_000
LOAD_AIM_S = 10
LOAD_AIM_BYTES = 1_500_000_000
LOAD_TOPICS = 100_000
REPLAY_RECORDS = 1_000_000
CASES = ("replay", "load", "kafka")
Begin = Callable[[str], Callable[[float], None]]


@click.command()
@click.option("--scale", default=1.0, help="Size of the workloads; 1 is what the aims speak of.")
@click.option("--json", "for_machines", is_flag=True, help="Print JSON instead of tables.")
@click.option("--only", type=click.Choice(CASES), multiple=True, help="Measure only this.")
@click.option("--seconds", default=0.5, help="How long each of Kafka's benchmarks is repeated.")
@click.option("--worker", hidden=True, help="Run one group here; how the parent calls itself.")
@click.option("--count", default=0, hidden=True)
@click.option("--file", "path", type=click.Path(path_type=Path), hidden=True)
def main(
    scale: float,
    for_machines: bool,
    only: tuple[str, ...],
    seconds: float,
    worker: str | None,
    count: int,
    path: Path | None,
) -> None:
    """Measure replay and loading of metadata images."""
    if worker is not None:
        report_results(image_cases.run(worker, count, seconds, path))
        return
    with progress(Console(stderr=True, quiet=for_machines)) as begin:
        sections = [SECTIONS[case](scale, seconds, begin) for case in only or CASES]
    if for_machines:
        click.echo(as_json(sections))
    else:
        width = None if os.isatty(1) else 160
        show(sections, Console(width=width))


def replay_section(scale: float, _seconds: float, begin: Begin) -> Section:
    records = max(1000, round(REPLAY_RECORDS * scale))
    found = _run("replay", records, begin(f"replay of {records:,} records"))
    ours = found["replay, one image at the end"]
    rows = [
        Row(
            name="whole: CRC, values, decode, replay",
            ours=ours,
            plain=found["plain"],
            aim=f"{REPLAY_AIM_PER_S:,}/s",
            reached=ours.per_wall_s >= REPLAY_AIM_PER_S if scale >= 1 else None,
        ),
        Row(name="the same, an image per batch", ours=found["replay, an image per batch"]),
        Row(name="  CRC and values alone", ours=found["values"]),
        Row(name="  decode alone", ours=found["decode"], plain=found["unpackb"]),
        Row(name="  replay alone", ours=found["replay of decoded records"]),
    ]
    return Section(
        title=f"Replay of a mixed log of {ours.count:,} records",
        unit="records",
        rows=tuple(rows),
        note="plain: msgpack.unpackb of the same values, nothing checked, nothing kept",
    )


def load_section(scale: float, _seconds: float, begin: Begin) -> Section:
    topics = max(10, round(LOAD_TOPICS * scale))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "snapshot"
        _run("write-snapshot", topics, begin(f"writing a snapshot of {topics:,} topics"), path)
        ours = _run("load", topics, begin("loading it"), path)["load"]
        plain = _run("load-plain", topics, begin("loading it plainly"), path)["load"]
    assert ours.rss_bytes_max is not None
    in_time = ours.wall_s < LOAD_AIM_S
    in_memory = ours.rss_bytes_max < LOAD_AIM_BYTES
    row = Row(
        name=f"load in {ours.wall_s:.2f} s (plain {plain.wall_s:.2f} s)",
        ours=ours,
        plain=plain,
        aim=f"< {LOAD_AIM_S} s, < {LOAD_AIM_BYTES / 1e9} GB",
        reached=in_time and in_memory if scale >= 1 else None,
    )
    partitions = topics * workloads.KAFKA_PARTITIONS_PER_TOPIC
    return Section(
        title=f"Load of a snapshot with {topics:,} topics and {partitions:,} partitions",
        unit="records",
        rows=(row,),
        note="plain: unpacked arrays in dicts, nothing checked; RSS is of the whole process",
    )


def kafka_section(scale: float, seconds: float, begin: Begin) -> Section:
    rows = []
    for size in workloads.KAFKA_TOPIC_COUNTS:
        topics = max(10, round(size * scale))
        bar = begin(f"Kafka's image benchmarks, {topics:,} topics")
        found = _run("kafka", topics, bar, seconds=seconds)
        rows += [
            Row(name=f"{name} {topics:,}", ours=found[name], plain=found[f"{name}, plain"])
            for name in image_cases.KAFKA_BENCHMARKS
        ]
    return Section(
        title="Kafka's image benchmarks: apply a delta (10 partitions a topic, 3 replicas)",
        unit="applied",
        rows=tuple(sorted(rows, key=lambda row: row.name.split()[0])),
        per_operation=True,
        note="plain: an image of dicts, copied before it is changed",
    )


SECTIONS: dict[str, Callable[[float, float, Begin], Section]] = {
    "replay": replay_section,
    "load": load_section,
    "kafka": kafka_section,
}


def _run(
    worker: str,
    count: int,
    on_progress: Callable[[float], None],
    path: Path | None = None,
    seconds: float = 0.0,
) -> dict[str, Measured]:
    arguments = ["bench.image", "--worker", worker, "--count", str(count)]
    arguments += ["--seconds", str(seconds)]
    if path is not None:
        arguments += ["--file", str(path)]
    results = run_worker(arguments, on_progress)
    on_progress(1.0)
    return {measured.what: measured for measured in results}


if __name__ == "__main__":
    main()
