"""Clients of the group storm: committers that count upwards, and readers that never see less."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kraftpy.broker.groups.coordinator import name_hash

QUIET = {"log_level": 0}
CALL_S = 5.0


def consumer_of(bootstrap: str, group: str) -> Any:
    """One that is no member of its group.

    An AdminClient could read offsets, too, but librdkafka's (2.16) ends the process when a broker
    answers that it coordinates the group no more.
    """
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "socket.timeout.ms": 3000,
            "reconnect.backoff.max.ms": 500,
            **QUIET,
        }
    )


@dataclass
class Ledger:
    """What one group was told of its one offset. `acked` only grows."""

    group: str
    attempted: int = -1
    acked: int = -1
    reads: int = 0
    problems: list[str] = field(default_factory=list)


class Committer:
    """Commits 0, 1, 2 ... to one partition of a topic, each until it is taken."""

    def __init__(self, bootstrap: str, topic: str, ledger: Ledger) -> None:
        self.ledger = ledger
        self._bootstrap = bootstrap
        self._partition = TopicPartition(topic, 0)
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._commit, daemon=True),
            threading.Thread(target=self._read, daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a client does not end"

    def _commit(self) -> None:
        ledger = self.ledger
        consumer = consumer_of(self._bootstrap, ledger.group)
        while not self._stopping.is_set():
            offset = ledger.attempted = ledger.acked + 1
            place = TopicPartition(self._partition.topic, 0, offset)
            try:
                (answer,) = consumer.commit(offsets=[place], asynchronous=False)
            except KafkaException:
                time.sleep(0.05)  # It may have been taken, or not: the same again.
                continue
            if answer.error is None:
                ledger.acked = offset
        consumer.close()

    def _read(self) -> None:
        ledger = self.ledger
        consumer = consumer_of(self._bootstrap, ledger.group)
        while not self._stopping.is_set():
            least = ledger.acked
            try:
                (answer,) = consumer.committed([self._partition], timeout=CALL_S)
            except KafkaException:
                time.sleep(0.05)
                continue
            most = ledger.attempted
            if answer.error is not None:
                continue
            found = max(answer.offset, -1)
            ledger.reads += 1
            if not least <= found <= most:
                when = datetime.now(UTC).time()
                ledger.problems.append(
                    f"{when}: {ledger.group} read {answer.offset}, known {least} to {most}"
                )
            time.sleep(0.01)
        consumer.close()


@dataclass
class Offsets:
    """What the members of a group were told that they committed, and what others read of it."""

    read: dict[tuple[str, int], int] = field(default_factory=dict)
    reads: int = 0
    problems: list[str] = field(default_factory=list)

    def judge(
        self,
        acked: Iterable[tuple[str, int, int]],
        found: Mapping[tuple[str, int], int],
        ends: Mapping[tuple[str, int], int],
    ) -> None:
        """A look at all offsets. `acked` was known before it, `ends` of the topic after it."""
        self.reads += 1
        least = dict(self.read)
        for topic, partition, offset in acked:
            place = (topic, partition)
            least[place] = max(least.get(place, 0), offset)
        for place, offset in least.items():
            if found.get(place, -1) < offset:
                self.problems.append(f"{place}: read {found.get(place)}, after {offset}")
        for place, offset in found.items():
            if offset > ends.get(place, 0):
                self.problems.append(f"{place}: read {offset} of {ends.get(place, 0)} records")
        self.read.update(found)


class Watcher:
    """Reads all offsets of a group with members, over and over."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        acked: Callable[[], Iterable[tuple[str, int, int]]],
        ends: Callable[[], Mapping[tuple[str, int], int]],
    ) -> None:
        self.offsets = Offsets()
        self._bootstrap = bootstrap
        self._group = group
        self._acked = acked
        self._ends = ends
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "a client does not end"

    def _watch(self) -> None:
        consumer = consumer_of(self._bootstrap, self._group)
        asked = [TopicPartition(*place) for place in self._ends()]
        while not self._stopping.wait(0.05):
            acked = list(self._acked())
            try:
                found = consumer.committed(asked, timeout=CALL_S)
            except KafkaException:
                continue
            if all(each.error is None for each in found):
                offsets = {
                    (each.topic, each.partition): each.offset for each in found if each.offset >= 0
                }
                self.offsets.judge(acked, offsets, self._ends())
        consumer.close()


def coordinator_of(admin: AdminClient, group: str) -> int | None:
    """The broker that leads the group's partition of __consumer_offsets, if one does."""
    try:
        topic = admin.list_topics("__consumer_offsets", timeout=5).topics["__consumer_offsets"]
    except KafkaException:
        return None
    if topic.error is not None or not topic.partitions:
        return None
    leader: int = topic.partitions[name_hash(group) % len(topic.partitions)].leader
    return leader if leader >= 0 else None
