"""A writer that talks to controllers over the wire, and what they left on disk.

The writer notes what was acknowledged; nothing else counts. It asks whoever it believes to lead,
moves on when refused, and never repeats a batch whose outcome it does not know.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from bench.quorum_daemon import PRODUCE
from bench.quorum_processes import METADATA_TOPIC, TIMEOUT_S, Processes
from kraftpy.errors import KraftError
from kraftpy.metadata_log.batches import metadata_records, record_batch
from kraftpy.metadata_log.records import TOPIC_RESOURCE, ConfigRecord
from kraftpy.metadata_log.verification import verify_log
from kraftpy.network.client import WireClient
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.reader import LogReader


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
