"""A quorum of controllers with simulated brokers, and with as many partitions as are asked for.

Partitions that are to be there before anything is measured are written into the logs of stopped
controllers, the same bytes into each: what they would hold had they been created long ago.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from bench.controller_client import ControllerClient, ControllerProcesses, error_of
from bench.controller_requests import broker_uuid, heartbeat, registration, topics
from bench.peers_common import cpu_s
from kraftpy.clock import SystemClock
from kraftpy.limits import BATCH_RECORDS_MAX
from kraftpy.metadata_log import ClusterImage, MetadataRecord
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.metadata_log.reader import MetadataReader
from kraftpy.metadata_log.records import PartitionRecord, TopicRecord
from kraftpy.quorum.raft.quorum_state import FILE_NAME as QUORUM_STATE_FILE
from kraftpy.storage.file_layer import OsFiles
from kraftpy.types import BrokerId, TopicId, Uuid
from kraftpy.wire import apis

REPLICAS = 3
PARTITIONS_PER_TOPIC = 10
QUIET_S = 1.0
QUIET_CPU_S = 0.2
PATIENCE_S = 600.0


class BenchCluster:
    """Three controllers in a directory. Close it."""

    def __init__(self, directory: str, brokers: int) -> None:
        os.makedirs(directory)
        # Sessions as long as that: these brokers send heartbeats only when they have news.
        self.processes = ControllerProcesses(directory, broker_session_timeout_ms=3_600_000)
        self.client = ControllerClient(self.processes.ports)
        self.broker_ids = list(range(101, 101 + brokers))
        self.epochs: dict[int, int] = {}

    async def start(self) -> None:
        """With brokers that are registered and unfenced."""
        self.processes.start()
        await self.processes.wait_for_leader()
        cluster_id = await self.client.cluster_id()
        for broker_id in self.broker_ids:
            asked = registration(broker_id, cluster_id)
            answer = check(await self.client.ask(apis.BROKER_REGISTRATION, asked))
            self.epochs[broker_id] = answer.broker_epoch
            await self.beat(broker_id)

    async def beat(self, broker_id: int, **changed: Any) -> Any:
        asked = heartbeat(broker_id, self.epochs[broker_id], **changed)
        return check(await self.client.ask(apis.BROKER_HEARTBEAT, asked))

    async def close(self) -> None:
        await self.client.close()
        self.processes.stop()

    def image(self) -> ClusterImage:
        """As the log of the controller that was asked last has it."""
        return MetadataReader(OsFiles(), self.processes.log_dir(self.client.node_id)).image_at(None)

    async def create_topic(self, name: str) -> None:
        asked = topics([name], partitions=1, replicas=1)
        check(await self.client.ask(apis.CREATE_TOPICS, asked))

    # -- partitions that were always there ----------------------------------------------------

    async def restart_with(self, partitions: int) -> None:
        """Stop, write topics with so many partitions into the logs, start, and be ready."""
        await self.client.close()
        self.processes.stop()
        ends = {n: self._end_of(n) for n in self.processes.node_ids}
        source = max(ends, key=lambda node_id: ends[node_id])
        self._append(source, partitions)
        for node_id in self.processes.node_ids:
            if node_id != source:
                self._copy_log(source, node_id)
        self.processes.start()
        await self.wait_until_quiet()

    def _end_of(self, node_id: int) -> tuple[int, int]:
        log = self._open(node_id)
        try:
            return log.load_image().epoch, log.log.end_offset
        finally:
            log.close()

    def _open(self, node_id: int) -> MetadataLog:
        config = MetadataLogConfig(flush_every_append=False)
        return MetadataLog(OsFiles(), self.processes.log_dir(node_id), config, SystemClock())

    def _append(self, node_id: int, partitions: int) -> None:
        log = self._open(node_id)
        try:
            epoch = log.load_image().epoch
            records = topic_records(partitions, self.broker_ids)
            while batch := list(islice(records, BATCH_RECORDS_MAX)):
                log.append(batch, epoch)
        finally:
            log.close()

    def _copy_log(self, source: int, target: int) -> None:
        """All but the vote, which is each node's own."""
        place = Path(self.processes.log_dir(target))
        for path in place.iterdir():
            if path.name != QUORUM_STATE_FILE:
                path.unlink()
        for path in Path(self.processes.log_dir(source)).iterdir():
            if path.name != QUORUM_STATE_FILE:
                shutil.copy(path, place)

    async def wait_until_quiet(self) -> None:
        """Everybody has replayed everything, and no snapshot is being written."""
        await self.client.ask(apis.CREATE_TOPICS, topics([], partitions=1, replicas=1))
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            before = self._cpu_s()
            await asyncio.sleep(QUIET_S)
            if self._cpu_s() - before < QUIET_CPU_S:
                return
        raise AssertionError(f"the controllers do not come to rest\n{self.processes.output()}")

    def _cpu_s(self) -> float:
        return sum(map(cpu_s, self.processes.pids))


def check(answer: Any) -> Any:
    """A benchmark that is refused measures nothing."""
    error = error_of(answer)
    if error is not ErrorCode.none:
        raise SystemExit(f"refused: {error.name}: {answer}")
    return answer


def topic_records(partitions: int, broker_ids: list[int]) -> Iterator[MetadataRecord]:
    """Topics whose partitions are led by all brokers in turn."""
    count = len(broker_ids)
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        topic_id = TopicId(Uuid(b"bench-tp" + number.to_bytes(8, "big")))
        yield TopicRecord(name=f"old-{number}", topic_id=topic_id)
        for partition_id in range(PARTITIONS_PER_TOPIC):
            first = number * PARTITIONS_PER_TOPIC + partition_id
            replicas = tuple(
                BrokerId(broker_ids[(first + each) % count]) for each in range(REPLICAS)
            )
            yield PartitionRecord(
                topic_id=topic_id,
                partition_id=partition_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(Uuid(broker_uuid(2, each).bytes) for each in replicas),
            )
