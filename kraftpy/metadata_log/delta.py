"""Replay: the only way an image changes.

`replay` and `replay_batch` are pure: image in, image out, ReplayError if a record is illegal, and
then there is no new image. ClusterDelta is the same thing in steps, for whoever replays many
records at a time and wants to know afterwards what changed.

Metadata transactions (KIP-868): between Begin and End, records go to a draft that nobody sees. End
makes it the contents, Abort drops it. Both may come batches later: the open draft travels in
`image.transaction`.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from kraftpy.errors import ReplayError
from kraftpy.metadata_log.draft import HANDLERS, Draft
from kraftpy.metadata_log.image import Changes, ClusterImage, MetadataTransaction
from kraftpy.metadata_log.partition_merge import Illegal
from kraftpy.metadata_log.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
)
from kraftpy.types import Epoch, Offset

_TRANSACTION_RECORDS: Final = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


class ClusterDelta:
    """Records replayed onto an image. A refused record leaves the delta as it was."""

    def __init__(self, image: ClusterImage) -> None:
        self._base = image
        self._visible = Draft(replace(image, transaction=None))
        self._transaction = image.transaction
        self._open: Draft | None = None
        if image.transaction is not None:
            self._open = Draft(image.transaction.pending, image.transaction.changes)
        self._draft = self._open or self._visible

    def replay(self, record: MetadataRecord, offset: int) -> None:
        """Apply one record; ReplayError names the record, the offset and the rule it breaks."""
        handler = HANDLERS.get(type(record))
        try:
            if handler is not None:
                handler(self._draft, record)
            else:
                self._replay_transaction(record, offset)
        except Illegal as illegal:
            raise ReplayError(record, offset, str(illegal)) from None

    def replay_all(self, records: Iterable[MetadataRecord], base_offset: int) -> int:
        """Apply records at consecutive offsets; returns the offset after the last."""
        offset = base_offset
        handlers, draft = HANDLERS, self._draft
        for record in records:
            if type(record) in handlers:
                try:
                    handlers[type(record)](draft, record)
                except Illegal as illegal:
                    raise ReplayError(record, offset, str(illegal)) from None
            else:
                self.replay(record, offset)
                draft = self._draft
            offset += 1
        return offset

    def image(self, end_offset: int, epoch: int, timestamp_ms: int = -1) -> ClusterImage:
        """The image after what was replayed; an open transaction's records are not in it."""
        transaction = self._transaction
        if transaction is not None and self._open is not None:
            pending, changes = self._open.build(), self._open.changes()
            transaction = replace(transaction, pending=pending, changes=changes)
        return replace(
            self._visible.build(),
            transaction=transaction,
            end_offset=Offset(end_offset),
            epoch=Epoch(epoch),
            timestamp_ms=timestamp_ms,
        )

    def changes(self) -> Changes:
        """What became visible, by key: for publishers, which must not walk whole images."""
        return self._visible.changes()

    def _replay_transaction(self, record: Any, offset: int) -> None:
        if not isinstance(record, _TRANSACTION_RECORDS):
            raise Illegal(f"{type(record).__name__} is not a metadata record")
        if isinstance(record, BeginTransactionRecord):
            self._begin(record, offset)
            return
        if self._open is None:
            raise Illegal("no metadata transaction is open")
        if isinstance(record, EndTransactionRecord):
            changes = self._visible.changes().then(self._open.changes())
            self._visible = Draft(self._open.build(), changes)
        self._draft, self._open, self._transaction = self._visible, None, None

    def _begin(self, record: BeginTransactionRecord, offset: int) -> None:
        if self._transaction is not None:
            begun = self._transaction.begin_offset
            raise Illegal(f"the metadata transaction begun at offset {begun} is still open")
        before = self._visible.build().without_provenance()
        self._open = self._draft = Draft(before)
        self._transaction = MetadataTransaction(
            name=record.name, begin_offset=Offset(offset), pending=before
        )


def replay(image: ClusterImage, record: MetadataRecord, offset: int) -> ClusterImage:
    """The image after one record of the same epoch, alone in its batch."""
    return replay_batch(image, (record,), offset, image.epoch, image.timestamp_ms)


def replay_all(image: ClusterImage, records: Iterable[MetadataRecord]) -> ClusterImage:
    """The image after records that follow it in the same epoch, as one batch."""
    return replay_batch(image, records, image.end_offset, image.epoch, image.timestamp_ms)


def replay_batch(
    image: ClusterImage,
    records: Iterable[MetadataRecord],
    base_offset: int,
    epoch: int,
    timestamp_ms: int = -1,
) -> ClusterImage:
    """The image after all records of a batch, or ReplayError: never after some of them."""
    delta = ClusterDelta(image)
    end_offset = delta.replay_all(records, base_offset)
    return delta.image(end_offset, epoch, timestamp_ms)
