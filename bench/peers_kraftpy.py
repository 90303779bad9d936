"""Our three controllers, driven by Produce requests on `__cluster_metadata`."""

import struct
from collections.abc import Sequence

from bench.peers_common import (
    BATCH_RECORDS,
    NODES,
    VALUE_BYTES,
    Channel,
    Client,
    NoCommit,
    System,
    open_channel,
)
from bench.quorum_daemon import PRODUCE
from bench.quorum_processes import METADATA_TOPIC, Processes
from kraftpy.errors import KraftError
from kraftpy.metadata_log.batches import record_batch
from kraftpy.metadata_log.records import TOPIC_RESOURCE, ConfigRecord

_VERSION = 7
_ERROR_CODE = struct.Struct(">h")
# Correlation id, one topic with its name, one partition with its index: then the error code.
_ERROR_AT = 4 + 4 + 2 + len(METADATA_TOPIC) + 4 + 4


class Kraftpy(System):
    """Default settings, as `kraftpy quorum` has them."""

    name = "kraftpy"
    processes: Processes

    def __init__(self, directory: str, *more: str) -> None:
        self.processes = Processes(directory, len(NODES), *more)

    @staticmethod
    def missing() -> str | None:
        return None

    async def leader(self) -> int | None:
        return await self.processes.leader()

    async def is_whole(self) -> bool:
        leader = await self.processes.leader()
        if leader is None:
            return False
        try:
            state = await self.processes.status(leader)
        except (KraftError, OSError, TimeoutError):
            return False
        ends = {voter.log_end_offset for voter in state.current_voters}
        return ends == {state.high_watermark}

    async def connect(self, node_id: int, number: int) -> Client:
        channel = await open_channel(Channel, self.processes.ports[node_id])
        return KraftpyClient(channel, number)


class KraftpyClient(Client):
    """Produce, version 7."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel = channel
        self._one = produce_frame(batch_of(number, 1))
        self._many = produce_frame(batch_of(number, BATCH_RECORDS))

    async def commit(self) -> None:
        _check(await self._channel.ask(self._one))

    async def commit_batch(self) -> None:
        _check(await self._channel.ask(self._many))

    def close(self) -> None:
        self._channel.close()


def batch_of(number: int, count: int) -> bytes:
    """A batch of so many records; the writer's number is in their names."""
    records: Sequence[ConfigRecord] = [
        ConfigRecord(
            resource_type=TOPIC_RESOURCE,
            resource_name=f"writer-{number}",
            name=f"key-{key}",
            value="x" * VALUE_BYTES,
        )
        for key in range(count)
    ]
    return bytes(record_batch(records, base_offset=0, epoch=-1, timestamp_ms=0))


def produce_frame(batch: bytes) -> bytes:
    """The request; its correlation id is always 0, as one request at a time is in flight."""
    topic = METADATA_TOPIC.encode()
    client_id = b"bench"
    message = struct.pack(">hhih", PRODUCE, _VERSION, 0, len(client_id)) + client_id
    message += struct.pack(">hhii", -1, -1, 10_000, 1)  # No transaction, all acks, timeout, topics.
    message += struct.pack(">h", len(topic)) + topic
    message += struct.pack(">iii", 1, 0, len(batch)) + batch
    return struct.pack(">i", len(message)) + message


def _check(answer: bytes) -> None:
    (error_code,) = _ERROR_CODE.unpack_from(answer, _ERROR_AT)
    if error_code:
        raise NoCommit(f"error {error_code}")
