"""Metadata logs and images to measure with: made from a seed, the same every time.

`mixed_log` is the life of a cluster: brokers and topics appear, then brokers restart one after the
other while people change configs, quotas and credentials. Each list is one batch, as the controller
would write it. `kafka_topics` is the content of Kafka's own image benchmarks
(jmh-benchmarks/.../metadata/TopicsImage*Benchmark.java), number for number.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from kraftpy.metadata_log import MetadataRecord
from kraftpy.metadata_log import records as r
from kraftpy.types import BrokerId, TopicId, Uuid, random_uuid

Batch = list[MetadataRecord]

BROKERS = 30
PARTITIONS_PER_TOPIC = 10
CHANGES_PER_BATCH = 500
# Kafka's parameters; the topic counts are its four sizes.
KAFKA_TOPIC_COUNTS = (12_500, 25_000, 50_000, 100_000)
KAFKA_PARTITIONS_PER_TOPIC = 10
KAFKA_REPLICATION_FACTOR = 3
KAFKA_REPLICAS_PER_BROKER = 10_000


@dataclass(slots=True)
class _Partition:
    topic_id: TopicId
    index: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int = 0
    partition_epoch: int = 0

    def change(
        self, isr: tuple[BrokerId, ...] | None = None, leader: BrokerId = r.NO_CHANGE
    ) -> r.PartitionChangeRecord:
        self.partition_epoch += 1
        if isr is not None:
            self.isr = isr
        if leader != r.NO_CHANGE:
            self.leader = leader
            self.leader_epoch += 1
        return r.PartitionChangeRecord(
            partition_id=self.index,
            topic_id=self.topic_id,
            isr=isr,
            leader=leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )


@dataclass(slots=True)
class _Cluster:
    rng: random.Random
    partitions: list[_Partition] = field(default_factory=list)
    directories: dict[BrokerId, Uuid] = field(default_factory=dict)
    broker_epochs: dict[BrokerId, int] = field(default_factory=dict)
    next_producer_id: int = 0
    topics: int = 0

    def register(self, broker_id: BrokerId, epoch: int) -> r.RegisterBrokerRecord:
        self.broker_epochs[broker_id] = epoch
        directory = self.directories.setdefault(broker_id, random_uuid(self.rng))
        host = f"broker-{broker_id}.example"
        endpoint = r.Endpoint(name="PLAINTEXT", host=host, port=9092, security_protocol=0)
        version = r.Feature(
            name=r.METADATA_VERSION, min_supported_version=7, max_supported_version=29
        )
        return r.RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=random_uuid(self.rng),
            broker_epoch=epoch,
            end_points=(endpoint,),
            features=(version,),
            rack=f"zone-{broker_id % 3}",
            fenced=True,
            log_dirs=(directory,),
        )

    def create_topic(self) -> Iterator[MetadataRecord]:
        topic_id = TopicId(random_uuid(self.rng))
        yield r.TopicRecord(name=f"topic-{self.topics}", topic_id=topic_id)
        self.topics += 1
        for index in range(PARTITIONS_PER_TOPIC):
            first = self.rng.randrange(BROKERS)
            replicas = tuple(BrokerId((first + n) % BROKERS) for n in range(3))
            self.partitions.append(_Partition(topic_id, index, replicas, replicas, replicas[0]))
            yield r.PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(self.directories[b] for b in replicas),
            )

    def restart(self, broker_id: BrokerId) -> Iterator[Batch]:
        """A broker leaves in good order, comes back, catches up and leads again."""
        epoch = self.broker_epochs[broker_id]
        own = [p for p in self.partitions if broker_id in p.replicas]
        yield [
            r.BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=r.SHUTTING_DOWN
            )
        ]
        yield from _batches(_without(p, broker_id) for p in own)
        yield [r.FenceBrokerRecord(id=broker_id, epoch=epoch)]
        yield [self.register(broker_id, epoch + 1)]
        yield [r.UnfenceBrokerRecord(id=broker_id, epoch=epoch + 1)]
        yield from _batches(p.change(isr=p.replicas) for p in own)
        yield from _batches(
            p.change(leader=broker_id) for p in own if p.replicas[0] == broker_id != p.leader
        )

    def small_changes(self) -> Iterator[MetadataRecord]:
        """What people and idle controllers write: a record or two at a time."""
        rng = self.rng
        user = f"user-{rng.randrange(200)}"
        topic = f"topic-{rng.randrange(self.topics)}"
        self.next_producer_id += 1000
        yield r.NoOpRecord()
        yield r.ConfigRecord(
            resource_type=r.TOPIC_RESOURCE,
            resource_name=topic,
            name=rng.choice(["retention.ms", "min.insync.replicas", "cleanup.policy"]),
            value=str(rng.randrange(9)),
        )
        yield r.ProducerIdsRecord(
            broker_id=BrokerId(0), broker_epoch=0, next_producer_id=self.next_producer_id
        )
        yield r.ClientQuotaRecord(
            entity=(r.QuotaEntity(entity_type="user", entity_name=user),),
            key="producer_byte_rate",
            value=float(rng.randrange(1 << 20)),
        )
        yield r.UserScramCredentialRecord(
            name=user,
            mechanism=1,
            salt=rng.randbytes(16),
            stored_key=rng.randbytes(32),
            server_key=rng.randbytes(32),
            iterations=4096,
        )
        yield r.AccessControlEntryRecord(
            id=Uuid(bytes(14) + rng.randrange(1000).to_bytes(2)),
            resource_type=2,
            resource_name=topic,
            pattern_type=3,
            principal=f"User:{user}",
            host="*",
            operation=3,
            permission_type=3,
        )


def mixed_log(records: int, seed: int = 1) -> Iterator[Batch]:
    """About `records` records; one partition for every fifty of them."""
    cluster = _Cluster(random.Random(seed))
    count = 0
    for batch in _life(cluster, topics=max(1, records // (50 * PARTITIONS_PER_TOPIC))):
        yield batch
        count += len(batch)
        if count >= records:
            return


def _life(cluster: _Cluster, topics: int) -> Iterator[Batch]:
    yield [r.FeatureLevelRecord(name=r.METADATA_VERSION, feature_level=27)]
    for broker_id in range(BROKERS):
        yield [cluster.register(BrokerId(broker_id), epoch=broker_id)]
        yield [r.UnfenceBrokerRecord(id=BrokerId(broker_id), epoch=broker_id)]
    for first in range(0, topics, 20):
        created = range(first, min(first + 20, topics))
        yield [r.BeginTransactionRecord(name="create topics")]
        yield [record for _ in created for record in cluster.create_topic()]
        yield [r.EndTransactionRecord()]
    while True:
        for broker_id in range(BROKERS):
            for batch in cluster.restart(BrokerId(broker_id)):
                yield batch
                # A tenth of the log is none of the brokers' business.
                for _ in range(len(batch) // 54 + 1):
                    yield from ([record] for record in cluster.small_changes())


def _without(partition: _Partition, broker_id: BrokerId) -> MetadataRecord:
    isr = tuple(b for b in partition.isr if b != broker_id)
    if partition.leader == broker_id:
        return partition.change(isr=isr, leader=isr[0])
    return partition.change(isr=isr)


def _batches(records: Iterator[MetadataRecord]) -> Iterator[Batch]:
    while batch := list(islice(records, CHANGES_PER_BATCH)):
        yield batch


def kafka_topics(topic_count: int, seed: int = 1) -> Iterator[MetadataRecord]:
    """The topics of Kafka's image benchmarks: leaders in turn, replicas on the next brokers."""
    rng = random.Random(seed)
    brokers = kafka_brokers(topic_count)
    leader = 0
    for number in range(topic_count):
        topic_id = TopicId(random_uuid(rng))
        yield r.TopicRecord(name=f"topic{number}", topic_id=topic_id)
        for index in range(KAFKA_PARTITIONS_PER_TOPIC):
            yield kafka_partition(topic_id, index, leader, brokers)
            leader = (leader + 1) % brokers


def kafka_partition(topic_id: TopicId, index: int, leader: int, brokers: int) -> r.PartitionRecord:
    replicas = tuple(BrokerId((n + leader) % brokers) for n in range(KAFKA_REPLICATION_FACTOR))
    return r.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=BrokerId(leader),
        leader_epoch=0,
        partition_epoch=0,
    )


def kafka_brokers(topic_count: int) -> int:
    replicas = topic_count * KAFKA_PARTITIONS_PER_TOPIC * KAFKA_REPLICATION_FACTOR
    brokers = replicas // KAFKA_REPLICAS_PER_BROKER
    # At least one broker per replica, for scales that Kafka does not go down to.
    return max(KAFKA_REPLICATION_FACTOR, brokers - brokers % 3)
