"""What a broker notes for audits: its metadata as it applies it, and leaders' high watermarks.

Once a second a few of the partitions that it leads are looked at, in turn, and those that moved
since they were last noted are noted, with the last record that a producer was told is safe. The
lines are written by a thread: the event loop only looks.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from kraftpy.broker.hosted import HostedPartition
from kraftpy.clock import Clock
from kraftpy.limits import AUDIT_SAMPLES_MAX
from kraftpy.metadata_log.image_notes import ImageNotes
from kraftpy.storage.audit_notes import AuditNotes
from kraftpy.types import uuid_text

_SAMPLE_S: Final = 1.0
_Key = tuple[bytes, int]


class BrokerNotes:
    """Never raises, but for what its caller does not survive either."""

    def __init__(self, notes: AuditNotes, broker_id: int, clock: Clock) -> None:
        self._notes = notes
        self.image_notes = ImageNotes(notes, clock)
        self._seen: dict[_Key, tuple[int, ...]] = {}
        self._last: _Key | None = None
        notes.note("start", node=broker_id, role="broker")

    async def run(self, partitions: Callable[[], Iterable[HostedPartition]]) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SAMPLE_S)
            lines = self.sample(partitions())
            if lines:
                await loop.run_in_executor(None, self._write, lines)

    def sample(self, partitions: Iterable[HostedPartition]) -> list[dict[str, Any]]:
        """Lines for some of those that moved; the others have their turn later."""
        led = {(p.topic_id, p.index): p for p in partitions if p.replica.is_leader}
        self._seen = {key: state for key, state in self._seen.items() if key in led}
        moved = sorted(key for key, p in led.items() if self._seen.get(key) != _state(p))
        later = [key for key in moved if self._last is not None and key > self._last]
        turn = (later + [key for key in moved if key not in later])[:AUDIT_SAMPLES_MAX]
        lines = []
        for key in turn:
            self._seen[key] = _state(led[key])
            lines.append(_line(led[key]))
        self._last = turn[-1] if turn else None
        return lines

    def _write(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            self._notes.note("replica", **line)


def _state(partition: HostedPartition) -> tuple[int, ...]:
    replica = partition.replica
    return (
        replica.leader_epoch,
        replica.partition_epoch,
        replica.epoch_start_offset,
        replica.high_watermark,
        partition.log.end_offset,
        len(replica.isr),
        replica.effective_min_isr,
    )


_NAMES: Final = (
    "leader_epoch",
    "partition_epoch",
    "epoch_start_offset",
    "high_watermark",
    "end_offset",
    "isr",
    "min_isr",
)


def _line(partition: HostedPartition) -> dict[str, Any]:
    values = dict(zip(_NAMES, _state(partition), strict=True))
    topic_id = uuid_text(partition.topic_id)
    acked = dict(zip(("acked_offset", "acked_epoch"), partition.acked, strict=True))
    place = {"topic": partition.topic, "topic_id": topic_id, "partition": partition.index}
    return {**place, **values, **acked}
