"""A librdkafka producer that numbers what it writes, and the judgement of what is there at the end.

The writer owns one idempotent producer with many messages in flight and asks for acks=all. It notes
the order in which numbers were handed over, which of them were acknowledged and the longest time
without an acknowledgement. A number whose outcome is not known may be in the topic or not; one that
was acknowledged must be there, once, in the order of its partition.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

OUTSTANDING_MAX = 200
PER_TURN = 5
TURN_S = 0.01
READ_S = 120.0
QUIET = {"log_level": 0}


@dataclass(slots=True)
class Outcomes:
    """What a client knows of what it wrote, by partition, in the order of sending."""

    acked: dict[int, list[int]]
    unknown: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        return sum(map(len, self.acked.values()))


class Writer:
    """Writes until it is told to stop, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.outcomes = Outcomes({each: [] for each in range(partitions)})
        self.longest_gap_s = 0.0
        self.producers = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._number = 0
        self._outstanding = 0
        self._last_ack: float | None = None
        self._failed = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wait until the outcome of everything is known, as far as it ever will be."""
        self._stopping.set()
        self._thread.join(READ_S)
        assert not self._thread.is_alive(), "the producer does not end"

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._failed = False
            self.producers += 1
            self._write(self._open())

    def _open(self) -> Any:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 60_000,
                "socket.timeout.ms": 10_000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.fast.interval.ms": 100,
                **QUIET,
            }
        )

    def _write(self, producer: Any) -> None:
        """Until the end, or until this producer has lost its place: then comes another."""
        while not self._stopping.is_set() and not self._failed:
            if self._outstanding <= OUTSTANDING_MAX - PER_TURN:
                for _ in range(PER_TURN):
                    self._send(producer)
            producer.poll(TURN_S)
        producer.flush(READ_S / 2)

    def _send(self, producer: Any) -> None:
        self._number += 1
        number, partition = self._number, self._number % self._partitions
        self.outcomes.unknown.add(number)
        self._outstanding += 1

        def told(error: Any, _message: Any) -> None:
            self._outstanding -= 1
            if error is not None:
                self._failed = True
                return
            self.outcomes.unknown.discard(number)
            self.outcomes.acked[partition].append(number)
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - (self._last_ack or now))
            self._last_ack = now

        try:
            producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=told)
        except KafkaException:
            self._outstanding -= 1
            self._failed = True


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[int, list[int]]:
    """Everything that is in the topic, by partition, in its order."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, **QUIET}
    )
    try:
        places = [TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)]
        ends = [consumer.get_watermark_offsets(each, timeout=READ_S)[1] for each in places]
        consumer.assign(places)
        found: dict[int, list[int]] = {each: [] for each in range(partitions)}
        deadline = time.monotonic() + READ_S
        while sum(map(len, found.values())) < sum(ends):
            assert time.monotonic() < deadline, f"read {found.keys()} of {ends}"
            messages: list[Any] = consumer.consume(1000, 1.0)
            for message in messages:
                assert message.error() is None, message.error()
                found[message.partition()].append(int(message.value()))
        return found
    finally:
        consumer.close()


def check(outcomes: Outcomes, found: Mapping[int, Sequence[int]]) -> None:
    """Nothing acknowledged is lost, doubled or out of order, and nothing is from elsewhere."""
    for partition, numbers in found.items():
        acked = outcomes.acked[partition]
        assert len(set(numbers)) == len(numbers), "a record is there twice"
        assert set(acked) <= set(numbers), f"lost: {sorted(set(acked) - set(numbers))[:10]}"
        assert set(numbers) <= set(acked) | outcomes.unknown, "nobody wrote this"
        known = set(acked)
        kept = [number for number in numbers if number in known]
        assert kept == sorted(kept), "the order of a partition is not that of sending"
