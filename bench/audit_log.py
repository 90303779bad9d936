"""Metadata logs of any size for audits: a healthy cluster's, made fast.

Brokers register and are unfenced, topics are created, then partitions change: a follower leaves
the ISR and comes back, leadership moves within the ISR, brokers are fenced in order and come back.
All of it keeps to every rule. Changes are encoded by a compiled loop, as Python would take minutes
for what an audit reads in seconds.
"""

import random
import struct
from pathlib import Path
from typing import Any, Final

import numpy as np
from crc32c import crc32c
from numba import njit

from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.batches import control_batch, record_batch
from kraftpy.metadata_log.codec import encode_record
from kraftpy.metadata_log.control_records import leader_change
from kraftpy.storage.record_batch import HEADER_BYTES
from kraftpy.types import BrokerId, TopicId, Uuid

FIRST_BROKER: Final = 100
REPLICAS: Final = 3
EPOCH: Final = 1
SEGMENT_BYTES: Final = 256 * 1024 * 1024
INDEX_BYTES: Final = 1024 * 1024
FEATURES: Final = tuple(
    r.Feature(name=name, min_supported_version=0, max_supported_version=33)
    for name in (r.METADATA_VERSION, "eligible.leader.replicas.version", "x")
)
_BATCH: Final = 100
_FENCE_EVERY: Final = 2000  # Batches.
_UPTO_CRC: Final = struct.Struct(">qiibI")
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")


@njit(cache=True)
def _put_int(out: Any, p: Any, value: Any) -> Any:
    if value >= 0 and value < 0x80:
        out[p] = value
        return p + 1
    if value < 0:
        out[p] = 256 + value
        return p + 1
    size = 1 if value < 0x100 else 2 if value < 0x10000 else 4
    out[p] = 0xCC + (0 if size == 1 else 1 if size == 2 else 2)
    for i in range(size):
        out[p + 1 + i] = (value >> (8 * (size - 1 - i))) & 0xFF
    return p + 1 + size


@njit(cache=True)
def _put_change(out: Any, p: Any, key: Any, state: Any, ids: Any, named: Any) -> Any:
    """The value of a PartitionChangeRecord, version 2, with its whole ISR."""
    out[p] = 0x9F
    out[p + 1] = 5
    out[p + 2] = 2
    p = _put_int(out, p + 3, state[0])
    out[p] = 0xC4
    out[p + 1] = 16
    for i in range(16):
        out[p + 2 + i] = ids[key[0], i]
    p += 18
    out[p] = 0x90 + state[9]
    p += 1
    for i in range(state[9]):
        p = _put_int(out, p, state[4 + i])
    p = _put_int(out, p, state[10] if named else -2)
    out[p : p + 3] = 0xC0
    out[p + 3] = 0xFF
    out[p + 4 : p + 7] = 0xC0
    p = _put_int(out, p + 7, state[11])
    return _put_int(out, p, state[12])


@njit(cache=True)
def _put_record(out: Any, p: Any, delta: Any, value: Any, size: Any) -> Any:
    """Around a value: what makes it a record of a batch."""
    head = 3 + (1 if delta < 64 else 2 if delta < 8192 else 3)
    length = head + (1 if size < 64 else 2) + size + 1
    p = _put_varint(out, p, length)
    out[p] = 0
    out[p + 1] = 0
    p = _put_varint(out, p + 2, delta)
    out[p] = 1
    p = _put_varint(out, p + 1, size)
    for i in range(size):
        out[p + i] = value[i]
    out[p + size] = 0
    return p + size + 1


@njit(cache=True)
def _put_varint(out: Any, p: Any, value: Any) -> Any:
    raw = value << 1
    while raw > 0x7F:
        out[p] = (raw & 0x7F) | 0x80
        raw >>= 7
        p += 1
    out[p] = raw
    return p + 1


@njit(cache=True)
def _move(state: Any, chance: Any, fenced: Any) -> Any:
    """One legal change of a partition; 0: none, 1: without a leader named, 2: with one."""
    count = state[9]
    if state[10] < 0:
        return 0
    if count == REPLICAS and chance % 4 < 3:
        gone = 1 + chance % (REPLICAS - 1)
        if state[4 + gone] == state[10]:
            gone = 0
        for i in range(gone, REPLICAS - 1):
            state[4 + i] = state[5 + i]
        state[9] = count - 1
        state[12] += 1
        return 1
    if count < REPLICAS:
        for i in range(REPLICAS):
            if fenced[state[1 + i]]:
                return 0
        for i in range(REPLICAS):
            state[4 + i] = state[1 + i]
        state[9] = REPLICAS
        state[12] += 1
        return 1
    other = state[4 + chance % count]
    if other == state[10]:
        return 0
    state[10] = other
    state[11] += 1
    state[12] += 1
    return 2


@njit(cache=True)
def changes(
    out: Any, states: Any, topics: Any, ids: Any, fenced: Any, count: Any, seed: Any
) -> Any:
    """The records of a batch of `count` changes of partitions by chance; its bytes."""
    value = np.zeros(256, np.uint8)
    p = 0
    done = 0
    while done < count:
        seed = seed * np.int64(6364136223846793005) + np.int64(1442695040888963407)
        chance = (seed >> 33) & 0x7FFFFFFF
        at = chance % states.shape[0]
        if (chance >> 7) % 20 == 0:
            at = (chance >> 3) % 3  # Some are hot.
        seed = seed * np.int64(6364136223846793005) + np.int64(1442695040888963407)
        kind = _move(states[at], (seed >> 33) & 0x7FFFFFFF, fenced)
        if kind:
            size = _put_change(value, 0, topics[at : at + 1], states[at], ids, kind == 2)
            p = _put_record(out, p, done, value, size)
            done += 1
    return p, seed


@njit(cache=True)
def rejoin(out: Any, states: Any, topics: Any, ids: Any, broker: Any) -> Any:
    """The records by which its partitions are whole again."""
    value = np.zeros(256, np.uint8)
    p = 0
    done = 0
    for at in range(states.shape[0]):
        state = states[at]
        mine = state[1] == broker or state[2] == broker or state[3] == broker
        if not mine or state[9] == REPLICAS:
            continue
        for i in range(REPLICAS):
            state[4 + i] = state[1 + i]
        state[9] = REPLICAS
        state[12] += 1
        size = _put_change(value, 0, topics[at : at + 1], state, ids, False)
        p = _put_record(out, p, done, value, size)
        done += 1
    return p, done


@njit(cache=True)
def leave(out: Any, states: Any, topics: Any, ids: Any, broker: Any) -> Any:
    """The records by which a broker leaves all partitions; (bytes, how many)."""
    value = np.zeros(256, np.uint8)
    p = 0
    done = 0
    for at in range(states.shape[0]):
        state = states[at]
        kept = 0
        found = False
        for i in range(state[9]):
            if state[4 + i] == broker:
                found = True
            else:
                state[4 + kept] = state[4 + i]
                kept += 1
        if not found:
            continue
        state[9] = kept
        named = state[10] == broker
        if named:
            state[10] = state[4]
            state[11] += 1
        state[12] += 1
        size = _put_change(value, 0, topics[at : at + 1], state, ids, named)
        p = _put_record(out, p, done, value, size)
        done += 1
    return p, done


class LogWriter:
    """Writes segments and their indexes, for any number of nodes with the same bytes."""

    def __init__(self, directories: list[Path], segment_bytes: int = SEGMENT_BYTES) -> None:
        self.end_offset = 0
        self.records = 0
        self._directories = directories
        self._segment_bytes = segment_bytes
        self._base = 0
        self._position = 0
        self._indexed = 0
        self._index = bytearray()
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def batch(self, data: bytes | bytearray, records: int) -> None:
        """Append a batch that has its offset already."""
        if self._position + len(data) > self._segment_bytes:
            self._roll()
        last = self.end_offset + records - 1
        if self._position - self._indexed >= INDEX_BYTES:
            self._index += struct.pack(">II", last - self._base, self._position)
            self._indexed = self._position
        self._pending.append(bytes(data))
        self._pending_bytes += len(data)
        self._position += len(data)
        self.end_offset += records
        self.records += records
        if self._pending_bytes > 8 * 1024 * 1024:
            self._flush()

    def body(self, payload: bytes, records: int) -> None:
        """A batch around the bytes of its records."""
        after = _AFTER_CRC.pack(0, records - 1, 0, 0, -1, -1, -1, records)
        crc = crc32c(payload, crc32c(after))
        head = _UPTO_CRC.pack(self.end_offset, HEADER_BYTES - 12 + len(payload), EPOCH, 2, crc)
        self.batch(head + after + payload, records)

    def write(self, *records: r.MetadataRecord) -> None:
        data = record_batch(records, base_offset=self.end_offset, epoch=EPOCH, timestamp_ms=0)
        self.batch(data, len(records))

    def _roll(self) -> None:
        self.finish()
        self._base, self._position, self._indexed = self.end_offset, 0, 0
        self._index = bytearray()

    def _flush(self) -> None:
        for directory in self._directories:
            directory.mkdir(parents=True, exist_ok=True)
            with open(directory / f"{self._base:020d}.log", "ab") as file:
                file.writelines(self._pending)
        self._pending, self._pending_bytes = [], 0

    def finish(self) -> None:
        self._flush()
        for directory in self._directories:
            (directory / f"{self._base:020d}.index").write_bytes(bytes(self._index))


class HealthyLog:
    """A cluster that goes about its business."""

    def __init__(self, writer: LogWriter, *, brokers: int, topics: int, per_topic: int) -> None:
        self.writer = writer
        self._rng = random.Random(7)
        self._brokers = brokers
        self._epochs: dict[int, int] = {}
        self._fenced = np.zeros(FIRST_BROKER + brokers, np.uint8)
        count = topics * per_topic
        self._ids = np.zeros((topics, 16), np.uint8)
        # Partition, replicas, ISR, (one to spare), size of the ISR, leader, the two epochs.
        self._states = np.zeros((count, 13), np.int64)
        self._topics = np.repeat(np.arange(topics), per_topic)
        self._out = np.zeros(1 << 24, np.uint8)
        self._seed = np.int64(12345)
        self._batches = 0
        self._down: int | None = None
        self._begin(topics, per_topic)

    def _begin(self, topics: int, per_topic: int) -> None:
        writer = self.writer
        first = leader_change(1, [1, 2, 3], [1, 2])
        writer.batch(control_batch(first, base_offset=0, epoch=EPOCH, timestamp_ms=0), 1)
        writer.records -= 1
        for broker in range(FIRST_BROKER, FIRST_BROKER + self._brokers):
            self._epochs[broker] = writer.end_offset
            writer.write(
                r.RegisterBrokerRecord(
                    broker_id=BrokerId(broker),
                    incarnation_id=Uuid(broker.to_bytes(16, "big")),
                    broker_epoch=writer.end_offset,
                    end_points=(),
                    features=FEATURES,
                    rack=None,
                    fenced=True,
                )
            )
            writer.write(self._change(broker, r.UNFENCE))
        for topic in range(topics):
            self._create(topic, per_topic)

    def _create(self, topic: int, per_topic: int) -> None:
        topic_id = TopicId(Uuid(self._rng.randbytes(16)))
        self._ids[topic] = np.frombuffer(topic_id, np.uint8)
        records: list[r.MetadataRecord] = [r.TopicRecord(name=f"t{topic}", topic_id=topic_id)]
        for partition in range(per_topic):
            start = self._rng.randrange(self._brokers)
            replicas = tuple(
                BrokerId(FIRST_BROKER + (start + n) % self._brokers) for n in range(REPLICAS)
            )
            state = self._states[topic * per_topic + partition]
            state[0] = partition
            state[1:4] = state[4:7] = replicas
            state[9], state[10] = REPLICAS, replicas[0]
            records.append(
                r.PartitionRecord(
                    partition_id=partition,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                )
            )
        self.writer.write(*records)

    def _change(self, broker: int, fenced: int) -> r.BrokerRegistrationChangeRecord:
        return r.BrokerRegistrationChangeRecord(
            broker_id=BrokerId(broker), broker_epoch=self._epochs[broker], fenced=fenced
        )

    def run(self, records: int) -> None:
        """Until the log has that many records."""
        tables = (self._states, self._topics, self._ids)
        while self.writer.records < records:
            self._batches += 1
            if self._batches % _FENCE_EVERY == 0:
                self._fence_or_unfence()
                continue
            size, self._seed = changes(
                self._out, *tables, self._fenced, min(_BATCH, records), self._seed
            )
            self.writer.body(self._out[:size].tobytes(), min(_BATCH, records))
        self.writer.finish()

    def _fence_or_unfence(self) -> None:
        tables = (self._states, self._topics, self._ids)
        if self._down is not None:
            broker, self._down = self._down, None
            self._fenced[broker] = 0
            self.writer.write(self._change(broker, r.UNFENCE))
            size, count = rejoin(self._out, *tables, broker)
            if count:
                self.writer.body(self._out[:size].tobytes(), count)
            return
        broker = FIRST_BROKER + self._rng.randrange(self._brokers)
        size, count = leave(self._out, *tables, broker)
        self._fenced[broker] = 1
        self._down = broker
        value = np.frombuffer(encode_record(self._change(broker, r.FENCE)), np.uint8)
        size = _put_record(self._out, size, count, value, len(value))
        self.writer.body(self._out[:size].tobytes(), count + 1)


def healthy_log(
    directories: list[Path],
    records: int,
    *,
    brokers: int = 100,
    topics: int = 5000,
    per_topic: int = 20,
    segment_bytes: int = SEGMENT_BYTES,
) -> LogWriter:
    """A log of that many records over topics * per_topic partitions, on each of the nodes."""
    writer = LogWriter(directories, segment_bytes)
    HealthyLog(writer, brokers=brokers, topics=topics, per_topic=per_topic).run(records)
    return writer
