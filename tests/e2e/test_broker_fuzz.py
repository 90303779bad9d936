"""Random and mutated frames of every API at a broker process, beside a client that must not notice.

Method: senders write noise over many connections for a bounded time, while a librdkafka producer
and consumer do their work. At the end the process is the same one and still answers, everything
that the client wrote was read back in order, and after a warm-up its memory has not grown with the
number of frames. `make fuzz-broker` does it for longer.
"""

import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka.admin
import psutil
import pytest

from bench.quorum_processes import free_ports
from kraftpy.broker.api_table import KNOWN
from kraftpy.wire.apis import request_type
from kraftpy.wire.codec import encode
from kraftpy.wire.headers import request_frame
from tests.e2e.cluster_processes import PROGRAM
from tests.e2e.storm_writer import Writer, check, read_all
from tests.unit.wire.fuzz import mutated
from tests.unit.wire.messages import random_message

SECONDS = float(os.environ.get("FUZZ_BROKER_SECONDS", "6"))
SENDERS = 3
FRAMES_PER_CONNECTION = 20
# One that leaked a tenth of what each frame says would be seen: frames have some hundred bytes,
# and a leak of objects costs more than the bytes that led to it.
GROWTH_BYTES_PER_FRAME = 300
NOISE_OF_MEMORY = 6 << 20  # What an allocator keeps, whatever comes: 1 to 2 MiB were seen.
# It gives large blocks back at once, rather than learn that they come often.
HONEST_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
# The same broker, but that it keeps something of every frame.
LEAKING = f"""
from kraftpy.broker.receive_buffer import ReceiveBuffer
kept, next_frame = [], ReceiveBuffer.next_frame
def leak(buffer):
    kept.append(bytes({40 * GROWTH_BYTES_PER_FRAME}))
    return next_frame(buffer)
ReceiveBuffer.next_frame = leak
{PROGRAM}
"""
# Whole ones of these would change the cluster rather than be refused; they are only sent broken.
CHANGING = frozenset({19, 20, 21, 30, 31, 33, 37, 43, 44, 45, 49, 51, 57, 64})


def noise_frame(rng: random.Random) -> bytes:
    """A frame: garbage, a request with a few bytes changed, or one that is merely senseless."""
    key = rng.choice(sorted(KNOWN))
    version = rng.randint(KNOWN[key].min_version, KNOWN[key].max_version)
    kind = rng.random()
    if kind < 0.15:
        garbage = rng.randbytes(rng.randrange(1, 200))
        return garbage if kind < 0.05 else struct.pack(">i", len(garbage)) + garbage
    return request(rng, key, version, kind)


def request(rng: random.Random, key: int, version: int, kind: float) -> bytes:
    """The more broken the lower `kind` is."""
    message = random_message(request_type(key, version), rng, 2)
    frame = bytes(request_frame(message, key, version, rng.randrange(1000), "fuzz"))
    if kind > 0.7 and key not in CHANGING:
        return frame
    if kind > 0.4:  # The length is right: the body must be found out.
        body = mutated(bytes(encode(message)), rng)
        head = frame[4 : len(frame) - len(bytes(encode(message)))]
        return struct.pack(">i", len(head) + len(body)) + head + body
    return mutated(frame, rng)


class Sender(threading.Thread):
    """Noise over one connection after another."""

    def __init__(self, port: int, seed: int, deadline: float) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._rng = random.Random(seed)
        self._deadline = deadline
        self.frames = 0
        self.refused = 0

    def run(self) -> None:
        while time.monotonic() < self._deadline:
            try:
                with socket.create_connection(("127.0.0.1", self._port), 30) as sock:
                    self._talk(sock)
            except OSError:
                self.refused += 1

    def _talk(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        for _ in range(self._rng.randrange(1, FRAMES_PER_CONNECTION)):
            sock.send(
                noise_frame(self._rng)
            )  # Whatever does not fit is half a frame: all the better.
            self.frames += 1
            with suppress(BlockingIOError):
                if self._rng.random() < 0.5 and not sock.recv(1 << 16):
                    return


@contextmanager
def one_broker(
    directory: Path, program: str = PROGRAM
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    (port,) = free_ports(1)
    command = [
        *(sys.executable, "-c", program, "dev", "--listen", f"127.0.0.1:{port}"),
        *("--data-dir", str(directory / "data"), "--set", "auto.create.topics.enable=false"),
    ]
    with open(directory / "log", "wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=out,
            env={**os.environ, **HONEST_ALLOCATOR},
        )
    try:
        assert process.stdout is not None
        assert any(line.startswith(b"Point Kafka clients") for line in process.stdout)
        yield port, process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def attack(port: int, seconds: float, seed: int) -> int:
    deadline = time.monotonic() + seconds
    senders = [Sender(port, seed + each, deadline) for each in range(SENDERS)]
    for each in senders:
        each.start()
    for each in senders:
        each.join(seconds + 60)
        assert not each.is_alive(), "the broker neither answers nor refuses"
    return sum(each.frames for each in senders)


class Noise(NamedTuple):
    frames: int
    growth: int  # Of the broker's memory, in bytes.

    @property
    def leaks(self) -> bool:
        return self.growth > NOISE_OF_MEMORY + GROWTH_BYTES_PER_FRAME * self.frames


def one_of_each(port: int) -> None:
    """A request of every version of every API: what it takes to read them is loaded by then."""
    rng = random.Random(0)
    for key, known in sorted(KNOWN.items()):
        for version in range(known.min_version, known.max_version + 1):
            with socket.create_connection(("127.0.0.1", port), 30) as sock, suppress(OSError):
                sock.sendall(request(rng, key, version, 0.6 if key in CHANGING else 1.0))
                sock.settimeout(0.05)
                sock.recv(1 << 16)


def make_noise(port: int, process: int, seconds: float) -> Noise:
    one_of_each(port)
    attack(port, seconds / 3, seed=1)
    before = memory_of(process)
    frames = attack(port, seconds, seed=100)
    return Noise(frames, memory_of(process) - before)


def memory_of(process: int) -> int:
    """The least of some moments: what was asked for last is still on its way."""
    found = []
    for _ in range(20):
        found.append(psutil.Process(process).memory_info().rss)
        time.sleep(0.05)
    return min(found)


def create_topic(bootstrap: str) -> None:
    api: Any = confluent_kafka.admin  # Its types are not complete.
    admin = api.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([api.NewTopic("good", 1, 1)])["good"].result(60)


def test_noise_disturbs_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with one_broker(tmp_path) as (port, process):
        bootstrap = f"127.0.0.1:{port}"
        create_topic(bootstrap)
        writer = Writer(bootstrap, "good", 1)
        writer.start()
        noise = make_noise(port, process.pid, SECONDS)
        writer.stop()
        assert process.poll() is None, (tmp_path / "log").read_text()
        check(writer.outcomes, read_all(bootstrap, "good", 1))
        assert writer.outcomes.count > 20
        assert writer.producers == 1
        assert writer.outcomes.unknown == set()
        assert noise.frames > 100
        with capsys.disabled():
            print(  # noqa: T201
                f"\n{noise.frames} frames, {noise.growth >> 10} KiB more, "
                f"{writer.outcomes.count} records, "
                f"longest time without an acknowledgement {writer.longest_gap_s:.2f} s"
            )
        assert not noise.leaks
    assert process.returncode == 0, (tmp_path / "log").read_text()
    failed = [line for line in (tmp_path / "log").read_text().splitlines() if "_failed" in line]
    assert failed == [], "a bug showed in an answer"


def test_a_broker_that_keeps_its_frames_is_seen(tmp_path: Path) -> None:
    with one_broker(tmp_path, LEAKING) as (port, process):
        assert make_noise(port, process.pid, SECONDS).leaks
