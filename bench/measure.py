"""One measurement: wall time, processor time, and the memory that a process of its own needed.

Machines are shared, so wall time alone says little: processor seconds are reported beside it, and
what is compared with each other runs in the same minute on the same machine.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`what` was done to `count` things."""

    what: str
    count: int
    wall_s: float
    cpu_s: float
    rss_bytes_max: int | None = None

    @property
    def per_cpu_s(self) -> float:
        return self.count / max(self.cpu_s, 1e-9)

    @property
    def per_wall_s(self) -> float:
        return self.count / max(self.wall_s, 1e-9)


def measure(what: str, count: int, work: Callable[[], T]) -> tuple[Measured, T]:
    """Do `work` once; it does something to `count` things."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Measured(what=what, count=count, wall_s=wall, cpu_s=cpu), result


def measure_best(what: str, count: int, work: Callable[[], object], times: int = 3) -> Measured:
    """Do `work` a few times and take the run that others on the machine disturbed least."""
    runs = [measure(what, count, work)[0] for _ in range(times)]
    return min(runs, key=lambda run: run.cpu_s)


def measure_repeated(what: str, work: Callable[[], object], seconds: float = 0.5) -> Measured:
    """Do `work` again and again for so many seconds, and at least three times; count the times."""
    work()  # Warm: what is done once, such as an import, is not what is measured.
    count = 0
    wall, cpu = time.perf_counter(), time.process_time()
    while count < 3 or time.perf_counter() - wall < seconds:
        work()
        count += 1
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Measured(what=what, count=count, wall_s=wall, cpu_s=cpu)


def peak_rss_bytes() -> int:
    """The most memory this process has had at once."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # Not Linux. There, ru_maxrss would also count what the parent had when it forked.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# --- workers ------------------------------------------------------------------------------------


def report_progress(done: float) -> None:
    """In a worker: tell the parent which part of the work is done, 0 to 1."""
    sys.stdout.write(json.dumps({"done": done}) + "\n")
    sys.stdout.flush()


def report_results(results: list[Measured]) -> None:
    """In a worker: its last words."""
    sys.stdout.write(json.dumps({"results": [asdict(m) for m in results]}) + "\n")


def run_worker(
    arguments: list[str], on_progress: Callable[[float], None] = lambda _: None
) -> list[Measured]:
    """Run `python -m ARGUMENTS`, a worker that reports as above, in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        results = []
        for message in _messages(process.stdout):
            if "done" in message:
                on_progress(message["done"])
            else:
                results = [Measured(**m) for m in message["results"]]
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed with status {process.returncode}")
    return results


def _messages(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in lines)
