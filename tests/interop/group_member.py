"""One member of a consumer group as a process: it processes records, commits, and says so.

    python group_member.py KIND BOOTSTRAP GROUP TOPIC STRATEGY [INSTANCE]

A TOPIC that begins with ^ is a pattern. Every record is a line on stdout before it is committed, a
commit comes before the next records are taken, and a rebalance only in between: so without a
failure nothing is processed twice, and never anything skipped. SIGTERM lets it leave the group.
"""

import asyncio
import json
import re
import signal
import sys
from typing import Any

SESSION_MS = 6000
HEARTBEAT_MS = 500
METADATA_MS = 500
stopping = False


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def stop(*_: Any) -> None:
    global stopping  # noqa: PLW0603 -- what a signal handler can reach.
    stopping = True


def confluent(bootstrap: str, group: str, topic: str, strategy: str, instance: str | None) -> None:
    classic = {
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": strategy,
    }
    _confluent(bootstrap, group, topic, instance, classic)


def confluent_consumer(
    bootstrap: str, group: str, topic: str, strategy: str, instance: str | None
) -> None:
    """The new protocol: the coordinator decides about sessions, and who gets what."""
    new = {"group.protocol": "consumer", "group.remote.assignor": strategy}
    _confluent(bootstrap, group, topic, instance, new)


def _confluent(
    bootstrap: str, group: str, topic: str, instance: str | None, protocol: dict[str, Any]
) -> None:
    from confluent_kafka import Consumer, KafkaException

    more = {"group.instance.id": instance} if instance else {}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "confluent-member",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": METADATA_MS,
            "log_level": 0,
            **protocol,
            **more,
        }
    )

    def assigned(_: Any, partitions: Any) -> None:
        say(assigned=sorted([each.topic, each.partition] for each in partitions))

    def revoked(_: Any, partitions: Any) -> None:
        say(revoked=sorted([each.topic, each.partition] for each in partitions))

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not stopping:
        records = [each for each in consumer.consume(20, 0.2) if each.error() is None]
        for each in records:
            say(at=[each.topic(), each.partition(), each.offset()])
        if records:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                say(refused=error.args[0].name())
    consumer.close()


def kafka_python(
    bootstrap: str, group: str, topic: str, strategy: str, instance: str | None
) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say(revoked=sorted([each.topic, each.partition] for each in revoked))

        def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=sorted([each.topic, each.partition] for each in assigned))

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id="kafka-python-member",
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=METADATA_MS,
        partition_assignment_strategy=[assignors[strategy]],
    )
    if topic.startswith("^"):
        consumer.subscribe(pattern=topic, listener=Listener())
    else:
        consumer.subscribe([topic], listener=Listener())
    while not stopping:
        found = consumer.poll(timeout_ms=200, max_records=20)
        for records in found.values():
            for each in records:
                say(at=[each.topic, each.partition, each.offset])
        if found:
            try:
                consumer.commit()
            except KafkaError as error:
                say(refused=type(error).__name__)
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, strategy: str, instance: str | None) -> None:
    asyncio.run(_aiokafka(bootstrap, group, topic, strategy, instance))


async def _one_turn(consumer: Any) -> None:
    from aiokafka.errors import KafkaError

    found = await consumer.getmany(timeout_ms=100, max_records=20)
    for records in found.values():
        for each in records:
            say(at=[each.topic, each.partition, each.offset])
    if found:
        try:
            await consumer.commit()
        except KafkaError as error:
            say(refused=type(error).__name__)


async def _aiokafka(
    bootstrap: str, group: str, topic: str, strategy: str, instance: str | None
) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    busy = asyncio.Lock()  # It rebalances in the background: not while a batch is at work.

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            async with busy:
                say(revoked=sorted([each.topic, each.partition] for each in revoked))

        async def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=sorted([each.topic, each.partition] for each in assigned))

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id="aiokafka-member",
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=METADATA_MS,
        partition_assignment_strategy=(assignors[strategy],),
    )
    if topic.startswith("^"):
        consumer.subscribe(pattern=topic, listener=Listener())
    else:
        consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not stopping:
        async with busy:
            await _one_turn(consumer)
        await asyncio.sleep(0)
    await consumer.stop()


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    kind, bootstrap, group, topic, strategy, *rest = sys.argv[1:]
    run = {
        "confluent": confluent,
        "confluent_consumer": confluent_consumer,
        "kafka_python": kafka_python,
        "aiokafka": aiokafka,
    }[kind]
    if topic.startswith("^"):
        re.compile(topic)
    run(bootstrap, group, topic, strategy, rest[0] if rest else None)
    say(left=True)


if __name__ == "__main__":
    main()
