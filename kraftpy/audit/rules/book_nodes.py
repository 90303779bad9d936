"""The catalogue's rules about logs, nodes and partitions of data: number, severity, name, sentence.

They are judged from rows (rows.py), which say what each needs. Two are not what one would guess:
A49 (a leader holds what earlier epochs committed, not all that is committed by now) and A53 (the
high watermark of one replica may fall; that of the partition never does).
"""

from typing import Final

from kraftpy.audit.rules.rule import Severity

_CRITICAL, _ERROR, _WARNING = Severity.CRITICAL, Severity.ERROR, Severity.WARNING

CATALOGUE: Final[tuple[tuple[int, Severity, str, str], ...]] = (
    (
        38,
        _CRITICAL,
        "offsets_are_contiguous",
        "The batches of a log follow each other without a gap or an overlap.",
    ),
    (
        39,
        _CRITICAL,
        "epochs_grow_along_the_log",
        "The epoch of a batch is never below that of the one before, and each epoch begins with"
        " one LeaderChange.",
    ),
    (40, _CRITICAL, "epoch_has_one_leader", "No two nodes ever lead in the same epoch."),
    (
        41,
        _CRITICAL,
        "votes_are_kept",
        "A node's epoch never falls, and it votes once in each epoch.",
    ),
    (
        42,
        _CRITICAL,
        "voters_change_one_at_a_time",
        "Two sets of voters that follow each other differ by one voter, and the first is committed"
        " before the second is written, in an epoch whose own beginning is.",
    ),
    (
        46,
        _CRITICAL,
        "logs_match",
        "Batches of one offset and epoch are the same bytes on every node.",
    ),
    (
        47,
        _CRITICAL,
        "committed_logs_are_equal",
        "Below the high watermarks of two nodes their logs are the same.",
    ),
    (
        48,
        _CRITICAL,
        "committed_records_stay",
        "No node cuts its log below a high watermark that it knew.",
    ),
    (
        49,
        _CRITICAL,
        "leader_has_what_was_committed",
        "The leader of an epoch has all that was committed in the epochs before.",
    ),
    (
        50,
        _CRITICAL,
        "snapshot_is_the_log",
        "A snapshot holds what replaying the log up to its end gives, no more and no less, and so"
        " do those of the other nodes.",
    ),
    (
        51,
        _CRITICAL,
        "log_begins_at_a_snapshot",
        "A log that does not begin at 0 has a snapshot from which it goes on, and no snapshot"
        " covers what the log does not have.",
    ),
    (
        52,
        _CRITICAL,
        "images_are_equal",
        "Nodes that have applied the same offset have the same image, and what a process has"
        " applied never falls.",
    ),
    (
        53,
        _CRITICAL,
        "high_watermark_never_falls",
        "The high watermark of a partition never falls: not in one leader's epoch once it has"
        " reached the epoch's start, nor from one epoch to the next.",
    ),
    (
        54,
        _CRITICAL,
        "acked_records_are_in_sync",
        "A record acknowledged with acks=all is on every member of the ISR and the ELR.",
    ),
    (
        55,
        _CRITICAL,
        "replicas_are_equal",
        "Below their high watermarks replicas hold the same bytes, in growing offsets and epochs.",
    ),
    (
        56,
        _ERROR,
        "replica_epochs_are_of_leaders",
        "The epochs of a replica grow, begin where their first batch does, and are epochs that the"
        " partition has had.",
    ),
    (
        57,
        _CRITICAL,
        "acks_are_by_the_leader",
        "Who acknowledges a record leads the epoch that it is stamped with.",
    ),
    (
        58,
        _CRITICAL,
        "sequences_are_dense",
        "The batches of an idempotent producer follow each other in their sequence, and its id was"
        " given away by the controller.",
    ),
    (
        59,
        _CRITICAL,
        "high_watermark_waits_for_enough",
        "The high watermark stays while fewer than min.insync.replicas are in sync.",
    ),
    (
        60,
        _ERROR,
        "committed_offsets_are_there",
        "A group's committed offset is not beyond the end of its partition.",
    ),
)

_RECORDS = "the metadata log"
_REQUESTS = "the metadata log; requests, where nodes noted them (audit-notes)"
_BATCHES = "batch headers of every node's metadata log"
_CONTROL = "batch headers and control records of the metadata logs"
_NODES = "the metadata logs of two nodes or more"
_NOTES = "what nodes noted (audit-notes)"
_DATA = "the partitions of data in brokers' directories"
_ACKS = "what brokers noted of acks, or a history of them (--history); partitions of data"

# What each must be given; without it a rule looked at nothing, and the report says so.
NEEDS: Final[dict[int, str]] = {
    **dict.fromkeys((*range(1, 38), 43, 44, 45), _RECORDS),
    **dict.fromkeys((10, 14, 18, 31), _REQUESTS),
    **dict.fromkeys((38,), _BATCHES),
    **dict.fromkeys((39, 40, 42), _CONTROL),
    **dict.fromkeys((46, 47, 49), _NODES),
    **dict.fromkeys((41, 48, 52, 53, 59), _NOTES),
    **dict.fromkeys((55, 56, 58, 60), _DATA),
    **dict.fromkeys((54, 57), _ACKS),
    50: "snapshots, and the log up to where they end",
    51: "metadata logs and their snapshots",
}
