"""Three ZooKeeper servers, driven by setData and multi in ZooKeeper's own protocol."""

import asyncio
import os
import shutil
import struct

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

JAR = "/usr/share/java/zookeeper.jar"
WRITERS_MAX = 64
_CREATE, _SET_DATA, _MULTI = 1, 5, 14
_SESSION_TIMEOUT_MS = 30_000
_REPLY = struct.Struct(">iqi")  # xid, zxid, error.
_CONFIG = """tickTime=2000
initLimit=10
syncLimit=5
dataDir={directory}
clientPort={port}
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
{servers}
"""
_LOG_CONFIG = """log4j.rootLogger=WARN, CONSOLE
log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender
log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout
log4j.appender.CONSOLE.layout.ConversionPattern=%d %p %c{1} %m%n
"""


class ZooKeeperProcesses(ServerProcesses):
    """The sample configuration's times; more connections from one address than it would allow."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, NODES)
        ports = free_ports(3 * len(NODES))
        self.ports = dict(zip(NODES, ports[:3], strict=True))
        peers = zip(NODES, ports[3:6], ports[6:], strict=True)
        servers = "\n".join(f"server.{n}=127.0.0.1:{one}:{two}" for n, one, two in peers)
        for node_id in NODES:
            place = os.path.join(directory, f"node-{node_id}")
            os.mkdir(place)
            config = _CONFIG.format(directory=place, port=self.ports[node_id], servers=servers)
            _write(os.path.join(place, "myid"), str(node_id))
            _write(os.path.join(directory, f"{node_id}.cfg"), config)
        _write(os.path.join(directory, "log4j.properties"), _LOG_CONFIG)

    def command(self, node_id: int) -> list[str]:
        return [
            *("java", "-Xmx1g", "-cp", f"{self.directory}:{JAR}"),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            os.path.join(self.directory, f"{node_id}.cfg"),
        ]


class ZooKeeper(System):
    """ZooKeeper as Debian has it."""

    name = "zookeeper"
    processes: ZooKeeperProcesses

    def __init__(self, directory: str) -> None:
        self.processes = ZooKeeperProcesses(directory)

    @staticmethod
    def missing() -> str | None:
        if shutil.which("java") and os.path.exists(JAR):
            return None
        return "install Debian's zookeeper, and Java for it (make bench-peers)"

    async def leader(self) -> int | None:
        for node_id in NODES:
            if (await self._state(node_id)).get("Mode") == "leader":
                return node_id
        return None

    async def is_whole(self) -> bool:
        states = [await self._state(node_id) for node_id in NODES]
        modes = sorted(state.get("Mode", "") for state in states)
        # The last transaction; a new leader's first one has not reached the others' state yet.
        done = {state.get("Zxid", "") for state in states}
        begun = {int(zxid, 16) for zxid in done if zxid} <= {0, 1 << 32}
        return modes == ["follower", "follower", "leader"] and (len(done) == 1 or begun)

    async def _state(self, node_id: int) -> dict[str, str]:
        """What `srvr` tells; nothing if it is not serving."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                port = self.processes.ports[node_id]
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(b"srvr")
                    text = (await reader.read(-1)).decode(errors="replace")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return {}
        pairs = (line.partition(": ") for line in text.splitlines())
        return {name: value for name, _, value in pairs}

    async def prepare(self) -> None:
        """Make the nodes that are set later."""
        leader = await self.wait_for_leader()
        channel = await open_session(self.processes.ports[leader])
        try:
            for number in range(WRITERS_MAX):
                paths = [path_of(number, key) for key in range(BATCH_RECORDS)]
                operations = [(_CREATE, create_request(path)) for path in paths]
                _check_multi(await channel.ask(multi_frame(operations)), _CREATE)
        finally:
            channel.close()

    async def connect(self, node_id: int, number: int) -> Client:
        channel = await open_session(self.processes.ports[node_id])
        return ZooKeeperClient(channel, number % WRITERS_MAX)


class ZooKeeperClient(Client):
    """setData, and multi of many."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel = channel
        sets = [set_request(path_of(number, key)) for key in range(BATCH_RECORDS)]
        self._one = _frame(_SET_DATA, sets[0])
        self._many = multi_frame([(_SET_DATA, request) for request in sets])

    async def commit(self) -> None:
        answer = await self._channel.ask(self._one)
        error = _REPLY.unpack_from(answer)[2]
        if error:
            raise NoCommit(f"error {error}")

    async def commit_batch(self) -> None:
        _check_multi(await self._channel.ask(self._many), _SET_DATA)

    def close(self) -> None:
        self._channel.close()


async def open_session(port: int) -> Channel:
    """A connection with a new session; to make one is a commit of its own."""
    channel: Channel = await open_channel(Channel, port)
    hello = struct.pack(">iqiqi", 0, 0, _SESSION_TIMEOUT_MS, 0, 16) + bytes(16) + b"\0"
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            answer = await channel.ask(struct.pack(">i", len(hello)) + hello)
        if struct.unpack_from(">iiq", answer)[2] == 0:
            raise NoCommit("no session")
    except BaseException:
        channel.close()
        raise
    return channel


def path_of(number: int, key: int) -> bytes:
    return f"/writer-{number}-key-{key}".encode()


def create_request(path: bytes) -> bytes:
    anyone = struct.pack(">ii", 1, 31) + _buffer(b"world") + _buffer(b"anyone")
    return _buffer(path) + _buffer(b"") + anyone + struct.pack(">i", 0)


def set_request(path: bytes) -> bytes:
    return _buffer(path) + _buffer(b"x" * VALUE_BYTES) + struct.pack(">i", -1)


def multi_frame(operations: list[tuple[int, bytes]]) -> bytes:
    body = b"".join(struct.pack(">i?i", kind, False, -1) + request for kind, request in operations)
    return _frame(_MULTI, body + struct.pack(">i?i", -1, True, -1))


def _frame(kind: int, request: bytes) -> bytes:
    return struct.pack(">iii", 8 + len(request), 1, kind) + request


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _check_multi(answer: bytes, kind: int) -> None:
    """A multi that failed has a result of kind -1 for each operation."""
    error = _REPLY.unpack_from(answer)[2]
    found = struct.unpack_from(">i", answer, _REPLY.size)[0] if not error else -1
    if found != kind:
        raise NoCommit(f"the multi failed with error {error}")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
