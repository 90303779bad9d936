"""What a node notes of its image: how far it has applied the log, and digests where all nodes do.

Digests can only be compared at equal offsets, and nodes replay in steps of their own. So they agree
on the offsets: a digest is due at the end of the first batch that reaches a multiple of
`DIGEST_EVERY`. `due_at` tells a replay where to stop for it. Whoever replays more than ten such
points a second skips some.
"""

from collections.abc import Sequence
from typing import Final

from kraftpy.clock import Clock
from kraftpy.limits import AUDIT_DIGEST_PARTITIONS_MAX
from kraftpy.metadata_log.digest import ImageDigest
from kraftpy.metadata_log.image import Changes, ClusterImage
from kraftpy.storage.audit_notes import AuditNotes

DIGEST_EVERY: Final = 100
_DIGEST_AFTER_MS: Final = 100
_TIME_MS: Final = 1000


def due_at(start_offset: int, end_offsets: Sequence[int]) -> int | None:
    """The position of the last of these batches after which a digest is due, if any is.

    `start_offset` is where the first of them begins.
    """
    found, before = None, start_offset
    for position, end in enumerate(end_offsets):
        if end // DIGEST_EVERY > before // DIGEST_EVERY:
            found = position
        before = end
    return found


class ImageNotes:
    """In one thread."""

    def __init__(self, notes: AuditNotes, clock: Clock) -> None:
        self._notes = notes
        self._clock = clock
        self._digest: ImageDigest | None = None
        self._digested_ms = self._noted_ms = -_TIME_MS
        self.is_time = False

    def replayed(self, before: ClusterImage, after: ClusterImage, changes: Changes | None) -> None:
        """`changes` is None where a snapshot took the place of what was there."""
        now_ms = self._clock.monotonic_ms()
        if changes is None:
            self._digest = None
        elif self._digest is not None:
            self._digest.move(before, after, changes)
        is_point = after.end_offset // DIGEST_EVERY > before.end_offset // DIGEST_EVERY
        self.is_time = now_ms - self._noted_ms >= _TIME_MS
        if is_point and now_ms - self._digested_ms >= _DIGEST_AFTER_MS:
            self._digested_ms = now_ms
            self._notes.note("applied", offset=int(after.end_offset), digest=self._text(after))
        elif self.is_time:
            self._notes.note("applied", offset=int(after.end_offset), digest="")
        if self.is_time:
            self._noted_ms = now_ms

    def _text(self, image: ClusterImage) -> str:
        """Only here is a whole image walked over: once in a life, and after each snapshot."""
        if self._digest is None:
            count = sum(len(topic.partitions) for topic in image.topics.values())
            if count > AUDIT_DIGEST_PARTITIONS_MAX:
                return ""
            self._digest = ImageDigest(image)
        return self._digest.text
