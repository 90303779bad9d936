"""A decision as the batches that go into the log, replayed before any of them is written. Pure.

What always holds: the image that comes out is what every node gets that replays the batches, and
their offsets follow the image that went in without a gap. A decision that is `own` and too large
for one batch becomes several in one metadata transaction (KIP-868), which all nodes see at once or
never. Any other decision of that size is refused.
"""

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.errors import IllegalDecision
from kraftpy.limits import BATCH_RECORDS_MAX
from kraftpy.metadata_log.batches import packed_batches, record_batch
from kraftpy.metadata_log.delta import ClusterDelta
from kraftpy.metadata_log.image import Changes, ClusterImage
from kraftpy.metadata_log.records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
)
from kraftpy.quorum.control.decision import Decision, Refused
from kraftpy.quorum.control.partition_state import illegal_transitions
from kraftpy.storage.record_batch import read_header


class Proposal(NamedTuple):
    """Batches with their base offsets, and what they make of the image."""

    image: ClusterImage
    changes: Changes
    batches: tuple[tuple[int, bytearray], ...]


def make_proposal(
    image: ClusterImage, decision: Decision, *, epoch: int, timestamp_ms: int
) -> Proposal:
    """Refused if it is too large; ReplayError, which names the record, if it cannot be replayed;
    IllegalDecision if a partition would change its state in a way that the table forbids."""
    records, batches = _batches(
        decision, base_offset=image.end_offset, epoch=epoch, timestamp_ms=timestamp_ms
    )
    delta = ClusterDelta(image)
    end_offset = delta.replay_all(records, image.end_offset)
    after, changes = delta.image(end_offset, epoch, timestamp_ms), delta.changes()
    for why in illegal_transitions(image, after, changes):
        raise IllegalDecision(why)
    return Proposal(image=after, changes=changes, batches=batches)


def _batches(
    decision: Decision, *, base_offset: int, epoch: int, timestamp_ms: int
) -> tuple[list[MetadataRecord], tuple[tuple[int, bytearray], ...]]:
    records = list(decision.records)
    if len(records) <= BATCH_RECORDS_MAX:
        try:
            batch = record_batch(
                records, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms
            )
            return records, ((base_offset, batch),)
        except ValueError as error:
            if not decision.own:
                why = f"the request is too large: {error}"
                raise Refused(ErrorCode.policy_violation, why) from None
    if not decision.own:
        raise Refused(
            ErrorCode.policy_violation,
            f"the request needs {len(records)} records, and at most {BATCH_RECORDS_MAX} are "
            "written at once: split it",
        )
    records = [BeginTransactionRecord(name="decision"), *records, EndTransactionRecord()]
    batches = packed_batches(
        records, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms
    )
    return records, tuple((read_header(batch).base_offset, batch) for batch in batches)
