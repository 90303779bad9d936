"""One member of a consumer group as a process: it processes records, commits, and says so.

    python group_member.py KIND BOOTSTRAP GROUP TOPIC STRATEGY [INSTANCE]

A TOPIC that begins with ^ is a pattern. Every record is a line on stdout before it is committed, a
commit comes before the next records are taken, and a rebalance only in between: so without a
failure nothing is processed twice, and never anything skipped. What was committed is a line, too,
and so is a commit that was refused. One that is refused only because the member has a new epoch,
of which it is about to hear, is sent again. SIGTERM lets it leave the group.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from importlib import import_module
from typing import Any

SESSION_MS = int(os.environ.get("GROUP_MEMBER_SESSION_MS", "6000"))
HEARTBEAT_MS = 300
METADATA_MS = 500
RECORDS_AT_ONCE = 20
POLL_MS = 100
# kafka-python 3.0.12 forgets a join that ends while no poll waits for it: it has its partitions by
# then, never says so, and is taken out after its session. A poll of 100 ms often ends just then.
KAFKA_PYTHON_POLL_MS = 3000
NEW_EPOCH_S = 10.0
ASSIGNORS = {
    "range": ("range", "RangePartitionAssignor"),
    "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
    "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
    "cooperative-sticky": ("cooperative_sticky", "CooperativeStickyAssignor"),
}
stopping = False


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def say_partitions(what: str, partitions: Iterable[Any]) -> None:
    say(**{what: sorted([each.topic, each.partition] for each in partitions)})


def process(records: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Process records, each by its topic, partition and offset; what is to be committed then."""
    ends: dict[tuple[str, int], int] = {}
    for topic, partition, offset in records:
        say(at=[topic, partition, offset])
        ends[topic, partition] = offset + 1
    return [(*place, end) for place, end in ends.items()]


def stop(*_: Any) -> None:
    global stopping  # noqa: PLW0603 -- what a signal handler can reach.
    stopping = True


# -- librdkafka ---------------------------------------------------------------------------------


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
    from confluent_kafka import Consumer

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
        say_partitions("assigned", partitions)

    def revoked(_: Any, partitions: Any) -> None:
        say_partitions("revoked", partitions)

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not stopping:
        found: list[Any] = consumer.consume(RECORDS_AT_ONCE, POLL_MS / 1000)
        records = (each for each in found if each.error() is None)
        ends = process((each.topic(), each.partition(), each.offset()) for each in records)
        deadline = time.monotonic() + NEW_EPOCH_S
        while ends and _commit_confluent(consumer, ends) == "STALE_MEMBER_EPOCH":
            if time.monotonic() > deadline:
                break
            time.sleep(HEARTBEAT_MS / 1000)
    consumer.close()


def _commit_confluent(consumer: Any, ends: list[tuple[str, int, int]]) -> str | None:
    """Why it was refused, if it was."""
    from confluent_kafka import KafkaException

    try:
        answers = consumer.commit(asynchronous=False)
    except KafkaException as error:
        refused: list[str] = [error.args[0].name()]
    else:
        refused = sorted({each.error.name() for each in answers if each.error is not None})
    if refused:
        say(refused=refused[0])
        return refused[0]
    say(committed=ends)
    return None


# -- kafka-python and aiokafka, which took its coordinator over -----------------------------------


def _settings(
    package: str, bootstrap: str, group: str, strategy: str, instance: str | None
) -> dict[str, Any]:
    module, name = ASSIGNORS[strategy]
    assignor = getattr(import_module(f"{package}.coordinator.assignors.{module}"), name)
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "client_id": f"{'kafka-python' if package == 'kafka' else package}-member",
        "group_instance_id": instance,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "metadata_max_age_ms": METADATA_MS,
        "partition_assignment_strategy": (assignor,),
    }


def _subject(topic: str) -> dict[str, Any]:
    return {"pattern": topic} if topic.startswith("^") else {"topics": [topic]}


def _process(found: Any) -> list[tuple[str, int, int]]:
    records = (each for records in found.values() for each in records)
    return process((each.topic, each.partition, each.offset) for each in records)


def kafka_python(
    bootstrap: str, group: str, topic: str, strategy: str, instance: str | None
) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say_partitions("revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            say_partitions("assigned", assigned)

    consumer = KafkaConsumer(**_settings("kafka", bootstrap, group, strategy, instance))
    consumer.subscribe(**_subject(topic), listener=Listener())
    while not stopping:
        found = consumer.poll(timeout_ms=KAFKA_PYTHON_POLL_MS, max_records=RECORDS_AT_ONCE)
        ends = _process(found)
        try:
            if ends:
                consumer.commit()
                say(committed=ends)
        except KafkaError as error:
            say(refused=type(error).__name__)
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, strategy: str, instance: str | None) -> None:
    asyncio.run(_aiokafka(_settings("aiokafka", bootstrap, group, strategy, instance), topic))


async def _aiokafka(settings: dict[str, Any], topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    busy = asyncio.Lock()  # It rebalances in the background: not while a batch is at work.

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            async with busy:
                say_partitions("revoked", revoked)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            say_partitions("assigned", assigned)

    consumer = AIOKafkaConsumer(**settings)
    consumer.subscribe(**_subject(topic), listener=Listener())
    await consumer.start()
    while not stopping:
        # Not while it is busy: it may wait for the end of a rebalance, which waits for us then.
        found = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_AT_ONCE)
        async with busy:
            ends = _process(found)
            try:
                if ends:
                    await consumer.commit()
                    say(committed=ends)
            except KafkaError as error:
                say(refused=type(error).__name__)
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
    run(bootstrap, group, topic, strategy, rest[0] if rest else None)
    say(left=True)


if __name__ == "__main__":
    main()
