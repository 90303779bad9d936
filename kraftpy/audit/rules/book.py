"""The rules by number: the whole catalogue. Here are those that the metadata log and its images
decide; those about logs, nodes and partitions of data are in book_nodes.py.

Six are not what one would guess, since real logs break the guess: A5 (a leader epoch also grows
when a replica is removed), A13 (without ELR the last member of an ISR stays in it, though fenced),
A24 (a partition that is online may be deleted), A26 (a broker's epoch is the base offset of its
batch), A44 (a feature level may go down), and A53 (a replica's high watermark may fall).
"""

from typing import Final

from kraftpy.audit.rules.book_nodes import CATALOGUE, NEEDS
from kraftpy.audit.rules.rule import Rule, Severity

_CRITICAL, _ERROR, _WARNING = Severity.CRITICAL, Severity.ERROR, Severity.WARNING

# Number, severity, name, sentence.
_CATALOGUE: Final[tuple[tuple[int, Severity, str, str], ...]] = (
    (
        1,
        _ERROR,
        "replicas_are_registered_brokers",
        "A partition has at least one replica, each on another broker that was registered when"
        " the replica was placed.",
    ),
    (2, _CRITICAL, "isr_is_of_replicas", "The ISR holds replicas, each once."),
    (3, _CRITICAL, "leader_is_in_isr", "The leader, if there is one, is in the ISR."),
    (
        4,
        _CRITICAL,
        "isr_is_empty_only_with_elr",
        "The ISR is empty only where ELR is enabled, and then nobody leads.",
    ),
    (
        5,
        _CRITICAL,
        "leader_epoch_moves_with_the_leader_field",
        "The leader epoch grows by one exactly if the record names a leader; it names one exactly"
        " if the leader changes or a replica is removed, and before metadata.version 3.6 also if"
        " the ISR shrinks.",
    ),
    (
        6,
        _CRITICAL,
        "partition_epoch_moves_by_one",
        "The partition epoch grows by one with every change, and all who saw it saw the same.",
    ),
    (
        7,
        _ERROR,
        "new_partition_is_led_by_its_first_active_replica",
        "A new partition has epochs 0 and 0, an ISR of its active replicas, the first of them for"
        " a leader, and nothing to recover.",
    ),
    (8, _WARNING, "change_changes_something", "No change record leaves all as it was."),
    (
        9,
        _CRITICAL,
        "leader_held_all_that_was_committed",
        "A new leader comes from the ISR, or from the ELR if the ISR is lost and is then alone in"
        " the ISR, or is in sync when a reassignment ends; any other is marked RECOVERING.",
    ),
    (
        10,
        _CRITICAL,
        "unclean_election_is_allowed",
        "An unclean election is held only where the topic allows it, an operator asked for it, or"
        " it brings back the last known leader; it leaves the leader alone, and no ELR.",
    ),
    (
        11,
        _CRITICAL,
        "recovering_leader_is_alone",
        "RECOVERING begins with an unclean election, and nobody joins the ISR until it ends.",
    ),
    (
        12,
        _CRITICAL,
        "leader_is_active",
        "A leader is registered, unfenced, not shutting down, and its log directory is online.",
    ),
    (
        13,
        _CRITICAL,
        "isr_is_active",
        "A fenced or shutting-down broker is in no ISR, but for the last member of one that has no"
        " leader where ELR is disabled.",
    ),
    (
        14,
        _CRITICAL,
        "isr_grows_by_the_leader",
        "A replica joins the ISR only on the request of the current leader, in its current epochs,"
        " with the current epoch of who joins.",
    ),
    (15, _CRITICAL, "elr_is_of_other_replicas", "The ELR holds replicas that are not in the ISR."),
    (
        16,
        _ERROR,
        "elr_is_empty_when_isr_is_whole",
        "There is no ELR and no last known leader while the ISR has min.insync.replicas.",
    ),
    (
        17,
        _CRITICAL,
        "elr_keeps_who_leaves_a_short_isr",
        "Who leaves an ISR below min.insync.replicas stays eligible, unless it crashed or is no"
        " replica any more; nobody else becomes eligible.",
    ),
    (
        18,
        _CRITICAL,
        "unclean_restart_loses_its_place",
        "A broker that comes back from a crash is out of every ISR and ELR from its registration"
        " on, but for the last member of an ISR where ELR is disabled.",
    ),
    (
        19,
        _ERROR,
        "last_leader_is_known",
        "A partition that lost its whole ISR remembers who led it last.",
    ),
    (
        20,
        _ERROR,
        "reassignment_is_of_replicas",
        "Replicas to add and to remove are replicas, and none is both.",
    ),
    (
        21,
        _ERROR,
        "reassignment_starts_by_adding",
        "A reassignment that starts keeps all replicas, those to remove last, and lets nobody into"
        " the ISR.",
    ),
    (
        22,
        _CRITICAL,
        "reassignment_ends_in_sync",
        "A reassignment ends when all replicas that stay are in the ISR.",
    ),
    (
        23,
        _CRITICAL,
        "cancel_restores_the_originals",
        "A cancelled reassignment drops what it was adding and nothing else; if nobody in sync is"
        " left, that is an unclean election.",
    ),
    (
        24,
        _ERROR,
        "partition_lives_once",
        "A partition is created once and changed while it lives; nothing speaks of it afterwards.",
    ),
    (
        25,
        _WARNING,
        "candidate_leads",
        "A partition has a leader if somebody active holds all that was committed.",
    ),
    (
        26,
        _CRITICAL,
        "broker_epoch_is_the_base_offset",
        "A new incarnation's epoch is the base offset of its batch, or of the batch that begins"
        " its metadata transaction; the same incarnation keeps its epoch.",
    ),
    (
        27,
        _CRITICAL,
        "broker_epochs_grow",
        "A broker's epochs grow, and no two brokers ever have the same.",
    ),
    (28, _CRITICAL, "new_incarnation_is_fenced", "A new incarnation begins fenced."),
    (
        29,
        _CRITICAL,
        "record_names_the_current_epoch",
        "Records that fence, unfence, change or unregister a broker name its current epoch.",
    ),
    (
        30,
        _ERROR,
        "changes_are_in_order",
        "In a step, a broker leaves its partitions before it is fenced, registered anew or"
        " unregistered; it is unfenced before it is elected, and marked as shutting down before it"
        " leaves its partitions.",
    ),
    (
        31,
        _CRITICAL,
        "unfenced_broker_has_caught_up",
        "A broker is unfenced only when it has applied its own registration.",
    ),
    (
        32,
        _ERROR,
        "shutdown_ends_with_a_registration",
        "A broker that began to shut down stays so until it registers anew, and leads nothing when"
        " it is fenced.",
    ),
    (
        33,
        _ERROR,
        "directories_have_one_owner",
        "A log directory belongs to one broker; a partition has one directory per replica.",
    ),
    (
        34,
        _CRITICAL,
        "topic_ids_are_never_reused",
        "A topic id is used once; a name belongs to one live topic.",
    ),
    (
        35,
        _ERROR,
        "partition_ids_are_dense",
        "The partitions of a topic are 0 to n-1, and n never falls.",
    ),
    (
        36,
        _ERROR,
        "deleted_topic_leaves_nothing",
        "No config and nothing else names a topic that is gone.",
    ),
    (37, _ERROR, "topic_is_created_whole", "A topic and its first partitions are one batch."),
    (
        43,
        _CRITICAL,
        "producer_ids_are_given_once",
        "Blocks of producer ids have at least 1000 ids, follow each other, and go to brokers in"
        " their current epoch.",
    ),
    (
        44,
        _ERROR,
        "features_are_supported",
        "Every unfenced broker supports every feature level, and what a feature allows is not"
        " there while it is off.",
    ),
    (
        45,
        _CRITICAL,
        "transactions_do_not_nest",
        "A metadata transaction begins when none is open, ends once, and leaves nothing if it is"
        " aborted.",
    ),
)

RULES: Final[dict[int, Rule]] = {
    number: Rule(
        number=number, severity=severity, name=name, sentence=sentence, needs=NEEDS[number]
    )
    for number, severity, name, sentence in sorted(
        (*_CATALOGUE, *CATALOGUE), key=lambda each: each[0]
    )
}
