"""What a controller notes for audits: votes, leaders, high watermarks, images, risky requests.

One of the engine's Listeners, and told of what no Listener hears: votes as they are stored, cuts of
the log, images (by the ImageKeeper, about once a second) and requests for unclean elections. None
of it is on the way of a request but the last, which is rare.
"""

from typing import Any, Final

from kraftpy.clock import Clock
from kraftpy.errors import FatalFault
from kraftpy.metadata_log.image import Changes, ClusterImage
from kraftpy.metadata_log.image_notes import ImageNotes
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.quorum.consensus import CommittedBatch
from kraftpy.quorum.raft.quorum_state import Vote
from kraftpy.storage.audit_notes import AuditNotes
from kraftpy.types import uuid_text
from kraftpy.wire.apis import Request

_UNCLEAN: Final = 1  # Of ElectLeaders.
_NAMED_MAX: Final = 1000


class ControllerNotes:
    """Never raises."""

    def __init__(self, notes: AuditNotes, node_id: int, clock: Clock) -> None:
        self._notes = notes
        self._image_notes = ImageNotes(notes, clock)
        self._high_watermark = 0
        self._epoch = -1
        self._noted = 0
        self._image: ClusterImage | None = None
        notes.note("start", node=node_id, role="controller")

    def close(self) -> None:
        self._notes.close()

    # -- the engine's Listener: in its thread -------------------------------------------------

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        if leader_id is not None:
            self._notes.note("leader", leader=leader_id, epoch=epoch)

    def committed(self, batches: list[CommittedBatch]) -> None:
        if batches:
            header = batches[-1].header
            self._high_watermark, self._epoch = header.end_offset, header.leader_epoch

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        self._high_watermark = max(self._high_watermark, snapshot_id.end_offset)

    def failed(self, fault: FatalFault) -> None:
        self._notes.note("failed", why=str(fault)[:500])

    # -- the journal: in the engine's thread --------------------------------------------------

    def stored(self, vote: Vote) -> None:
        self._notes.note("vote", epoch=vote.epoch, voted=vote.voted_id)

    def truncated(self, offset: int) -> None:
        self._notes.note("truncation", offset=offset, high_watermark=self._high_watermark)

    # -- the ImageKeeper's thread -------------------------------------------------------------

    def replayed(self, before: ClusterImage, after: ClusterImage, changes: Changes | None) -> None:
        """None: a snapshot took the place of what was there."""
        self._image = after
        self._image_notes.replayed(before, after, changes)
        if self._high_watermark > self._noted and self._image_notes.is_time:
            self._noted = self._high_watermark
            self._notes.note("high_watermark", offset=self._high_watermark, epoch=self._epoch)

    # -- requests: in the event loop ----------------------------------------------------------

    def asked(self, request: Request) -> None:
        """ElectLeaders: unclean ones are noted, with who asked."""
        message: Any = request.message
        if getattr(message, "election_type", 0) != _UNCLEAN:
            return
        image = self._image
        named = [] if message.topic_partitions is None else message.topic_partitions
        partitions = []
        for topic in named:
            topic_id = None if image is None else image.topic_ids.get(topic.topic)
            shown = None if topic_id is None else uuid_text(topic_id)
            partitions += [[topic.topic, shown, number] for number in topic.partitions]
        self._notes.note(
            "unclean_election_request",
            principal=request.principal or "ANONYMOUS",
            offset=0 if image is None else int(image.end_offset),
            all=message.topic_partitions is None,
            partitions=partitions[:_NAMED_MAX],
            left_out=max(0, len(partitions) - _NAMED_MAX),
        )
