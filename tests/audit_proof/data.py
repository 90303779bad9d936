"""Two brokers' partitions of data with all that can be wrong with them, among good records.

Each fault has a topic of its own, told by rule, node and topic; "good" has all the good records, on
both brokers alike. What producers were told is in a history beside them.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kraftpy.metadata_log import records as r
from kraftpy.storage.record_batch import Record, build_batch
from kraftpy.types import BrokerId, TopicId, Uuid, uuid_text
from tests.unit.audit.log_files import batch, leader, write_segment
from tests.unit.audit.logs import Log, directory, ids, new_partition, topic

LOG = "__cluster_metadata-0"
NODES = (1, 2)
PER_BATCH = 1000
OFFSETS = "__consumer_offsets"
GOOD, LOST, OTHER_BYTES, EPOCHS, ACKED, SEQUENCES, COMMITS = TOPICS = (
    "good",
    "lost",
    "other-bytes",
    "epochs",
    "acked",
    "sequences",
    OFFSETS,
)
Found = tuple[str, int, str]  # Rule, node, topic.
# Of what is in a partition's log: a batch of one value each, unless it is said otherwise.
DUE: frozenset[Found] = frozenset(
    {
        ("A54", 2, LOST),
        ("A55", 2, OTHER_BYTES),
        ("A56", 1, EPOCHS),
        ("A57", 2, ACKED),
        ("A58", 1, SEQUENCES),
        ("A58", 2, SEQUENCES),
        ("A60", -1, GOOD),
    }
)


@dataclass(frozen=True)
class DataPlot:
    """Where the brokers are, what producers were told, and all that an audit finds."""

    directory: Path
    history: Path
    due: frozenset[Found]
    records: int


@dataclass
class Replica:
    """A partition on one broker."""

    topic: str
    batches: list[bytes] = field(default_factory=list)
    end_offset: int = 0

    def write(
        self, *values: bytes, key: bytes | None = None, sequence: int | None = None
    ) -> "Replica":
        """A batch of an idempotent producer."""
        records = [
            Record(offset=self.end_offset + n, timestamp=0, key=key, value=value)
            for n, value in enumerate(values)
        ]
        data = build_batch(
            records,
            leader_epoch=0,
            producer_id=0,
            producer_epoch=0,
            base_sequence=self.end_offset if sequence is None else sequence,
        )
        self.batches.append(bytes(data))
        self.end_offset += len(values)
        return self


def _replicas(records: int, node: int) -> Iterator[Replica]:
    good, value = Replica(GOOD), b"v" * 20
    while good.end_offset < records:
        good.write(*[value] * min(PER_BATCH, records - good.end_offset))
    yield good
    yield Replica(LOST).write(b"a") if node == 2 else Replica(LOST).write(b"a").write(b"b")
    yield Replica(OTHER_BYTES).write(b"a" if node == 1 else b"c")
    yield Replica(EPOCHS).write(b"a")
    yield Replica(ACKED).write(b"a")
    yield Replica(SEQUENCES).write(b"a").write(b"b", sequence=5)
    if node == 1:
        key = struct.pack(">hh1sh4si", 1, 1, b"g", len(GOOD), GOOD.encode(), 0)
        value = struct.pack(">hqihqq", 3, records + 1, 0, 0, 0, 0)
        yield Replica(OFFSETS).write(value, key=key)


def _topic_id(name: str) -> TopicId:
    return TopicId(Uuid(bytes([TOPICS.index(name) + 1]) * 16))


def _metadata() -> Log:
    """Brokers 1 and 2, of which 1 leads everything; its producer has id 0."""
    log = Log()
    log.end_offset = 1
    for broker in NODES:
        log.write(log.register(broker))
        log.write(log.unfence(broker))
    log.write(
        r.ProducerIdsRecord(
            broker_id=BrokerId(1), broker_epoch=log.epoch_of(1), next_producer_id=1000
        )
    )
    for name in TOPICS:
        topic_id, replicas = _topic_id(name), ids(*(1,) if name == OFFSETS else NODES)
        places = tuple(directory(each) for each in replicas)
        made = new_partition(topic_id=topic_id, replicas=replicas, directories=places)
        log.write(topic(name, topic_id), made)
    return log


def write_brokers(records: int, place: Path) -> DataPlot:
    log = _metadata()
    metadata = [leader(0, 1), *(batch(written, base) for base, written, _ in log.batches)]
    for node in NODES:
        data = place / "nodes" / f"node-{node}"
        write_segment(data / LOG, metadata)
        (data / "meta.properties").write_text(f"version=1\nnode.id={node}\n")
        marks = [_write(data, replica, node) for replica in _replicas(records, node)]
        lines = "".join(f"{mark}\n" for mark in marks)
        (data / "replication-offset-checkpoint").write_text(f"0\n{len(marks)}\n{lines}")
    history = place / "history.jsonl"
    history.write_text("".join(json.dumps(line) + "\n" for line in _history(records)))
    return DataPlot(place / "nodes", history, DUE, records)


def _write(data: Path, replica: Replica, node: int) -> str:
    """Its directory; the line with its high watermark."""
    path = data / f"{replica.topic}-0"
    write_segment(path, replica.batches)
    topic_id = uuid_text(_topic_id(replica.topic))
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    is_wrong = replica.topic == EPOCHS and node == 1
    entries = ["0 0", "3 1"] if is_wrong else ["0 0"]  # No leader ever had epoch 3.
    (path / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(entries)), *entries, ""]))
    return f"{replica.topic} 0 {replica.end_offset}"


def _history(records: int) -> Iterator[dict[str, object]]:
    for offset in range(0, records, PER_BATCH):
        yield _ack(GOOD, offset, 1)
    yield _ack(LOST, 1, 1)
    yield _ack(ACKED, 0, 2)


def _ack(name: str, offset: int, node: int) -> dict[str, object]:
    told = {"type": "ok", "f": "send", "k": f"{name}-0", "off": offset}
    return {**told, "lepoch": 0, "node": f"b{node}"}
