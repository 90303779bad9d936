"""A broker's server in a process of its own, over one log or over nothing: what bench.server asks.

`python -m bench.server_process KIND DIRECTORY` prints its port, and serves until its input ends.
KIND: `log` (one log takes all), `nothing` (records are looked at and dropped) or `bare`, which is
the measured prototype's design without any bound, deadline or second kind of request: what the
machine and the interpreter allow at best, for the same bytes over one log.
"""

import asyncio
import cProfile
import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import Final

from kraftpy.broker.api_table import served
from kraftpy.broker.data_plane import FetchAnswer, RespondToFetch, RespondToProduce
from kraftpy.broker.server import BrokerServer
from kraftpy.clock import SystemClock
from kraftpy.network import run
from kraftpy.network.listener import listening_sockets
from kraftpy.storage import Log, LogConfig, OsFiles, SegmentConfig
from kraftpy.storage.request import Request as LogRequest
from kraftpy.wire.apis import Request
from kraftpy.wire.fetch import FETCH, FetchedPartition, FetchRequest, fetch_response, read_fetch
from kraftpy.wire.produce import (
    PRODUCE,
    ProduceRequest,
    ProduceResult,
    produce_response,
    read_produce,
)

CONFIG: Final = LogConfig(
    segment=SegmentConfig(segment_bytes=2 * 1024**3 - 1), batch_bytes_max=4 * 1024**2
)
BARE_BUFFER_BYTES: Final = 4 * 1024**2


class OneLog:
    """A data plane whose every partition is the same log."""

    def __init__(self, directory: str) -> None:
        self.log = Log.open(OsFiles(), directory, CONFIG, SystemClock())
        self._pending: list[LogRequest] = []
        self._responds: list[RespondToProduce] = []

    def produce(self, request: ProduceRequest, respond: RespondToProduce) -> None:
        for partition in request.partitions:
            assert partition.records is not None
            self._pending.append(self.log.check(partition.records))
            self._responds.append(respond)

    def end_of_input(self) -> None:
        pending, self._pending = self._pending, []
        responds, self._responds = self._responds, []
        for respond, appended in zip(responds, self.log.append_all(pending, 0), strict=True):
            respond([ProduceResult(0, appended.base_offset)])

    def fetch(self, request: FetchRequest, respond: RespondToFetch) -> None:
        end = self.log.end_offset
        respond(
            FetchAnswer(
                [
                    FetchedPartition(
                        0, end, end, 0, self.log.read(each.fetch_offset, each.bytes_max)
                    )
                    for each in request.partitions
                ]
            )
        )


class Nothing(OneLog):
    """Takes records and forgets them: what the server itself costs."""

    def end_of_input(self) -> None:
        responds, self._responds = self._responds, []
        self._pending = []
        for respond in responds:
            respond([ProduceResult(0, 0)])


class Bare:
    """One connection, as plain as can be."""

    def __init__(self, sock: socket.socket, log: Log) -> None:
        self._sock = sock
        self._log = log
        self._view = memoryview(bytearray(BARE_BUFFER_BYTES))
        self._end = 0

    def on_readable(self) -> None:
        count = self._sock.recv_into(self._view[self._end :])
        if not count:
            asyncio.get_running_loop().remove_reader(self._sock.fileno())
            self._sock.close()
            return
        self._end += count
        at = 0
        produced: list[ProduceRequest] = []
        checked: list[LogRequest] = []
        while self._end - at >= 4:
            frame_end = at + 4 + struct.unpack_from(">i", self._view, at)[0]
            if frame_end > self._end:
                break
            frame = self._view[at + 4 : frame_end]
            at = frame_end
            if frame[1] == FETCH:
                self._fetch(read_fetch(frame))
                continue
            request = read_produce(frame)
            records = request.partitions[0].records
            assert records is not None
            produced.append(request)
            checked.append(self._log.check(records))
        appended = self._log.append_all(checked, 0)
        out = [
            produce_response(request, [ProduceResult(0, each.base_offset)])
            for request, each in zip(produced, appended, strict=True)
        ]
        if out:
            self._send_all(b"".join(out))
        self._view[: self._end - at] = self._view[at : self._end]
        self._end -= at

    def _fetch(self, request: FetchRequest) -> None:
        (wanted,) = request.partitions
        found = self._log.read(wanted.fetch_offset, wanted.bytes_max)
        head, _, *rest = fetch_response(request, [FetchedPartition(0, 0, 0, 0, found)])
        assert isinstance(head, bytes)
        self._send_all(head, socket.MSG_MORE)
        at = 0
        while at < found.count and found.file is not None:
            try:
                at += os.sendfile(
                    self._sock.fileno(), found.file.fileno(), found.position + at, found.count - at
                )
            except BlockingIOError:
                continue
        self._send_all(b"".join(each for each in rest if isinstance(each, bytes)))

    def _send_all(self, data: bytes, flags: int = 0) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._sock.send(view, flags) :]
            except BlockingIOError:
                continue


def start_bare(directory: str) -> int:
    loop = asyncio.get_running_loop()
    log = OneLog(directory).log
    (listening,) = listening_sockets("127.0.0.1", 0)

    def accept() -> None:
        sock, _ = listening.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.add_reader(sock.fileno(), Bare(sock, log).on_readable)

    loop.add_reader(listening.fileno(), accept)
    return int(listening.getsockname()[1])


async def no_handler(_request: Request, _address: str) -> bytearray | None:
    return None


def start_server(kind: Callable[[str], OneLog], directory: str) -> int:
    def fault(error: Exception) -> None:
        raise error

    server = BrokerServer(
        served([PRODUCE, FETCH]),
        kind(directory),
        no_handler,
        clock=SystemClock(),
        on_fault=fault,
    )
    server.start(listening_sockets("127.0.0.1", 0))
    return server.port


async def main(kind: str, directory: str) -> None:
    if kind == "bare":
        port = start_bare(directory)
    else:
        port = start_server({"log": OneLog, "nothing": Nothing}[kind], directory)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    await ended.wait()


if __name__ == "__main__":
    if profile := os.environ.get("PROFILE"):
        with cProfile.Profile() as profiler:
            run(main(sys.argv[1], sys.argv[2]))
        profiler.dump_stats(profile)
    else:
        run(main(sys.argv[1], sys.argv[2]))
