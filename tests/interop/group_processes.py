"""Groups of member processes, and what each of them said."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.e2e.group_storm import consumer_of
from tests.interop.clusters import QUIET, Served, wait_for
from tests.interop.test_client_java import program

PROGRAM = os.path.join(os.path.dirname(__file__), "group_member.py")
WAIT_S = 90.0
SESSION_MS = 6000
# A broker that has not heard yet that it coordinates a group, or no more; librdkafka's AdminClient
# asks nobody again.
MOVING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
Place = tuple[str, int, int]  # Topic, partition, offset.


def _program(kind: str) -> list[str]:
    if kind in ("java", "java_consumer"):
        return [*program("Groups"), "member" if kind == "java" else "consumer-member"]
    return [sys.executable, PROGRAM, kind]


class Member:
    """One process, whose lines a thread collects."""

    def __init__(self, kind: str, arguments: Iterable[str], session_ms: int = SESSION_MS) -> None:
        self.lines: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.process = subprocess.Popen(
            [*_program(kind), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "GROUP_MEMBER_SESSION_MS": str(session_ms)},
        )
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # One that was killed may have said half of it.
                self.lines.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors += self.process.stderr

    @property
    def places(self) -> list[Place]:
        return [(each["at"][0], each["at"][1], each["at"][2]) for each in self.said("at")]

    def said(self, what: str) -> list[dict[str, Any]]:
        return [each for each in tuple(self.lines) if what in each]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def leave(self) -> None:
        self.signal(signal.SIGTERM)
        assert self.end() == 0, "".join(self.errors)

    def end(self) -> int:
        code = self.process.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        return code


class Group:
    """Members that come and go, of one group on one cluster."""

    def __init__(
        self, served: Served, topic: str, strategy: str, kind: str, session_ms: int
    ) -> None:
        self.served = served
        self.session_ms = session_ms
        self.topic = topic
        self.name = served.topic("group")
        self.strategy = strategy
        self.kind = kind
        self.members: list[Member] = []
        self.admin = AdminClient({"bootstrap.servers": served.bootstrap, **QUIET})

    def start(self, count: int = 1, *, topic: str | None = None, instance: str = "") -> None:
        for _ in range(count):
            subject = topic or self.topic
            arguments = [self.served.bootstrap, self.name, subject, self.strategy]
            arguments += [instance] if instance else []
            self.members.append(Member(self.kind, arguments, self.session_ms))

    @property
    def processed(self) -> Counter[Place]:
        return Counter(place for member in self.members for place in member.places)

    def wait(self, what: str, reached: Any) -> None:
        try:
            wait_for(what, reached, WAIT_S)
        except AssertionError as error:
            said = "\n".join(
                f"{member.lines[-8:]} {''.join(member.errors)[-2000:]}" for member in self.members
            )
            raise AssertionError(f"{error}\n{said}") from None

    def wait_for_all(self, expected: set[Place]) -> None:
        self.wait("all records", lambda: expected <= set(self.processed))
        assert set(self.processed) == expected

    def wait_until_shared(self, count: int) -> None:
        """Until the coordinator has so many members, all of them with partitions."""

        def is_shared() -> bool:
            try:
                found = self.admin.describe_consumer_groups([self.name])[self.name].result()
            except KafkaException as error:
                if error.args[0].code() in MOVING:
                    return False
                raise
            assigned = [each for each in found.members if each.assignment.topic_partitions]
            return found.state.name == "STABLE" and len(assigned) == len(found.members) == count

        self.wait(f"{count} members", is_shared)

    def committed(self) -> dict[tuple[str, int], int]:
        """Of the topic. Read by a consumer that is no member: see `consumer_of` for why."""
        consumer = consumer_of(self.served.bootstrap, self.name)
        try:
            known = consumer.list_topics(self.topic, timeout=WAIT_S).topics[self.topic]
            asked = [TopicPartition(self.topic, each) for each in known.partitions]
            found = consumer.committed(asked, timeout=WAIT_S)
        finally:
            consumer.close()
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


@contextmanager
def group(
    served: Served, topic: str, strategy: str, kind: str, session_ms: int = SESSION_MS
) -> Iterator[Group]:
    made = Group(served, topic, strategy, kind, session_ms)
    try:
        yield made
    finally:
        for member in made.members:
            if member.process.poll() is None:
                member.process.kill()
            member.end()


def create_topic(served: Served, partitions: int, name: str = "grouped", replicas: int = 1) -> str:
    topic = served.topic(name)
    admin = AdminClient({"bootstrap.servers": served.bootstrap, **QUIET})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result()
    return topic


def grow_topic(served: Served, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": served.bootstrap, **QUIET})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()


def produce(served: Served, topic: str, partitions: Iterable[int], count: int) -> set[Place]:
    """So many records to each; where they are."""
    producer = Producer({"bootstrap.servers": served.bootstrap, **QUIET})
    places: set[Place] = set()

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        places.add((message.topic(), message.partition(), message.offset()))

    for partition in partitions:
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    return places


def through_every_size(members: Group, most: int) -> None:
    """One after the other comes, then goes but for the first; each size reads what it is sent. The
    topic has a partition for each."""
    expected: set[Place] = set()
    for size in range(1, most + 1):
        members.start()
        expected |= produce(members.served, members.topic, range(most), 5)
        members.wait_until_shared(size)
        members.wait_for_all(expected)
    for left in range(most - 1, 0, -1):
        members.members[left].leave()
        expected |= produce(members.served, members.topic, range(most), 5)
        members.wait_until_shared(left)
        members.wait_for_all(expected)
