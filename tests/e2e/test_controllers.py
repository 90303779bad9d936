"""Three controllers as an operator runs them, and brokers that speak to them over the wire.

The active controller is killed. Everything that was acknowledged is in the log of every survivor,
brokers that go on sending heartbeats are never fenced, and one that fell silent is, a whole session
after the new controller took over and not before.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from bench.controller_client import ControllerClient, ControllerProcesses, error_of
from bench.controller_requests import heartbeat, registration, topics
from kraftpy.clock import SystemClock
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.metadata_log.verification import verify_log
from kraftpy.storage.file_layer import OsFiles
from kraftpy.types import BrokerId
from kraftpy.wire import apis

SESSION_MS = 2000
BEAT_S = 0.2


class Broker:
    """Registers and sends heartbeats until it falls silent."""

    def __init__(self, processes: ControllerProcesses, broker_id: int) -> None:
        self.id = broker_id
        self.epoch = -1
        self.was_fenced = 0
        self.is_unfenced = asyncio.Event()
        self._client = ControllerClient(processes.ports)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        cluster_id = await self._client.cluster_id()
        answer = await self._client.ask(apis.BROKER_REGISTRATION, registration(self.id, cluster_id))
        assert answer.error_code is ErrorCode.none
        self.epoch = answer.broker_epoch
        self._task = asyncio.create_task(self._beat())
        await asyncio.wait_for(self.is_unfenced.wait(), 30)

    async def _beat(self) -> None:
        while True:
            answer = await self._client.ask(apis.BROKER_HEARTBEAT, heartbeat(self.id, self.epoch))
            if answer.error_code is ErrorCode.none and not answer.is_fenced:
                self.is_unfenced.set()
            elif self.is_unfenced.is_set() and answer.error_code is ErrorCode.none:
                self.was_fenced += 1
            await asyncio.sleep(BEAT_S)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._client.close()


def final_image(processes: ControllerProcesses, node_id: int) -> ClusterImage:
    """What a stopped node's log says."""
    log = MetadataLog(OsFiles(), processes.log_dir(node_id), MetadataLogConfig(), SystemClock())
    try:
        return log.load_image()
    finally:
        log.close()


async def create(client: ControllerClient, name: str) -> ErrorCode:
    values = topics([name], partitions=3, replicas=3)
    return error_of(await client.ask(apis.CREATE_TOPICS, values))


async def story(processes: ControllerProcesses, facts: dict[str, Any]) -> None:
    processes.start()
    await processes.wait_for_leader()
    brokers = [Broker(processes, broker_id) for broker_id in (101, 102, 103)]
    admin = ControllerClient(processes.ports)
    try:
        for broker in brokers:
            await broker.start()
        created: set[str] = set()
        maybe: set[str] = set()
        for number in range(40):
            if number == 20:
                await brokers[2].stop()  # It dies with the controller: KAFKA-18138.
                processes.kill(admin.node_id)
            name, before = f"topic-{number}", admin.retries
            outcome = await create(admin, name)
            if outcome is ErrorCode.none:
                created.add(name)
            elif outcome in (ErrorCode.request_timed_out, ErrorCode.topic_already_exists):
                assert admin.retries > before or outcome is ErrorCode.request_timed_out
                maybe.add(name)
        assert len(created) >= 38
        facts["created"], facts["maybe"] = created, maybe
        await wait_for_line(processes, r"event=broker_fenced .*broker=103")
        assert [broker.was_fenced for broker in brokers[:2]] == [0, 0]
    finally:
        for broker in brokers:
            await broker.stop()
        await admin.close()
    await processes.wait_for_leader()


async def wait_for_line(processes: ControllerProcesses, pattern: str) -> str:
    for _ in range(600):
        found = re.search(f".*{pattern}.*", processes.output())
        if found is not None:
            return found[0]
        await asyncio.sleep(0.05)
    raise AssertionError(f"no line {pattern}\n{processes.output()}")


def test_what_was_acknowledged_survives_the_active_controller(tmp_path: Path) -> None:
    processes = ControllerProcesses(str(tmp_path), broker_session_timeout_ms=SESSION_MS)
    facts: dict[str, Any] = {}
    try:
        asyncio.run(story(processes, facts))
        codes = processes.stop()
    finally:
        processes.stop()
    assert set(codes.values()) == {0}
    for node_id in codes:
        assert verify_log(OsFiles(), processes.log_dir(node_id)).problems == []
        image = final_image(processes, node_id)
        names = set(image.topic_ids)
        assert facts["created"] <= names <= facts["created"] | facts["maybe"]
        assert not image.brokers[BrokerId(101)].fenced or not image.brokers[BrokerId(102)].fenced
        assert image.brokers[BrokerId(103)].fenced
        assert set(image.controllers) == {1, 2, 3}
        leaders = {p.leader for t in image.topics.values() for p in t.partitions.values()}
        assert leaders <= {101, 102, -1}
    output = processes.output()
    assert output.count("event=controller_active") >= 2
    # Nodes that stop together cut each other off, which is the only thing to complain of.
    complaints = [line for line in output.splitlines() if " WARNING " in line]
    assert all("event=peer_refused" in line for line in complaints), complaints
    assert "ERROR" not in output
    assert "CRITICAL" not in output
