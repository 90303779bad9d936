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
from typing import Any

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
NOISE_OF_MEMORY = 24 << 20  # What an allocator keeps, whatever comes.
# Whole ones of these would change the cluster rather than be refused; they are only sent broken.
CHANGING = frozenset({19, 20, 21, 30, 31, 33, 37, 43, 44, 45, 49, 51, 57, 64})


def noise(rng: random.Random) -> bytes:
    """A frame: garbage, a request with a few bytes changed, or one that is merely senseless."""
    key = rng.choice(sorted(KNOWN))
    version = rng.randint(KNOWN[key].min_version, KNOWN[key].max_version)
    kind = rng.random()
    if kind < 0.15:
        garbage = rng.randbytes(rng.randrange(1, 200))
        return garbage if kind < 0.05 else struct.pack(">i", len(garbage)) + garbage
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
            sock.send(noise(self._rng))  # Whatever does not fit is half a frame: all the better.
            self.frames += 1
            with suppress(BlockingIOError):
                if self._rng.random() < 0.5 and not sock.recv(1 << 16):
                    return


@contextmanager
def one_broker(directory: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    (port,) = free_ports(1)
    command = [
        *(sys.executable, "-c", PROGRAM, "dev", "--listen", f"127.0.0.1:{port}"),
        *("--data-dir", str(directory / "data"), "--set", "auto.create.topics.enable=false"),
    ]
    with open(directory / "log", "wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=out
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
        memory = psutil.Process(process.pid).memory_info
        attack(port, SECONDS / 2, seed=1)
        before = memory().rss
        frames = attack(port, SECONDS, seed=100)
        growth = memory().rss - before
        writer.stop()
        assert process.poll() is None, (tmp_path / "log").read_text()
        check(writer.outcomes, read_all(bootstrap, "good", 1))
        assert writer.outcomes.count > 20
        assert writer.producers == 1
        assert writer.outcomes.unknown == set()
        assert frames > 100
        with capsys.disabled():
            print(  # noqa: T201
                f"\n{frames} frames, {growth >> 10} KiB more, {writer.outcomes.count} records, "
                f"longest time without an acknowledgement {writer.longest_gap_s:.2f} s"
            )
        assert growth < NOISE_OF_MEMORY + GROWTH_BYTES_PER_FRAME * frames
    assert process.returncode == 0, (tmp_path / "log").read_text()
    failed = [line for line in (tmp_path / "log").read_text().splitlines() if "_failed" in line]
    assert failed == [], "a bug showed in an answer"
