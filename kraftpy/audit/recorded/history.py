"""What producers were told, from a history of JSON lines as a test harness writes it.

Of interest are operations that ended well: `{"type": "ok", "f": "send", "k": "topic-0", "off": 7,
"lepoch": 3, "node": "b101"}`, where `lepoch` and `node` may be missing. Everything else in the file
is passed over. It is taken that producers asked for acks=all: others are promised nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kraftpy.audit.rules.rows import AckRow
from kraftpy.storage.file_layer import FileLayer
from kraftpy.types import TopicId

_PARTITION: Final = re.compile(r"(.+)-(\d+)")
_NODE: Final = re.compile(r"\D*(\d+)")


class Acked(NamedTuple):
    """Where a record is, by the word of whoever acknowledged it; -1 where nobody said."""

    topic: str
    partition: int
    offset: int
    epoch: int
    node: int


def read_acks(files: FileLayer, path: str) -> Iterator[Acked]:
    """The sends that were acknowledged."""
    for line in files.read_whole(path).split(b"\n"):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        acked = _acked(found) if isinstance(found, dict) else None
        if acked is not None:
            yield acked


def _acked(line: Mapping[str, Any]) -> Acked | None:
    if (line.get("type"), line.get("f")) != ("ok", "send"):
        return None
    place, offset = _PARTITION.fullmatch(str(line.get("k"))), line.get("off")
    if place is None or not isinstance(offset, int) or offset < 0:
        return None
    epoch = line.get("lepoch")
    node = _NODE.fullmatch(str(line.get("node")))
    return Acked(
        place[1],
        int(place[2]),
        offset,
        epoch if isinstance(epoch, int) else -1,
        int(node[1]) if node else -1,
    )


def ack_rows(acks: Iterator[Acked], topic_ids: Mapping[str, TopicId]) -> Iterator[AckRow]:
    """Of topics that are still there."""
    for each in acks:
        topic_id = topic_ids.get(each.topic)
        if topic_id is not None:
            epoch = each.epoch if each.node >= 0 else -1
            yield AckRow(each.node, topic_id, each.partition, each.offset, epoch)
