"""Three etcd servers, driven by Put and Txn over gRPC.

gRPC is written by hand, as far as it takes: HTTP/2 frames (RFC 9113) whose header block never
changes, and protobuf messages that are made once. A general client costs several times as much
processor time for one request, and clients and servers share the machine.
"""

import asyncio
import os
import shutil
import struct
from typing import Any

from bench.peers_common import (
    ANSWER_TIMEOUT_S,
    BATCH_RECORDS,
    NODES,
    VALUE_BYTES,
    Channel,
    Client,
    NoCommit,
    System,
    open_channel,
)
from bench.quorum_processes import ServerProcesses, free_ports

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GO_AWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS = 0x4
_HEAD = 9
_WINDOW_MAX = 2**31 - 1
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_PUT, _TXN = "/etcdserverpb.KV/Put", "/etcdserverpb.KV/Txn"
_STATUS = "/etcdserverpb.Maintenance/Status"


class EtcdProcesses(ServerProcesses):
    """Defaults, but for names, places and ports."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, NODES)
        ports = free_ports(2 * len(NODES))
        self.ports = dict(zip(NODES, ports[: len(NODES)], strict=True))
        self._peer_ports = dict(zip(NODES, ports[len(NODES) :], strict=True))

    def command(self, node_id: int) -> list[str]:
        client = f"http://127.0.0.1:{self.ports[node_id]}"
        peer = f"http://127.0.0.1:{self._peer_ports[node_id]}"
        cluster = ",".join(f"n{n}=http://127.0.0.1:{port}" for n, port in self._peer_ports.items())
        return [
            *("etcd", "--name", f"n{node_id}", "--log-level", "error", "--logger", "zap"),
            *("--data-dir", os.path.join(self.directory, f"node-{node_id}")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
        ]


class Etcd(System):
    """etcd as Debian has it."""

    name = "etcd"
    processes: EtcdProcesses

    def __init__(self, directory: str) -> None:
        self.processes = EtcdProcesses(directory)

    @staticmethod
    def missing() -> str | None:
        if shutil.which("etcd"):
            return None
        return "install Debian's etcd-server (make bench-peers)"

    async def leader(self) -> int | None:
        for node_id in NODES:
            state = await self._status(node_id)
            if state is not None and state[0] == state[1]:
                return node_id
        return None

    async def is_whole(self) -> bool:
        states = [await self._status(node_id) for node_id in NODES]
        leaders = {state[1] for state in states if state is not None}
        applied = {state[2] for state in states if state is not None}
        return None not in states and len(leaders) == len(applied) == 1 and leaders != {0}

    async def _status(self, node_id: int) -> tuple[int, int, int] | None:
        """(its own id, the leader's id, how far it has applied the log)."""
        try:
            channel = await open_channel(GrpcChannel, self.processes.ports[node_id])
        except (OSError, TimeoutError):
            return None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                answer = fields(await channel.call(GrpcRequest(_STATUS, b"")))
        except (NoCommit, TimeoutError):
            return None
        finally:
            channel.close()
        header = fields(answer[1])
        return header.get(2, 0), answer.get(4, 0), answer.get(7, 0)

    async def connect(self, node_id: int, number: int) -> Client:
        channel = await open_channel(GrpcChannel, self.processes.ports[node_id])
        return EtcdClient(channel, number)


class EtcdClient(Client):
    """Put, and Txn of many puts."""

    def __init__(self, channel: "GrpcChannel", number: int) -> None:
        self._channel = channel
        puts = [put_request(number, key) for key in range(BATCH_RECORDS)]
        self._one = GrpcRequest(_PUT, puts[0])
        operations = b"".join(_bytes_field(2, _bytes_field(2, put)) for put in puts)
        self._many = GrpcRequest(_TXN, operations)

    async def commit(self) -> None:
        await self._channel.call(self._one)

    async def commit_batch(self) -> None:
        await self._channel.call(self._many)

    def close(self) -> None:
        self._channel.close()


def put_request(number: int, key: int) -> bytes:
    name = f"writer-{number}/key-{key}".encode()
    return _bytes_field(1, name) + _bytes_field(2, b"x" * VALUE_BYTES)


# --- gRPC -----------------------------------------------------------------------------------------


class GrpcRequest:
    """A call, whole but for the number of its stream."""

    def __init__(self, path: str, message: bytes) -> None:
        block = b"\x83\x86"  # :method POST, :scheme http, from HPACK's static table.
        block += b"\x04" + _text(path.encode()) + b"\x01" + _text(b"127.0.0.1")
        block += b"\x0f\x10" + _text(b"application/grpc")
        block += b"\x00" + _text(b"te") + _text(b"trailers")
        body = b"\0" + struct.pack(">I", len(message)) + message
        self._frames = bytearray(
            _frame(_HEADERS, _END_HEADERS, block) + _frame(_DATA, _END_STREAM, body)
        )
        self._second = _HEAD + len(block)

    def on_stream(self, stream: int) -> bytes:
        struct.pack_into(">I", self._frames, 5, stream)
        struct.pack_into(">I", self._frames, self._second + 5, stream)
        return bytes(self._frames)


class GrpcChannel(Channel):
    """One call at a time. A call that failed is answered without a message."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = 1
        self._message = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        settings = _frame(_SETTINGS, 0, struct.pack(">HI", 4, _WINDOW_MAX))
        window = _frame(_WINDOW, 0, struct.pack(">I", _WINDOW_MAX - 65535))
        self.send(_PREFACE + settings + window)

    def call(self, request: GrpcRequest) -> asyncio.Future[bytes]:
        """The bytes of the answer's message."""
        stream, self._stream = self._stream, self._stream + 2
        return self.ask(request.on_stream(stream))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= _HEAD:
            end = _HEAD + int.from_bytes(received[:3], "big")
            if len(received) < end:
                return
            kind, flags, payload = received[3], received[4], bytes(received[_HEAD:end])
            del received[:end]
            self._take(kind, flags, payload)

    def _take(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _DATA:
            self._message += payload
        elif kind == _HEADERS and flags & _END_STREAM:
            message, self._message = self._message, b""
            self.settle(message[5:] if message else NoCommit("the call failed"))
        elif kind == _SETTINGS and not flags & _ACK:
            self.send(_frame(_SETTINGS, _ACK, b""))
        elif kind == _PING and not flags & _ACK:
            self.send(_frame(_PING, _ACK, payload))
        elif kind in (_RST_STREAM, _GO_AWAY):
            self.settle(NoCommit("the server ended it"))
            self.close()


def _frame(kind: int, flags: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, 0) + payload


def _text(value: bytes) -> bytes:
    assert len(value) < 127
    return bytes((len(value),)) + value


# --- protobuf -------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _bytes_field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def fields(message: bytes) -> dict[int, Any]:
    """The fields of a message: numbers and bytes, the last of each."""
    found: dict[int, Any] = {}
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        value, at = _read_varint(message, at)
        if key & 7 == 2:
            found[key >> 3] = message[at : at + value]
            at += value
        elif key & 7 == 0:
            found[key >> 3] = value
        else:
            raise NoCommit(f"a field of kind {key & 7}")
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at
