"""The measurements of bench.image, each a function that a worker process runs once."""

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]

from bench import workloads
from bench.measure import (
    Measured,
    measure,
    measure_best,
    measure_repeated,
    peak_rss_bytes,
    report_progress,
)
from kraftpy.limits import BATCH_RECORDS_MAX
from kraftpy.metadata_log import (
    EMPTY,
    ClusterDelta,
    ClusterImage,
    MetadataRecord,
    decode_records,
    encode_records,
    replay_batch,
)
from kraftpy.metadata_log.records import PartitionRecord, TopicRecord
from kraftpy.storage.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    build_value_batch,
    damage,
    iter_values,
    read_header,
)
from kraftpy.types import BrokerId, TopicId, Uuid

KAFKA_BENCHMARKS = (
    "TopicsImageSnapshotLoad",
    "TopicsImageSingleRecordChange",
    "TopicsImageZonalOutage",
)
EPOCH = 1
CHUNK = 500  # Records to a batch where the batches themselves are not measured.
SNAPSHOT_BATCH_RECORDS = 1000
assert SNAPSHOT_BATCH_RECORDS <= BATCH_RECORDS_MAX
_drain = deque[Any](maxlen=0).extend


def replay_cases(records: int) -> list[Measured]:
    """The mixed log, whole and step by step."""
    batches = list(_encoded(workloads.mixed_log(records), records))
    count = read_header(batches[-1]).end_offset
    values = list(_values(batches))
    chunks = [values[n : n + CHUNK] for n in range(0, count, CHUNK)]
    decoded = decode_records(values, 0)
    # What the run needs before it begins is not its garbage; a node reads batches off a disk.
    gc.collect()
    gc.freeze()
    steps: dict[str, Callable[[], object]] = {
        "plain": lambda: _plainly(batches),
        "replay, one image at the end": lambda: _replayed(batches),
        "replay, an image per batch": lambda: _stepwise(batches),
        "values": lambda: _drain(_values(batches)),
        "unpackb": lambda: _drain(map(_unpack, values)),
        "decode": lambda: _drain(map(_decoded, chunks)),
        "replay of decoded records": lambda: ClusterDelta(EMPTY).replay_all(decoded, 0),
    }
    results = []
    for number, (what, work) in enumerate(steps.items()):
        report_progress(0.5 + 0.5 * number / len(steps))
        results.append(measure_best(what, count, work))
    return results


def write_snapshot(topics: int, path: Path) -> list[Measured]:
    """The topics of Kafka's benchmarks as batches in a file."""
    records = workloads.kafka_topics(topics)
    batches = iter(lambda: list(islice(records, SNAPSHOT_BATCH_RECORDS)), [])
    total = topics * (1 + workloads.KAFKA_PARTITIONS_PER_TOPIC)
    with open(path, "wb") as file:
        file.writelines(_encoded(batches, total))
    return []


def load(path: Path) -> list[Measured]:
    """A snapshot file becomes an image; `count` is its records."""
    batches = _from_file(path)
    measured, image = measure("load", 0, lambda: _replayed(batches))
    return [replace(measured, count=image.end_offset, rss_bytes_max=peak_rss_bytes())]


def load_plain(path: Path) -> list[Measured]:
    """The same file as arrays in dicts."""
    topics: dict[bytes, tuple[str, dict[int, Any]]] = {}

    def read() -> int:
        count = 0
        with _collector_paused():
            for array in map(_unpack, _values(_from_file(path))):
                count += 1
                if array[0] == TopicRecord.API_KEY:
                    topics[array[3]] = (array[2], {})
                else:
                    topics[array[3]][1][array[2]] = array
        return count

    measured, count = measure("load", 0, read)
    return [replace(measured, count=count, rss_bytes_max=peak_rss_bytes())]


def kafka_cases(topics: int, seconds: float) -> list[Measured]:
    """Kafka's three benchmarks at one size. Like Kafka's, they measure only the apply."""
    everything = ClusterDelta(EMPTY)
    total = topics * (1 + workloads.KAFKA_PARTITIONS_PER_TOPIC)
    everything.replay_all(_counted(workloads.kafka_topics(topics), total), 0)
    image = _apply(everything)
    plain = {topic_id: dict(topic.partitions) for topic_id, topic in image.topics.items()}
    new_topic, outage = _one_topic(topics), list(_outage(image))
    one_more, zone_less = ClusterDelta(image), ClusterDelta(image)
    one_more.replay_all(new_topic, image.end_offset)
    zone_less.replay_all(outage, image.end_offset)
    load_name, change_name, outage_name = KAFKA_BENCHMARKS
    steps: dict[str, Callable[[], object]] = {
        load_name: lambda: _apply(everything),
        f"{load_name}, plain": lambda: {t: dict(p) for t, p in plain.items()},
        change_name: lambda: _apply(one_more),
        f"{change_name}, plain": _plain_apply(plain, new_topic),
        outage_name: lambda: _apply(zone_less),
        f"{outage_name}, plain": _plain_apply(plain, outage),
    }
    gc.collect()
    gc.freeze()
    results = []
    for number, (name, work) in enumerate(steps.items()):
        report_progress(0.5 + 0.5 * number / len(steps))
        results.append(measure_repeated(name, work, seconds))
    return results


def run(worker: str, count: int, seconds: float, path: Path | None) -> list[Measured]:
    """What a worker process does, by name."""
    match worker, path:
        case "replay", _:
            return replay_cases(count)
        case "kafka", _:
            return kafka_cases(count, seconds)
        case "write-snapshot", Path():
            return write_snapshot(count, path)
        case "load", Path():
            return load(path)
        case "load-plain", Path():
            return load_plain(path)
    raise ValueError(f"there is no worker {worker}, or it lacks its file")


# --- batches ------------------------------------------------------------------------------------


def _encoded(batches: Iterable[workloads.Batch], total: int) -> Iterator[bytes]:
    offset = 0
    told = 0
    for batch in batches:
        values = encode_records(batch)
        yield bytes(
            build_value_batch(values, base_offset=offset, leader_epoch=EPOCH, timestamp_ms=0)
        )
        offset += len(batch)
        if offset - told > total // 50:
            told = offset
            report_progress(0.5 * offset / total)


def _counted(records: Iterable[MetadataRecord], total: int) -> Iterator[MetadataRecord]:
    for number, record in enumerate(records):
        if number % (total // 50 + 1) == 0:
            report_progress(0.5 * number / total)
        yield record


def _from_file(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while head := file.read(HEADER_BYTES):
            yield head + file.read(read_header(head).size - HEADER_BYTES)


def _checked(batch: bytes) -> BatchHeader:
    wrong = damage(batch, 0, len(batch))
    if wrong is not None:
        raise SystemExit(f"a batch that was just built is damaged: {wrong}")
    return read_header(batch)


def _values(batches: Iterable[bytes]) -> Iterator[bytes]:
    for batch in batches:
        yield from iter_values(batch, _checked(batch))


def _plainly(batches: Iterable[bytes]) -> None:
    with _collector_paused():
        _drain(map(_unpack, _values(batches)))


def _unpack(value: bytes) -> Any:
    return msgpack.unpackb(value, use_list=False)


def _decoded(values: list[bytes]) -> int:
    return len(decode_records(values, 0))


# --- replay -------------------------------------------------------------------------------------


def _replayed(batches: Iterable[bytes]) -> ClusterImage:
    """How a node starts: one delta for everything, one image at the end, no garbage collection."""
    delta = ClusterDelta(EMPTY)
    end_offset = 0
    with _collector_paused():
        for batch in batches:
            header = _checked(batch)
            records = decode_records(iter_values(batch, header), header.base_offset)
            end_offset = delta.replay_all(records, header.base_offset)
        return delta.image(end_offset, EPOCH)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """What metadata_log/loading.py does, and for its reason: nothing that is loaded is garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _stepwise(batches: Iterable[bytes]) -> ClusterImage:
    """How a node lives: an image after every batch."""
    image = EMPTY
    for batch in batches:
        header = _checked(batch)
        records = decode_records(iter_values(batch, header), header.base_offset)
        image = replay_batch(image, records, header.base_offset, EPOCH)
    return image


# --- Kafka's benchmarks -------------------------------------------------------------------------


def _apply(delta: ClusterDelta) -> ClusterImage:
    return delta.image(0, EPOCH)


def _one_topic(topics: int) -> list[MetadataRecord]:
    topic_id = TopicId(Uuid(b"new topic's id.."))
    brokers = workloads.kafka_brokers(topics)
    partition = workloads.kafka_partition(topic_id, 0, 0, brokers)
    return [TopicRecord(name="newtopic", topic_id=topic_id), partition]


def _outage(image: ClusterImage) -> Iterator[MetadataRecord]:
    """Broker 0 leaves every ISR it is in, told in whole PartitionRecords, as Kafka does it."""
    gone = BrokerId(0)
    for topic_id, topic in image.topics.items():
        for index, partition in topic.partitions.items():
            if gone in partition.isr:
                isr = tuple(b for b in partition.isr if b != gone)
                yield PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=partition.replicas,
                    isr=isr,
                    leader=isr[0],
                    leader_epoch=0,
                    partition_epoch=0,
                )


def _plain_apply(
    old: dict[TopicId, dict[int, Any]], records: list[MetadataRecord]
) -> Callable[[], object]:
    """Copy the dict of topics and the dicts of the topics that change, then change them."""

    def apply() -> object:
        topics = dict(old)
        copied: dict[TopicId, dict[int, Any]] = {}
        for record in records:
            if isinstance(record, PartitionRecord):
                topic_id = record.topic_id
                if topic_id not in copied:
                    copied[topic_id] = topics[topic_id] = dict(old.get(topic_id, {}))
                copied[topic_id][record.partition_id] = record
        return topics

    return apply
