"""librdkafka as load: the generator in C where there is a compiler, else through confluent-kafka.

Both take the same words and print the same JSON. The one in C is built against the library inside
the confluent-kafka wheel, so that both are the same librdkafka, that of the lock file.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka

SOURCE = Path(__file__).with_name("broker_load.c")
BUILD_TIMEOUT_S = 120.0
RUN_TIMEOUT_S = 180.0
NO_BOOTSTRAP = "-"
COMMON = {"log_level": "2"}
# Large enough that the client is never idle for want of room, and the same for everyone.
PRODUCER = {
    "queue.buffering.max.messages": "2000000",
    "queue.buffering.max.kbytes": "1048576",
    "batch.num.messages": "1000000",
    "linger.ms": "50",
}
CONSUMER = {
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "1048576",
    "fetch.queue.backoff.ms": "10",
    "fetch.wait.max.ms": "100",
}
MOCK = {"test.mock.num.brokers": "1"}


@dataclass(frozen=True, slots=True)
class Load:
    """What one run found. `bytes` are of values, as in every figure that names MB."""

    records: int
    errors: int
    gaps: int
    bytes: int
    seconds: float
    client_cpu_s: float
    p50_s: float
    p99_s: float


class LoadFailed(Exception):
    """The generator did not do what it was asked for."""


class Generator:
    """Runs the generator; each run is a process of its own."""

    def __init__(self, command: list[str], name: str) -> None:
        self._command = command
        self.name = name

    def produce(
        self, bootstrap: str, topic: str, record_bytes: int, count: int, settings: dict[str, str]
    ) -> Load:
        """Every record must be acknowledged."""
        words = ("produce", bootstrap, topic, str(record_bytes), str(count), "0")
        return self._run(words, {**PRODUCER, **settings}, count)

    def consume(self, bootstrap: str, topic: str, record_bytes: int, count: int) -> Load:
        """Every record must be there, in order."""
        words = ("consume", bootstrap, topic, str(record_bytes), str(count), "0")
        return self._run(words, CONSUMER, count)

    def latency(
        self, bootstrap: str, topic: str, count: int, gap_us: int, settings: dict[str, str]
    ) -> Load:
        words = ("latency", bootstrap, topic, "100", str(count), str(gap_us))
        return self._run(words, {"linger.ms": "0", **settings}, count)

    def _run(self, words: tuple[str, ...], settings: dict[str, str], count: int) -> Load:
        pairs = [f"{key}={value}" for key, value in {**COMMON, **settings}.items()]
        done = subprocess.run(
            [*self._command, *words, *pairs],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise LoadFailed(f"{words[0]} fails: {done.stderr.strip()[:500]}")
        found = Load(**json.loads(done.stdout))
        check(found, words[0], count, done.stderr.strip()[:500])
        return found


def check(found: Load, what: str, count: int, detail: str) -> None:
    """LoadFailed unless the run is whole: a figure of less would be of something else."""
    if found.errors or found.gaps or found.records < count:
        raise LoadFailed(
            f"{what}: {found.records} of {count} records, {found.errors} errors, "
            f"{found.gaps} gaps. {detail}"
        )


def library() -> Path | None:
    """librdkafka as the wheel of confluent-kafka has it."""
    package = confluent_kafka.__file__
    assert package is not None
    place = Path(package).parent.parent / "confluent_kafka.libs"
    return next(iter(sorted(place.glob("librdkafka-*.so*"))), None)


def generator(directory: str) -> Generator:
    """The best there is; what is built lies in `directory`."""
    compiler, shared = shutil.which("cc"), library()
    if compiler is None or shared is None:
        module = [sys.executable, "-m", "bench.broker_load_python"]
        return Generator(module, "confluent-kafka (there is no C compiler)")
    program = os.path.join(directory, "broker_load")
    link = (str(shared), f"-Wl,-rpath,{shared.parent}")
    done = subprocess.run(
        [compiler, "-O2", "-o", program, str(SOURCE), *link],
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise LoadFailed(f"{SOURCE.name} cannot be built: {done.stderr[:500]}")
    return Generator([program], f"librdkafka {confluent_kafka.libversion()[0]}, driven from C")
