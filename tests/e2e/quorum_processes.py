"""Controllers as real processes, a writer that talks to them over the wire, and what they left.

The writer notes what was acknowledged; nothing else counts. It asks whoever it believes to lead,
moves on when refused, and never repeats a batch whose outcome it does not know.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from bench.quorum_daemon import PRODUCE
from kraftpy.errors import KraftError
from kraftpy.metadata_log.batches import metadata_records, record_batch
from kraftpy.metadata_log.records import TOPIC_RESOURCE, ConfigRecord
from kraftpy.metadata_log.verification import verify_log
from kraftpy.network.client import WireClient
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.reader import LogReader
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


class Processes:
    """A quorum of processes in one directory."""

    def __init__(self, directory: str, size: int = 3, *more: str) -> None:
        self.directory = directory
        self.ports = dict(enumerate(free_ports(size), 1))
        self.voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in self.ports.items())
        self._more = more
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def data_dir(self, node_id: int) -> str:
        return os.path.join(self.directory, f"node-{node_id}")

    def log_dir(self, node_id: int) -> str:
        return os.path.join(self.data_dir(node_id), "__cluster_metadata-0")

    def start(self, *node_ids: int) -> None:
        """Start these, or all."""
        for node_id in node_ids or self.ports:
            with open(os.path.join(self.directory, f"{node_id}.log"), "ab") as out:
                self._running[node_id] = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "bench.quorum_daemon", "--node-id", str(node_id)),
                        *("--voters", self.voters, "--data-dir", self.data_dir(node_id)),
                        *("--log-format", "text", *self._more),
                    ],
                    stdout=out,
                    stderr=out,
                )

    def signal(self, node_id: int, number: signal.Signals) -> None:
        self._running[node_id].send_signal(number)

    def kill(self, *node_ids: int) -> None:
        """kill -9, and wait for the end."""
        for node_id in node_ids:
            self._running[node_id].kill()
        for node_id in node_ids:
            self._running.pop(node_id).wait()

    def stop(self) -> dict[int, int]:
        """SIGTERM to all; the exit codes."""
        for process in self._running.values():
            process.terminate()
        codes = {}
        for node_id, process in self._running.items():
            try:
                codes[node_id] = process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[node_id] = process.wait()
        self._running.clear()
        return codes

    def output(self) -> str:
        """What all of them have written."""
        found = []
        for node_id in self.ports:
            path = os.path.join(self.directory, f"{node_id}.log")
            with open(path, errors="replace") as file:
                found.append(f"--- node {node_id}\n{file.read()}")
        return "\n".join(found)

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


@dataclass(slots=True)
class Writer:
    """Writes numbers, one batch each."""

    processes: Processes
    name: str = "w"
    acked: dict[int, int] = field(default_factory=dict)  # Number to offset.
    unknown: set[int] = field(default_factory=set)
    refused: int = 0
    stopping: bool = False
    _next: int = 0

    async def run(self) -> None:
        node_ids = list(self.processes.ports)
        turn = 0
        while not self.stopping:
            node_id = node_ids[turn % len(node_ids)]
            turn += 1
            try:
                port = self.processes.ports[node_id]
                client = await WireClient.connect("127.0.0.1", port, timeout_s=TIMEOUT_S)
            except (KraftError, OSError):
                await asyncio.sleep(0.01)
                continue
            try:
                await self._write_to(client)
            finally:
                await client.close()

    async def _write_to(self, client: WireClient) -> None:
        """Write until this node refuses or goes."""
        while not self.stopping:
            number, self._next = self._next, self._next + 1
            try:
                answer = await client.ask(PRODUCE, self._request(number))
            except (KraftError, OSError, TimeoutError):
                self.unknown.add(number)
                return
            partition = answer.responses[0].partition_responses[0]
            if partition.error_code is ErrorCode.none:
                self.acked[number] = partition.base_offset
            elif partition.error_code is ErrorCode.not_leader_or_follower:
                self.refused += 1
                await asyncio.sleep(0.005)
                return
            else:
                self.unknown.add(number)
                return

    def _request(self, number: int) -> dict[str, Any]:
        record = ConfigRecord(
            resource_type=TOPIC_RESOURCE, resource_name=self.name, name=str(number), value="x"
        )
        batch = record_batch([record], base_offset=0, epoch=-1, timestamp_ms=0)
        partition = {"index": 0, "records": bytes(batch)}
        topic = {"name": METADATA_TOPIC, "partition_data": [partition]}
        return {
            "transactional_id": None,
            "acks": -1,
            "timeout": timedelta(seconds=5),
            "topic_data": [topic],
        }


def check_logs(processes: Processes, writer: Writer, end_offset: int) -> None:
    """Every acknowledged number is in every log, at its offset; the logs are the same bytes."""
    whole = []
    for node_id in processes.ports:
        directory = processes.log_dir(node_id)
        assert verify_log(OsFiles(), directory).problems == []
        found: dict[int, int] = {}
        data = bytearray()
        for batch in LogReader(OsFiles(), directory).batches():
            if batch.header.end_offset > end_offset:
                break
            data += batch.data
            records = metadata_records(batch.header, batch.data)
            for offset, record in enumerate(records, batch.header.base_offset):
                assert isinstance(record, ConfigRecord)
                number = int(record.name)
                assert number not in found, f"{number} is in the log twice"
                found[number] = offset
        missing = {n: at for n, at in writer.acked.items() if found.get(n) != at}
        assert not missing, f"node {node_id} lacks what was acknowledged: {missing}"
        assert found.keys() <= writer.acked.keys() | writer.unknown, "what was refused is there"
        whole.append(bytes(data))
    assert len(set(whole)) == 1, "the logs differ"
