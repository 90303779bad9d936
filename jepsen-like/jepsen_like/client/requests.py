"""The requests that the workloads send, in versions that every broker since 2.4 speaks."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from jepsen_like.client.codec import Reader, Writer

TOPIC_RESOURCE: Final = 2
_TOPIC_SOURCE: Final = 1  # Of a config: set on the topic itself.
LATEST: Final = -1
EARLIEST: Final = -2


class PartitionInfo(NamedTuple):
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]


class ClusterInfo(NamedTuple):
    """What a node says of the cluster."""

    nodes: dict[int, tuple[str, int]]
    controller_id: int
    topics: dict[str, dict[int, PartitionInfo]]
    errors: dict[str, int]


def metadata(topics: Sequence[str] | None) -> bytes:
    return Writer().array(topics, Writer.string).boolean(False).done()


def read_metadata(data: bytes) -> ClusterInfo:
    reader = Reader(data)
    reader.i32()
    nodes: dict[int, tuple[str, int]] = {}
    for _ in range(reader.i32()):
        node_id = reader.i32()
        nodes[node_id] = reader.text(), reader.i32()
        reader.string()
    reader.string()
    controller_id = reader.i32()
    topics: dict[str, dict[int, PartitionInfo]] = {}
    errors: dict[str, int] = {}
    for _ in range(reader.i32()):
        error, name = reader.i16(), reader.text()
        reader.boolean()
        errors[name] = error
        partitions = reader.array(_read_partition)
        if error == 0:
            topics[name] = dict(partitions)
    return ClusterInfo(nodes, controller_id, topics, errors)


def _read_partition(reader: Reader) -> tuple[int, PartitionInfo]:
    reader.i16()
    index, leader, epoch = reader.i32(), reader.i32(), reader.i32()
    replicas, isr = reader.array(Reader.i32), reader.array(Reader.i32)
    reader.array(Reader.i32)
    return index, PartitionInfo(leader, epoch, replicas, isr)


def produce(topic: str, partition: int, batch: bytes, timeout_ms: int, acks: int = -1) -> bytes:
    writer = Writer().string(None).pack("hi", acks, timeout_ms)
    writer.pack("i", 1).string(topic).pack("ii", 1, partition).blob(batch)
    return writer.done()


def read_produce(data: bytes) -> tuple[int, int]:
    """(error, base offset)."""
    reader = Reader(data)
    reader.i32()
    reader.string()
    reader.i32()
    reader.i32()
    return reader.i16(), reader.i64()


def fetch(
    topic: str, partition: int, offset: int, wait_ms: int, bytes_max: int, leader_epoch: int = -1
) -> bytes:
    writer = Writer().pack("iiii", -1, wait_ms, 1, bytes_max).pack("bii", 0, 0, -1)
    writer.pack("i", 1).string(topic).pack("i", 1)
    writer.pack("iiqqi", partition, leader_epoch, offset, -1, bytes_max)
    return writer.pack("i", 0).string("").done()


class Fetched(NamedTuple):
    error: int
    high_watermark: int
    data: bytes


def read_fetch(data: bytes) -> Fetched:
    reader = Reader(data)
    reader.i32()
    error = reader.i16()
    reader.i32()
    if error or reader.i32() == 0:
        return Fetched(error or -1, -1, b"")
    reader.string()
    reader.i32()
    reader.i32()
    error, high_watermark = reader.i16(), reader.i64()
    reader.i64()
    reader.i64()
    for _ in range(max(0, reader.i32())):
        reader.raw(16)
    reader.i32()
    return Fetched(error, high_watermark, reader.blob())


def list_offsets(topic: str, partition: int, timestamp: int = LATEST) -> bytes:
    writer = Writer().pack("ib", -1, 0).pack("i", 1).string(topic).pack("i", 1)
    return writer.pack("iiq", partition, -1, timestamp).done()


def read_list_offsets(data: bytes) -> tuple[int, int]:
    """(error, offset)."""
    reader = Reader(data)
    reader.i32()
    reader.i32()
    reader.string()
    reader.i32()
    reader.i32()
    error = reader.i16()
    reader.i64()
    return error, reader.i64()


def init_producer_id() -> bytes:
    return Writer().string(None).pack("i", 60_000).done()


def read_init_producer_id(data: bytes) -> tuple[int, int, int]:
    """(error, producer id, epoch)."""
    reader = Reader(data)
    reader.i32()
    return reader.i16(), reader.i64(), reader.i16()


def create_topic(
    name: str, partitions: int, replicas: int, configs: Mapping[str, str], timeout_ms: int
) -> bytes:
    writer = Writer().pack("i", 1).string(name).pack("ih", partitions, replicas).pack("i", 0)
    writer.array(configs.items(), lambda w, item: w.string(item[0]).string(item[1]))
    return writer.pack("i", timeout_ms).boolean(False).done()


def read_create_topic(data: bytes) -> int:
    reader = Reader(data)
    reader.i32()
    reader.i32()
    reader.string()
    return reader.i16()


def delete_topic(name: str, timeout_ms: int) -> bytes:
    return Writer().pack("i", 1).string(name).pack("i", timeout_ms).done()


def read_delete_topic(data: bytes) -> int:
    reader = Reader(data)
    reader.i32()
    reader.i32()
    reader.string()
    return reader.i16()


def set_topic_config(topic: str, key: str, value: str) -> bytes:
    writer = Writer().pack("i", 1).pack("b", TOPIC_RESOURCE).string(topic)
    return writer.pack("i", 1).string(key).pack("b", 0).string(value).boolean(False).done()


def read_alter_configs(data: bytes) -> int:
    reader = Reader(data)
    reader.i32()
    reader.i32()
    return reader.i16()


def describe_topic_config(topic: str, key: str) -> bytes:
    writer = Writer().pack("i", 1).pack("b", TOPIC_RESOURCE).string(topic)
    return writer.array([key], Writer.string).boolean(False).done()


def read_describe_configs(data: bytes) -> tuple[int, str | None]:
    """(error, the value if it is set on the topic itself)."""
    reader = Reader(data)
    reader.i32()
    if reader.i32() == 0:
        return -1, None
    error = reader.i16()
    reader.string()
    reader.i8()
    reader.string()
    value: str | None = None
    for _ in range(reader.i32()):
        reader.string()
        found = reader.string()
        reader.boolean()
        if reader.i8() == _TOPIC_SOURCE:
            value = found
        reader.boolean()
        reader.array(lambda r: (r.string(), r.string(), r.i8()))
    return error, value


def elect_leader(topic: str, partition: int, timeout_ms: int) -> bytes:
    """A preferred election."""
    writer = Writer().pack("b", 0).pack("i", 1).string(topic)
    return writer.array([partition], lambda w, p: w.pack("i", p)).pack("i", timeout_ms).done()


def read_elect_leader(data: bytes) -> int:
    reader = Reader(data)
    reader.i32()
    return reader.i16()


def reassign(topic: str, partition: int, replicas: Sequence[int], timeout_ms: int) -> bytes:
    """AlterPartitionReassignments, version 0: flexible."""

    def one(writer: Writer, index: int) -> None:
        writer.pack("i", index).compact(replicas, lambda w, r: w.pack("i", r)).tags()

    writer = Writer().pack("i", timeout_ms)
    writer.compact([topic], lambda w, t: w.compact_string(t).compact([partition], one).tags())
    return writer.tags().done()


def read_reassign(data: bytes) -> int:
    reader = Reader(data)
    reader.i32()
    return reader.i16()


def unregister_broker(node_id: int) -> bytes:
    """Version 0: flexible."""
    return Writer().pack("i", node_id).tags().done()


def read_unregister_broker(data: bytes) -> int:
    reader = Reader(data)
    reader.i32()
    return reader.i16()


class QuorumInfo(NamedTuple):
    error: int
    leader_id: int
    leader_epoch: int
    high_watermark: int


METADATA_TOPIC: Final = "__cluster_metadata"


def describe_quorum() -> bytes:
    writer = Writer()
    writer.compact(
        [METADATA_TOPIC],
        lambda w, t: w.compact_string(t).compact([0], lambda x, i: x.pack("i", i).tags()).tags(),
    )
    return writer.tags().done()


def read_describe_quorum(data: bytes) -> QuorumInfo:
    reader = Reader(data)
    error = reader.i16()
    if error or reader.uvarint() <= 1:
        return QuorumInfo(error or -1, -1, -1, -1)
    reader.compact_text()
    reader.uvarint()
    reader.i32()
    error = reader.i16()
    return QuorumInfo(error, reader.i32(), reader.i32(), reader.i64())


def find_coordinator(group: str) -> bytes:
    return Writer().string(group).pack("b", 0).done()


def read_find_coordinator(data: bytes) -> tuple[int, int, str, int]:
    """(error, node, host, port)."""
    reader = Reader(data)
    reader.i32()
    error = reader.i16()
    reader.string()
    return error, reader.i32(), reader.text(), reader.i32()


def commit_offset(group: str, topic: str, partition: int, offset: int) -> bytes:
    writer = Writer().string(group).pack("i", -1).string("").string(None)
    writer.pack("i", 1).string(topic).pack("i", 1)
    return writer.pack("iqi", partition, offset, -1).string("").done()


def read_commit_offset(data: bytes) -> int:
    reader = Reader(data)
    reader.i32()
    reader.i32()
    reader.string()
    reader.i32()
    reader.i32()
    return reader.i16()


def fetch_offset(group: str, topic: str, partition: int) -> bytes:
    writer = Writer().string(group).pack("i", 1).string(topic)
    return writer.array([partition], lambda w, p: w.pack("i", p)).done()


def read_fetch_offset(data: bytes) -> tuple[int, int]:
    """(error, offset; -1 if nothing is committed)."""
    reader = Reader(data)
    reader.i32()
    offset = error = -1
    for _ in range(reader.i32()):
        reader.string()
        for _ in range(reader.i32()):
            reader.i32()
            offset = reader.i64()
            reader.i32()
            reader.string()
            error = reader.i16()
    return reader.i16() or error, offset
