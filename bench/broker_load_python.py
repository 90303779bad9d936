"""broker_load.c without a compiler: the same words, the same JSON, through confluent-kafka.

An interpreter between the load and the client costs about as much as the client itself, so figures
from here are lower for everyone, and only their ratios are worth something.
"""

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

DEADLINE_S = 120.0
CONSUME_AT_ONCE = 10_000


class Run:
    """One run, as its words say."""

    def __init__(self, words: list[str]) -> None:
        self.mode, bootstrap, self.topic, size, count, gap_us = words[:6]
        self.size, self.count, self.gap_s = int(size), int(count), int(gap_us) / 1e6
        self.settings: dict[str, Any] = dict(word.split("=", 1) for word in words[6:])
        if bootstrap != "-":
            self.settings["bootstrap.servers"] = bootstrap
        self.records = self.errors = self.gaps = self.bytes = 0
        self.taken: list[float] = []
        self.deadline = time.monotonic() + DEADLINE_S
        self.started = time.monotonic()

    def go(self) -> dict[str, float]:
        """What broker_load.c prints."""
        cpu_s = time.process_time()
        if self.mode == "consume":
            self._consume()
        else:
            self._produce()
            self.bytes = self.records * self.size
        seconds = time.monotonic() - self.started
        taken = sorted(self.taken) or [0.0]
        return {
            "records": self.records,
            "errors": self.errors,
            "gaps": self.gaps,
            "bytes": self.bytes,
            "seconds": seconds,
            "client_cpu_s": time.process_time() - cpu_s,
            "p50_s": taken[len(taken) // 2],
            "p99_s": taken[len(taken) * 99 // 100],
        }

    def _produce(self) -> None:
        producer = Producer(self.settings)
        value = b"a" * self.size
        producer.produce(self.topic, value)
        producer.flush(60)
        self.started = time.monotonic()
        for _ in range(self.count):
            if time.monotonic() > self.deadline:
                break
            self._produce_one(producer, value)
            if self.gap_s:
                producer.poll(self.gap_s)
        producer.flush(max(0.0, self.deadline - time.monotonic()))

    def _produce_one(self, producer: Any, value: bytes) -> None:
        sent_at = time.monotonic()

        def delivered(error: KafkaError | None, _message: object) -> None:
            self.records += error is None
            self.errors += error is not None
            if self.mode == "latency":
                self.taken.append(time.monotonic() - sent_at)

        while time.monotonic() < self.deadline:
            try:
                producer.produce(self.topic, value, on_delivery=delivered)
            except BufferError:
                producer.poll(0.02)
            else:
                producer.poll(0)
                return

    def _consume(self) -> None:
        consumer = Consumer({**self.settings, "group.id": "bench", "enable.auto.commit": False})
        partitions = consumer.list_topics(self.topic, 60).topics[self.topic].partitions
        consumer.assign([TopicPartition(self.topic, each, 0) for each in partitions])
        due = dict.fromkeys(partitions, 0)
        while self.records < self.count and time.monotonic() < self.deadline:
            for message in consumer.consume(CONSUME_AT_ONCE, 0.1):
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                if not self.records:
                    self.started = time.monotonic()
                self.records += 1
                self.bytes += len(message.value() or b"")
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self.gaps += offset != due[partition]
                due[partition] = offset + 1
        consumer.close()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(Run(sys.argv[1:]).go()) + "\n")
