"""What the broker's server costs, beside a server with none of its bounds: `make bench-server`.

A client replays the same request again and again, as many at a time as the server takes, over one
connection, and the processor time of the server's process is read around it. The servers take turns
for a few rounds, and the best round of each counts: others on the machine then hit all alike.
"""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from bench.log import batch_of
from kraftpy.storage import Record, build_batch
from kraftpy.wire.apis import request_type
from kraftpy.wire.codec import build
from kraftpy.wire.fetch import FETCH
from kraftpy.wire.headers import request_frame
from kraftpy.wire.produce import PRODUCE

MEGABYTE: Final = 1_000_000
BLOB_BYTES: Final = 256 * 1024
KINDS: Final = ("log", "nothing", "bare")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Requests of one kind; `pipelined` if more are sent than were answered."""

    name: str
    frame: bytes
    count: int
    pipelined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The best round of one server at one case."""

    case: str
    server: str
    requests_per_s: float
    mb_per_s: float
    cpu_s_per_gb: float
    cpu_us_per_request: float


def produce_frame(records: bytes, version: int = 9) -> bytes:
    partition = {"index": 0, "records": records}
    values = {
        "transactional_id": None,
        "acks": 1,
        "timeout": timedelta(seconds=30),
        "topic_data": [{"name": "b1", "partition_data": [partition]}],
    }
    message: Any = build(request_type(PRODUCE, version), values)
    return bytes(request_frame(message, PRODUCE, version, 1, "bench"))


def fetch_frame(bytes_max: int) -> bytes:
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": bytes_max,
    }
    values = {
        "replica_id": -1,
        "max_wait": timedelta(0),
        "min_bytes": 1,
        "max_bytes": bytes_max,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "b1", "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    message: Any = build(request_type(FETCH, 12), values)
    return bytes(request_frame(message, FETCH, 12, 1, "bench"))


def cases(megabytes: int) -> list[Case]:
    one = bytes(build_batch([Record(offset=0, timestamp=0, key=None, value=bytes(100))]))
    total = megabytes * MEGABYTE
    return [
        Case(
            name="produce, 1 record of 100 B",
            frame=produce_frame(one),
            count=max(total // 4000, 100),
            pipelined=True,
        ),
        Case(
            name="produce, 16 KB batches",
            frame=produce_frame(bytes(batch_of(16_000))),
            count=max(total // 16_000, 20),
            pipelined=True,
        ),
        Case(
            name="produce, 1 MB batches",
            frame=produce_frame(bytes(batch_of(1_000_000))),
            count=max(total // 1_000_000, 5),
            pipelined=True,
        ),
        Case(
            name="fetch, 1 MB",
            frame=fetch_frame(1024 * 1024),
            count=max(2 * total // 1_000_000, 5),
            pipelined=False,
        ),
    ]


# -- the client -------------------------------------------------------------------------------


def exactly(sock: socket.socket, count: int, room: memoryview) -> None:
    while count:
        got = sock.recv_into(room[: min(count, len(room))])
        if not got:
            raise SystemExit("the server closed the connection")
        count -= got


def one_answer(sock: socket.socket, room: memoryview) -> int:
    exactly(sock, 4, room)
    (size,) = struct.unpack_from(">i", room)
    exactly(sock, size, room)
    return int(size) + 4


def replay(sock: socket.socket, case: Case) -> int:
    """Send the case's requests and take the answers; the bytes that were moved."""
    room = memoryview(bytearray(1024 * 1024))
    if not case.pipelined:
        moved = 0
        for _ in range(case.count):
            sock.sendall(case.frame)
            moved += one_answer(sock, room)
        return moved
    at_once = max(1, BLOB_BYTES // len(case.frame))
    blob = case.frame * at_once

    def send() -> None:
        for _ in range(case.count // at_once):
            sock.sendall(blob)
        sock.sendall(case.frame * (case.count % at_once))

    sender = threading.Thread(target=send)
    sender.start()
    size = one_answer(sock, room)
    exactly(sock, size * (case.count - 1), room)  # They are all of one size.
    sender.join()
    return case.count * len(case.frame)


def processor_s(pid: int) -> float:
    """What the process has used so far; it has one thread."""
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e9


@contextmanager
def serving(kind: str) -> Iterator[tuple[int, int]]:
    """(port, process id) of a server that has some records."""
    directory = tempfile.mkdtemp(prefix="bench-server-")
    command = [sys.executable, "-m", "bench.server_process", kind, directory]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
        shutil.rmtree(directory)


def measure_at(port: int, pid: int, server: str, case: Case) -> Result:
    """One round, at a server that runs already."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        warm = Case(name="", frame=case.frame, count=max(case.count // 20, 3), pipelined=True)
        if not case.pipelined:
            fill = produce_frame(bytes(batch_of(1_000_000)))
            warm = Case(name="", frame=fill, count=3, pipelined=True)
        replay(sock, warm)
        cpu_s, wall = processor_s(pid), time.perf_counter()
        moved = replay(sock, case)
        cpu_s, wall = processor_s(pid) - cpu_s, time.perf_counter() - wall
    return Result(
        case=case.name,
        server=server,
        requests_per_s=case.count / wall,
        mb_per_s=moved / wall / MEGABYTE,
        cpu_s_per_gb=cpu_s / (moved / 1e9),
        cpu_us_per_request=cpu_s / case.count * 1e6,
    )


def best(rounds: int, case: Case, on_round: Callable[[], None]) -> list[Result]:
    results: dict[str, Result] = {}
    for _ in range(rounds):
        for kind in KINDS:
            if kind == "nothing" and not case.pipelined:
                continue  # It has nothing to fetch.
            with serving(kind) as (port, pid):
                found = measure_at(port, pid, kind, case)
            if kind not in results or found.cpu_s_per_gb < results[kind].cpu_s_per_gb:
                results[kind] = found
        on_round()
    return list(results.values())


@click.command()
@click.option("--megabytes", default=400, help="How much of each kind.")
@click.option("--rounds", default=3, help="Of each; the best one counts.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def main(megabytes: int, rounds: int, as_json: bool) -> None:
    """Measure the broker's server."""
    console = Console(stderr=True)
    results: list[Result] = []
    for case in cases(megabytes):
        results += best(rounds, case, lambda: console.print(".", end=""))
    console.print()
    if as_json:
        click.echo(json.dumps([asdict(result) for result in results], indent=2))
        return
    table = Table(title=f"The broker's server, best of {rounds}, {os.cpu_count()} processors")
    for heading in ("", "server", "requests/s", "MB/s", "CPU-s/GB", "CPU us/request"):
        table.add_column(heading, justify="left" if heading in ("", "server") else "right")
    for result in results:
        table.add_row(
            result.case,
            result.server,
            f"{result.requests_per_s:,.0f}",
            f"{result.mb_per_s:,.0f}",
            f"{result.cpu_s_per_gb:.2f}",
            f"{result.cpu_us_per_request:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
