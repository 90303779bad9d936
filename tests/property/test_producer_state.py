"""With idempotent producers every record is in the log once and in order, whatever is sent again.

Method: producers with up to five batches in flight, as clients have, over a connection that breaks:
requests and answers are lost, and what is not answered is sent again, in order. The partition's
state is saved, lost and rebuilt from a snapshot and the log's tail, or from all of the log. The
log, and what was answered, are compared with what the producers meant.

PROPERTY_EXAMPLES is how many lives are tried.
"""

import os
import random
from collections import deque
from itertools import pairwise

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.broker import producer_state as module
from kraftpy.broker.producer_state import ProducedBatch, ProducerStates, plan_rebuild
from kraftpy.storage.record_batch import BatchHeader

LIVES = int(os.environ.get("PROPERTY_EXAMPLES", "500"))
PLANTED_LIVES_MAX = 2_000
STEPS = 120
SEQUENCES = 2**31


class Client:
    """One producer: batches that are not answered yet, oldest first, and how many were sent."""

    def __init__(self, producer_id: int, rng: random.Random) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        # Some begin where numbers end.
        self.sequence = rng.choice([0, SEQUENCES - 3])
        self.unanswered: deque[BatchHeader] = deque()
        self.sent = 0

    def make(self, records: int) -> None:
        self.unanswered.append(
            BatchHeader(
                0, 100, 0, 2, 0, 0, records - 1, 1, 1,
                self.producer_id, self.epoch, self.sequence, records,
            )
        )  # fmt: skip
        self.sequence = (self.sequence + records) % SEQUENCES


class Partition:
    """A log of headers with its producer state."""

    def __init__(self) -> None:
        self.log: list[BatchHeader] = []
        self.states = ProducerStates()
        self.snapshots: dict[int, bytes] = {}

    def produce(self, batch: BatchHeader) -> int:
        found = self.states.check(batch)
        if isinstance(found, ProducedBatch):
            return found.base_offset
        assert found is ErrorCode.none, f"{batch} was refused: {found}"
        placed = batch._replace(base_offset=self.states.end_offset)
        self.log.append(placed)
        self.states.append(placed)
        return placed.base_offset

    def rebuild(self) -> None:
        end = self.states.end_offset
        usable = plan_rebuild(self.snapshots, 0, end).snapshots
        states = ProducerStates()
        if usable:
            states = ProducerStates.from_snapshot(self.snapshots[usable[0]], usable[0])
        for each in self.log:
            if each.base_offset >= states.end_offset:
                states.append(each)
        self.states = states


def live(seed: int) -> None:
    rng = random.Random(seed)
    partition = Partition()
    clients = [Client(each, rng) for each in (7, 8)]
    for _ in range(STEPS):
        client = rng.choice(clients)
        step = rng.random()
        if step < 0.4 and len(client.unanswered) < 5:
            client.make(rng.randint(1, 3))
        elif step < 0.7 and client.sent < len(client.unanswered):
            answer(partition, client, client.unanswered[client.sent], rng)
        elif step < 0.8:
            client.sent = 0  # The connection broke: everything unanswered goes again.
        elif step < 0.85:
            partition.snapshots[partition.states.end_offset] = partition.states.snapshot()
        elif step < 0.9 and all(len(each.unanswered) < 2 for each in clients):
            # A snapshot keeps one batch: with more under way, repetitions may be refused.
            partition.rebuild()
        elif step < 0.93 and not client.unanswered:
            client.epoch, client.sequence = client.epoch + 1, 0
    check(partition)


def answer(partition: Partition, client: Client, batch: BatchHeader, rng: random.Random) -> None:
    offset = partition.produce(batch)
    placed = next(each for each in partition.log if each.base_offset == offset)
    assert placed._replace(base_offset=0) == batch, "answered with another batch's offset"
    if client.sent == 0 and rng.random() < 0.6:
        client.unanswered.popleft()
    else:
        client.sent += 1  # Nothing after a lost answer is heard either.


def check(partition: Partition) -> None:
    for producer_id in (7, 8):
        batches = [each for each in partition.log if each.producer_id == producer_id]
        for earlier, later in pairwise(batches):
            if earlier.producer_epoch == later.producer_epoch:
                due = (earlier.base_sequence + earlier.record_count) % SEQUENCES
                assert later.base_sequence == due, "a record is there twice, or one is missing"
            else:
                assert later.base_sequence == 0


def test_every_record_is_there_once_and_in_order() -> None:
    for seed in range(LIVES):
        live(seed)


def fails() -> bool:
    for seed in range(PLANTED_LIVES_MAX):
        try:
            live(seed)
        except AssertionError:
            return True
    return False


def test_too_few_batches_that_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRODUCER_BATCHES_MAX", 4)
    assert fails()


def test_sequences_that_do_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEQUENCES", 2**32)
    assert fails()


def test_repetitions_that_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_check_sequence", lambda *_: ErrorCode.none)
    assert fails()


def test_a_snapshot_that_is_taken_for_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ProducerStates.from_snapshot.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        ProducerStates,
        "from_snapshot",
        classmethod(lambda cls, data, end: right(cls, data, end + 2)),
    )
    assert fails()
