"""Three servers of one kind as processes on loopback ports, and our controllers among them.

Every process is ended by its id. Nothing is waited for without a bound.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.errors import KraftError
from kraftpy.network.client import WireClient
from kraftpy.wire.apis import DESCRIBE_QUORUM

TIMEOUT_S = 5.0
METADATA_TOPIC = "__cluster_metadata"


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


class ServerProcesses:
    """Servers, by number, that are started, killed and stopped; all they leave is one directory."""

    def __init__(self, directory: str, node_ids: range) -> None:
        self.directory = directory
        self.node_ids = node_ids
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def command(self, node_id: int) -> list[str]:
        """What runs this one, without a shell."""
        raise NotImplementedError

    def start(self, *node_ids: int) -> None:
        """Start these, or all."""
        for node_id in node_ids or self.node_ids:
            with open(os.path.join(self.directory, f"{node_id}.log"), "ab") as out:
                self._running[node_id] = subprocess.Popen(
                    self.command(node_id), stdin=subprocess.DEVNULL, stdout=out, stderr=out
                )

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._running.values()]

    @property
    def ended(self) -> list[int]:
        """Who was started, and is not running though nobody stopped it."""
        return [n for n, process in self._running.items() if process.poll() is not None]

    def signal(self, node_id: int, number: signal.Signals) -> None:
        self._running[node_id].send_signal(number)

    def kill(self, *node_ids: int) -> None:
        """kill -9, and wait for the end."""
        for node_id in node_ids:
            self._running[node_id].kill()
        for node_id in node_ids:
            self._running.pop(node_id).wait()

    def stop(self, *node_ids: int) -> dict[int, int]:
        """SIGTERM to these, or to all; the exit codes."""
        stopping = {n: p for n, p in self._running.items() if not node_ids or n in node_ids}
        for process in stopping.values():
            process.terminate()
        codes = {}
        for node_id, process in stopping.items():
            try:
                codes[node_id] = process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[node_id] = process.wait()
            del self._running[node_id]
        return codes

    def output(self) -> str:
        """What all of them have written."""
        found = []
        for node_id in self.node_ids:
            path = os.path.join(self.directory, f"{node_id}.log")
            with open(path, errors="replace") as file:
                found.append(f"--- node {node_id}\n{file.read()}")
        return "\n".join(found)


class Processes(ServerProcesses):
    """A quorum of our controllers, which also take Produce."""

    def __init__(self, directory: str, size: int = 3, *more: str) -> None:
        super().__init__(directory, range(1, size + 1))
        self.ports = dict(zip(self.node_ids, free_ports(size), strict=True))
        self.voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in self.ports.items())
        self._more = more

    def data_dir(self, node_id: int) -> str:
        return os.path.join(self.directory, f"node-{node_id}")

    def log_dir(self, node_id: int) -> str:
        return os.path.join(self.data_dir(node_id), "__cluster_metadata-0")

    def command(self, node_id: int) -> list[str]:
        return [
            *(sys.executable, "-m", "bench.quorum_daemon", "--node-id", str(node_id)),
            *("--voters", self.voters, "--data-dir", self.data_dir(node_id)),
            *("--log-format", "text", *self._more),
        ]

    # -- asking -------------------------------------------------------------------------------

    async def status(self, node_id: int) -> Any:
        """One node's answer to DescribeQuorum for the metadata log; KraftError if there is none."""
        client = await WireClient.connect("127.0.0.1", self.ports[node_id], timeout_s=TIMEOUT_S)
        try:
            partition = {"partition_index": 0}
            topics = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
            answer = await client.ask(DESCRIBE_QUORUM, {"topics": topics})
            return answer.topics[0].partitions[0]
        finally:
            await client.close()

    async def leader(self) -> int | None:
        """The node that says that it leads, in the latest epoch."""
        found = []
        for node_id in self._running:
            with suppress(KraftError, OSError, TimeoutError):
                state = await self.status(node_id)
                if state.error_code is ErrorCode.none and state.leader_id == node_id:
                    found.append((state.leader_epoch, node_id))
        return max(found)[1] if found else None

    async def wait_for_leader(self) -> int:
        for _ in range(600):
            leader = await self.leader()
            if leader is not None:
                return leader
            await asyncio.sleep(0.05)
        raise AssertionError(f"no leader in 30 s\n{self.output()}")

    async def wait_until_equal(self) -> int:
        """Wait until every voter has all of the log; its end offset."""
        for _ in range(600):
            leader = await self.leader()
            if leader is not None:
                state = await self.status(leader)
                ends = {voter.log_end_offset for voter in state.current_voters}
                if ends == {state.high_watermark}:
                    return int(state.high_watermark)
            await asyncio.sleep(0.05)
        raise AssertionError(f"the voters did not catch up in 30 s\n{self.output()}")
