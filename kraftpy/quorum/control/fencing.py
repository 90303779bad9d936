"""What it means for partitions that a broker goes or comes: fence, unfence, shut down. Pure.

Order within a batch, as Kafka has it: partition changes, then the fence; the unfence, then the
elections that it allows; the flag of a controlled shutdown, then the leaders that move away. So a
log that is read record by record never shows a fenced leader that the same batch then replaces.

Brokers are fenced one per decision: the next one is decided on an image that shows the first as
fenced. Two decided on the same image would each elect the other (KAFKA-13173).
"""

from collections.abc import Collection
from typing import TypeAlias

from kraftpy.metadata_log.image import Broker, ClusterImage, Partition
from kraftpy.metadata_log.records import (
    FENCE,
    SHUTTING_DOWN,
    UNFENCE,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
)
from kraftpy.quorum.control.decision import Decision, Situation
from kraftpy.quorum.control.elections import changes_for_brokers
from kraftpy.quorum.control.partition_index import PartitionKey
from kraftpy.types import BrokerId, Uuid

Records: TypeAlias = tuple[MetadataRecord, ...]


def fence_broker(
    situation: Situation, broker: Broker, *, image: ClusterImage | None = None
) -> Records:
    """It leaves every ISR and leads nothing any more, but for an ISR whose last member it is.

    Idempotent: a session's end and a shutdown may both ask.
    """
    if broker.fenced:
        return ()
    fence = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=FENCE
    )
    return (*leave_isrs(situation, broker.broker_id, image=image), fence)


def unfence_broker(
    situation: Situation, broker: Broker, *, image: ClusterImage | None = None
) -> Records:
    """It may lead again, first of all what nobody leads. It joins ISRs later, leader by leader."""
    if not broker.fenced:
        return ()
    broker_id = broker.broker_id
    unfence = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.broker_epoch, fenced=UNFENCE
    )
    return (unfence, *lead_what_it_can(situation, broker_id, added=broker_id, image=image))


def lead_what_it_can(
    situation: Situation,
    broker_id: BrokerId,
    *,
    added: BrokerId | None = None,
    image: ClusterImage | None = None,
) -> Records:
    """Elections of partitions that have no leader and may have waited for this broker."""
    topics = situation.image.topics
    # After a large outage most partitions are leaderless, and only its own can be led now.
    keys = [
        (topic_id, partition_id)
        for topic_id, partition_id in situation.index.leaderless()
        if broker_id in topics[topic_id].partitions[partition_id].replicas
    ]
    return tuple(changes_for_brokers(situation, keys, added=added, image=image))


def begin_controlled_shutdown(
    situation: Situation, broker: Broker, *, image: ClusterImage | None = None
) -> Records:
    """It leaves every ISR and its leaders move away, while it goes on serving who does not know."""
    if broker.fenced or broker.in_controlled_shutdown:
        return ()
    flag = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        in_controlled_shutdown=SHUTTING_DOWN,
    )
    return (flag, *leave_isrs(situation, broker.broker_id, image=image))


def leave_isrs(
    situation: Situation, broker_id: BrokerId, *, image: ClusterImage | None = None
) -> Records:
    """The changes of all partitions that have the broker in their ISR."""
    keys = in_sync_partitions(situation, broker_id)
    return tuple(changes_for_brokers(situation, keys, removed=broker_id, image=image))


def leave_for_good(situation: Situation, broker_id: BrokerId) -> Records:
    """The same for a broker that may have lost what it had, or is no more: it is not an eligible
    leader replica either (KIP-966)."""
    keys = situation.index.holding(broker_id)
    return tuple(changes_for_brokers(situation, keys, removed=broker_id, unclean=broker_id))


def leave_directories(situation: Situation, broker: Broker, lost: Collection[Uuid]) -> Records:
    """The same for those of its replicas that are in failed directories."""
    broker_id, topics = broker.broker_id, situation.image.topics
    if not lost:
        return ()
    keys = [
        (topic_id, partition_id)
        for topic_id, partition_id in in_sync_partitions(situation, broker_id)
        if replica_directory(topics[topic_id].partitions[partition_id], broker_id) in lost
    ]
    return tuple(changes_for_brokers(situation, keys, removed=broker_id))


def replica_directory(partition: Partition, broker_id: BrokerId) -> Uuid:
    return partition.directories[partition.replicas.index(broker_id)]


def in_sync_partitions(situation: Situation, broker_id: BrokerId) -> list[PartitionKey]:
    topics = situation.image.topics
    return [
        (topic_id, partition_id)
        for topic_id, partition_id in situation.index.holding(broker_id)
        if broker_id in topics[topic_id].partitions[partition_id].isr
    ]


def fence_expired(situation: Situation) -> Decision | None:
    """Fence the broker that was silent for longest; None if none was for longer than a session.

    To be asked again, on the image after it, until there is none.
    """
    timeout_ms = situation.settings.broker_session_timeout_ms
    for broker_id in situation.heartbeats.expired(situation.now_ms, timeout_ms):
        broker = situation.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            return Decision(records=fence_broker(situation, broker), response={}, own=True)
    return None
