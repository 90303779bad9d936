"""How fast audits are: `python -m bench.audit [--records 10000000] [--partitions 100000] [--json]`.

A healthy log is made once, then audited by each engine in a process of its own: `--engine local`,
Spark with local[1] and local[2], and, for comparison in the same run, a plain Python replay:
msgpack into dicts, no rule looked at, over a tenth of the records. CPU seconds and memory are those
of all processes of an engine, its JVM and workers included, sampled ten times a second; the replay
pass of the local engine is measured by itself, too.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgpack  # type: ignore[import-untyped]
import psutil

from bench.audit_log import healthy_log
from kraftpy.storage.record_batch import iter_values, read_header

CASES: Final = ("plain", "local", "spark-1", "spark-2")
PER_TOPIC: Final = 20
PLAIN_SHARE: Final = 10
_SAMPLE_S: Final = 0.1


class Usage:
    """CPU seconds and memory of a process and all that it started."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[tuple[int, float], float] = {}
        self.rss = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        total = 0
        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return
        for process in processes:
            try:
                times = process.cpu_times()
                self._cpu[process.pid, process.create_time()] = times.user + times.system
                total += process.memory_info().rss
            except psutil.Error:
                continue
        self.rss = max(self.rss, total)

    def stop(self) -> float:
        self._stop.set()
        self._thread.join()
        return sum(self._cpu.values())


@click.command()
@click.option("--records", default=10_000_000, help="Records of the log.")
@click.option("--partitions", default=100_000, help="Partitions that they are about.")
@click.option("--brokers", default=100, help="Brokers that hold them.")
@click.option("--only", type=click.Choice(CASES), multiple=True, help="Measure only this.")
@click.option("--directory", type=click.Path(path_type=Path), help="Keep the log there.")
@click.option("--json", "for_machines", is_flag=True, help="Print JSON instead of a table.")
@click.option("--worker", hidden=True, help="Run one case here; how the parent calls itself.")
def main(
    records: int,
    partitions: int,
    brokers: int,
    only: tuple[str, ...],
    directory: Path | None,
    for_machines: bool,
    worker: str | None,
) -> None:
    """Measure audits of metadata logs."""
    if worker is not None:
        assert directory is not None
        click.echo("RESULT " + json.dumps(WORKERS[worker](str(directory))))
        return
    with tempfile.TemporaryDirectory(prefix="bench-audit-") as temporary:
        place = directory or Path(temporary) / "log"
        if not place.exists():
            click.echo(f"making a log of {records:,} records", err=True)
            topics = max(1, partitions // PER_TOPIC)
            healthy_log([place], records, brokers=brokers, topics=topics, per_topic=PER_TOPIC)
        if for_machines:
            found = {case: _measure(case, place) for case in only or CASES}
            click.echo(json.dumps(found, indent=2))
            return
        _head()
        for case in only or CASES:
            _show(case, _measure(case, place))


def _measure(case: str, place: Path) -> dict[str, Any]:
    click.echo(f"measuring {case}", err=True)
    command = [sys.executable, "-m", "bench.audit", "--worker", case, "--directory", str(place)]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    usage = Usage(process.pid)
    out, err = process.communicate()
    cpu_s = usage.stop()
    if "RESULT" not in out:
        raise click.ClickException(f"{case} failed: {err[-2000:]}")
    found: dict[str, Any] = json.loads(out.split("RESULT", 1)[1])
    wall_s = time.monotonic() - began
    return found | {"wall_s": wall_s, "cpu_s": cpu_s, "rss_mb": usage.rss / 1e6}


_LINE: Final = "{:<10}{:>13}{:>9}{:>9}{:>12}{:>12}{:>9}{:>7}  {}"


def _head() -> None:
    """Each row follows as soon as it is measured."""
    names = ("", "records", "wall s", "cpu s", "rec/s", "rec/cpu-s", "RSS MB", "load", "")
    click.echo(f"{psutil.cpu_count()} processors")
    click.echo(_LINE.format(*names))


def _show(case: str, each: dict[str, Any]) -> None:
    stages = ", ".join(f"{name} {took:.1f} s" for name, took in each["timings"].items())
    if "replay_per_cpu_s" in each:
        stages += f"; replay {each['replay_per_cpu_s']:,.0f} rec/cpu-s"
    records = each["records"]
    click.echo(
        _LINE.format(
            case,
            f"{records:,}",
            f"{each['wall_s']:.1f}",
            f"{each['cpu_s']:.1f}",
            f"{records / each['wall_s']:,.0f}",
            f"{records / each['cpu_s']:,.0f}",
            f"{each['rss_mb']:.0f}",
            f"{os.getloadavg()[0]:.0f}",
            stages,
        )
    )


# -- workers ---------------------------------------------------------------------------------------


def _local(directory: str) -> dict[str, Any]:
    from kraftpy.audit.local import SCREENED, Options, audit

    began: dict[str, float] = {}  # Processor seconds so far, when a stage begins.

    def note(stage: str, _done: int, _whole: int) -> None:
        began.setdefault(stage, time.process_time())

    result = audit([directory], Options(mode=SCREENED, progress=note))
    replay_cpu_s = time.process_time() - began["replay"]
    return _told(result) | {"replay_per_cpu_s": result.records / replay_cpu_s}


def _spark(master: str) -> Callable[[str], dict[str, Any]]:
    def run(directory: str) -> dict[str, Any]:
        from kraftpy.audit.local import Options
        from kraftpy.audit.spark.pipeline import audit
        from kraftpy.audit.spark.session import new_session

        spark = new_session(master)
        try:
            return _told(audit(spark, [directory], Options()))
        finally:
            spark.stop()

    return run


def _told(result: Any) -> dict[str, Any]:
    assert not result.counts, result.violations[:3]
    return {"records": result.records, "timings": result.timings}


def _plain(directory: str) -> dict[str, Any]:
    """What a script would do: unpack each value and keep the last state of each partition."""
    wanted = sum(path.stat().st_size for path in Path(directory).glob("*.log")) // PLAIN_SHARE
    states: dict[tuple[bytes, int], Any] = {}
    count = read = 0
    began = time.monotonic()
    for path in sorted(Path(directory).glob("*.log")):
        with open(path, "rb") as file:
            data = memoryview(file.read(max(0, wanted - read)))
        read += len(data)
        at = 0
        while at + 61 <= len(data):
            header = read_header(data, at)
            batch = data[at : at + header.size]
            at += header.size
            if header.is_control or len(batch) < header.size:
                continue
            for value in iter_values(batch, header):
                fields = msgpack.unpackb(value)
                count += 1
                if fields[0] == 3:
                    states[fields[3], fields[2]] = fields
                elif fields[0] == 5 and (old := states.get((fields[3], fields[2]))):
                    old[5] = fields[4] or old[5]
                    old[8] = fields[5] if fields[5] != -2 else old[8]
                    old[10:12] = fields[-2:]
        if read >= wanted:
            break
    return {"records": count, "timings": {"replay": time.monotonic() - began}}


WORKERS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "plain": _plain,
    "local": _local,
    "spark-1": _spark("local[1]"),
    "spark-2": _spark("local[2]"),
}

if __name__ == "__main__":
    main()
