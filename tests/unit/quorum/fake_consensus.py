"""A consensus that does what a test says, and small APIs for a controller on top of it.

The log is a list of batches. Nothing is committed, proven or lost before the test asks for it.
"""

import random
from collections import deque
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.clock import ManualClock
from kraftpy.errors import FatalFault, InvalidBatch, KraftError, NotController, OutcomeUnknown
from kraftpy.metadata_log import EMPTY, ClusterImage, MetadataRecord
from kraftpy.metadata_log.batches import metadata_records
from kraftpy.metadata_log.loading import replay_batches
from kraftpy.metadata_log.records import TOPIC_RESOURCE, ConfigRecord
from kraftpy.quorum.consensus import Listener, QuorumState
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation, Values
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.quorum.controller import Controller
from kraftpy.storage.file_layer import Buffer
from kraftpy.storage.record_batch import BatchHeader, read_header
from kraftpy.types import BrokerId
from kraftpy.wire.apis import VersionRange
from tests.unit.control.makers import CLUSTER_ID

NODE_ID = 1
OTHER_ID = 2


class FakeConsensus:
    """Node 1 of three. Leads in `epoch` while `leader_id` says so."""

    def __init__(self) -> None:
        self.leader_id: int | None = None
        self.epoch = 0
        self.log: list[tuple[BatchHeader, bytes]] = []
        self.end_offset = 0
        self.committed = 0  # Batches.
        self.resigned = 0
        self.refuses_batches = False
        self._pending: deque[tuple[int, Future[int]]] = deque()
        self._barriers: list[Future[int]] = []

    # -- what the test says ---------------------------------------------------------------

    def win(self, epoch: int) -> None:
        """A batch of the new epoch is committed: everything before it is, too."""
        self.leader_id, self.epoch = NODE_ID, epoch
        self.committed = len(self.log)

    def commit(self, count: int | None = None) -> None:
        """So many batches, or all."""
        for _ in range(len(self._pending) if count is None else count):
            end_offset, future = self._pending.popleft()
            self.committed += 1
            future.set_result(end_offset)

    def prove(self) -> None:
        """A majority follows after all barriers so far."""
        barriers, self._barriers = self._barriers, []
        for future in barriers:
            future.set_result(self.end_offset)

    def lose(self, leader_id: int | None = OTHER_ID, *, kept: int = 0) -> None:
        """Another leads in the next epoch. It has `kept` of the batches in flight and commits
        them; the others are gone."""
        self.leader_id, self.epoch = leader_id, self.epoch + 1
        pending, self._pending = self._pending, deque()
        self.committed += kept
        del self.log[self.committed :]
        self.end_offset = self.log[-1][0].end_offset if self.log else 0
        for _, future in pending:
            future.set_exception(OutcomeUnknown("lost"))
        barriers, self._barriers = self._barriers, []
        for future in barriers:
            future.set_exception(NotController("lost"))

    @property
    def barriers(self) -> int:
        return len(self._barriers)

    def records(self) -> list[MetadataRecord]:
        """All that was written."""
        found: list[MetadataRecord] = []
        for header, data in self.log:
            found += metadata_records(header, memoryview(data))
        return found

    def image(self) -> ClusterImage:
        """Of what is committed."""
        batches = ((header, memoryview(data)) for header, data in self.log[: self.committed])
        return replay_batches(EMPTY, batches, 1 << 62)

    # -- Consensus ------------------------------------------------------------------------

    def start(self, listener: Listener) -> None:
        """The test tells the controller itself."""

    def propose(self, batch: Buffer, *, epoch: int, base_offset: int) -> Future[int]:
        future: Future[int] = Future()
        header = read_header(batch)
        if self.refuses_batches:
            future.set_exception(InvalidBatch("not like this"))
        elif (self.leader_id, self.epoch) != (NODE_ID, epoch) or base_offset != self.end_offset:
            future.set_exception(NotController("not from there"))
        else:
            assert (header.base_offset, header.leader_epoch) == (base_offset, epoch)
            self.log.append((header, bytes(batch)))
            self.end_offset = header.end_offset
            self._pending.append((header.end_offset, future))
        return future

    def read_barrier(self, *, epoch: int) -> Future[int]:
        future: Future[int] = Future()
        if (self.leader_id, self.epoch) == (NODE_ID, epoch):
            self._barriers.append(future)
        else:
            future.set_exception(NotController("not any more"))
        return future

    def resign(self) -> Future[None]:
        self.resigned += 1
        return Future()

    def offer_snapshot(self, image: ClusterImage) -> None:
        """None is needed."""

    def state(self) -> QuorumState:
        return QuorumState(
            node_id=NODE_ID,
            leader_id=self.leader_id,
            epoch=self.epoch,
            high_watermark=self.end_offset,
            log_start_offset=0,
            log_end_offset=self.end_offset,
            voters=(),
        )

    def close(self) -> None:
        """Nothing to close."""


# -- a subject with two APIs --------------------------------------------------------------


def config(name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name=name, value=value)


def value_of(image: ClusterImage, name: str) -> str | None:
    found = image.configs.get((TOPIC_RESOURCE, "t"))
    return None if found is None else found.get(name)


def decide_put(situation: Situation, message: dict[str, Any]) -> Decision:
    """Set names that are not set; the answer has the offset."""
    for name in message["names"]:
        if value_of(situation.image, name) is not None:
            raise Refused(ErrorCode.topic_already_exists, f"{name} is there")
    return Decision(
        records=[config(name, message.get("value", "x")) for name in message["names"]],
        response={"error_code": ErrorCode.none, "offset": situation.image.end_offset},
        own=message.get("own", False),
    )


def decide_get(situation: Situation, message: dict[str, Any]) -> Decision:
    value = value_of(situation.image, message["name"])
    return Decision(records=(), response={"error_code": ErrorCode.none, "value": value})


def decide_records(_situation: Situation, message: dict[str, Any]) -> Decision:
    return Decision(records=message["records"], response={"error_code": ErrorCode.none})


def refuse(_message: Any, error_code: ErrorCode, why: str | None) -> Values:
    return {"error_code": error_code, "why": why}


_ANY = VersionRange(0, 0)
PUT = ControlApi(_ANY, decide_put, refuse)
GET = ControlApi(_ANY, decide_get, refuse)
GLANCE = ControlApi(_ANY, decide_get, refuse, current=False)
WRITE = ControlApi(_ANY, decide_records, refuse)


class Desk:
    """A controller, its consensus and its clients."""

    def __init__(self, **options: Any) -> None:
        self.consensus = FakeConsensus()
        self.clock = ManualClock()
        self.faults: list[FatalFault] = []
        settings = ControllerSettings(
            cluster_id=CLUSTER_ID,
            voter_ids=(BrokerId(1), BrokerId(2), BrokerId(3)),
            metadata_max_idle_interval_ms=0,
        )
        known = {name: options.pop(name) for name in list(options) if hasattr(settings, name)}
        self.settings = replace(settings, **known)
        self.controller = Controller(
            node_id=NODE_ID,
            consensus=self.consensus,
            settings=self.settings,
            clock=self.clock,
            rng=random.Random(1),
            on_fault=self.faults.append,
            **options,
        )

    def lead(self, epoch: int = 1) -> None:
        """Win, and have done with what a new controller writes by itself."""
        self.win(epoch)
        self.consensus.commit()

    def win(self, epoch: int = 1) -> None:
        self.consensus.win(epoch)
        self.controller.lead(epoch, self.consensus.image())

    def ask(self, api: ControlApi, **message: Any) -> list[Values]:
        """The answer will be in the list; there is never more than one."""
        answers: list[Values] = []
        self.controller.submit(api, message, answers.append)
        return answers

    def put(self, *names: str, **more: Any) -> list[Values]:
        return self.ask(PUT, names=names, **more)

    def get(self, name: str, api: ControlApi = GET) -> list[Values]:
        return self.ask(api, name=name)

    def pass_time(self, ms: int) -> None:
        """Tick whenever it is due."""
        until = self.clock.monotonic_ms() + ms
        while (due := self.controller.next_due_ms()) is not None and due <= until:
            self.clock.advance(max(0, due - self.clock.monotonic_ms()))
            self.controller.tick(self.clock.monotonic_ms())
        self.clock.advance(until - self.clock.monotonic_ms())


def code(answers: list[Values]) -> ErrorCode:
    """Of the only answer."""
    assert len(answers) == 1
    found: ErrorCode = answers[0]["error_code"]
    return found


def raised(error: KraftError) -> Future[int]:
    future: Future[int] = Future()
    future.set_exception(error)
    return future
