"""What rules about several nodes, and about data, are shown: plain rows, as an engine finds them.

A row has no behaviour and nothing but numbers, texts and tuples of them, so that a table of any
engine can hold it. Checks take any iterable of rows in any order, unless they say otherwise. Pure.

`node` is whose directory told it. `life` numbers the processes of a node, one after the other; `at`
numbers what one life told, in its order. Times are for people and are not compared.
"""

from typing import NamedTuple

from kraftpy.types import TopicId


class BatchRow(NamedTuple):
    """A batch of a node's metadata log, as its header says."""

    node: int
    base_offset: int
    end_offset: int  # Exclusive.
    epoch: int
    crc: int
    size: int
    is_control: bool = False


class LeaderRow(NamedTuple):
    """Who leads an epoch: a LeaderChange of a log, or what a node noted (`offset` -1)."""

    node: int
    offset: int
    epoch: int
    leader: int


class VotersRow(NamedTuple):
    """The set of voters from an offset on."""

    node: int
    offset: int
    epoch: int
    voters: frozenset[int]


class LogRow(NamedTuple):
    """How far a node's log goes. `high_watermark` is -1 where nobody knows it."""

    node: int
    start_offset: int
    end_offset: int
    high_watermark: int


class SnapshotRow(NamedTuple):
    """A snapshot of a node: all before `end_offset`, whose last batch was of `epoch`."""

    node: int
    end_offset: int
    epoch: int


class VoteRow(NamedTuple):
    """What a node stored before it spoke: its epoch, and whom it voted for in it, if anybody."""

    node: int
    life: int
    at: int
    epoch: int
    voted: int | None


class TruncationRow(NamedTuple):
    """A node cut its log back to `offset` when it knew the high watermark."""

    node: int
    life: int
    at: int
    offset: int
    high_watermark: int


class WatermarkRow(NamedTuple):
    """The quorum's high watermark as a node knew it."""

    node: int
    life: int
    at: int
    epoch: int
    high_watermark: int


class AppliedRow(NamedTuple):
    """A node had applied all before `offset`; the digest is of its image, "" if it took none."""

    node: int
    life: int
    at: int
    offset: int
    digest: str


class ReplicaRow(NamedTuple):
    """A leader's replica of a partition of data, as its broker sampled it."""

    node: int
    life: int
    at: int
    topic_id: TopicId
    partition: int
    leader_epoch: int
    partition_epoch: int
    epoch_start_offset: int
    high_watermark: int
    end_offset: int
    isr: int  # How many are in sync, by the metadata.
    min_isr: int  # How many must be.


class DataBatchRow(NamedTuple):
    """A batch of a broker's replica of a partition, as its header says."""

    node: int
    topic_id: TopicId
    partition: int
    base_offset: int
    end_offset: int
    epoch: int
    crc: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    records: int = 1
    is_control: bool = False


class ReplicaLogRow(NamedTuple):
    """How far a broker's replica goes; the high watermark is its checkpoint's, or -1."""

    node: int
    topic_id: TopicId
    partition: int
    start_offset: int
    end_offset: int
    high_watermark: int


class EpochRow(NamedTuple):
    """An entry of a replica's leader-epoch-checkpoint."""

    node: int
    topic_id: TopicId
    partition: int
    epoch: int
    start_offset: int


class LeaderEpochRow(NamedTuple):
    """A leader epoch of a partition of data, as the metadata log tells it."""

    topic_id: TopicId
    partition: int
    epoch: int
    leader: int


class AckRow(NamedTuple):
    """A record that a producer was told is safe: by whom, at which offset, in which epoch."""

    node: int
    topic_id: TopicId
    partition: int
    offset: int
    epoch: int  # -1: the producer was not told.


class CommitRow(NamedTuple):
    """An offset that a group committed."""

    group: str
    topic_id: TopicId
    partition: int
    offset: int


class ProducerBlock(NamedTuple):
    """Producer ids that the log gave away."""

    first: int
    end: int  # Exclusive.
