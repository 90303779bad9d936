"""Record sequences of bugs that Apache Kafka has had, as far as a log can show them.

Each is a log that the version with the bug could have written; the audit must name the rule that it
breaks. They are written in Kafka's own format (kafka_encoding.py) and read from files.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kraftpy.metadata_log import records as r
from kraftpy.types import NO_LEADER, BrokerId
from tests.unit.audit.logs import (
    ORDERS,
    OTHER,
    Log,
    brokers,
    cluster,
    config,
    directory,
    ids,
    level,
    new_partition,
    reassigned_to_124,
    topic,
)


@dataclass(frozen=True)
class Bug:
    number: str
    rules: frozenset[str]
    write: Callable[[], Log]


BUGS: list[Bug] = []


def bug(number: str, *rules: int) -> Callable[[Callable[[], Log]], Callable[[], Log]]:
    def keep(write: Callable[[], Log]) -> Callable[[], Log]:
        BUGS.append(Bug(number, frozenset(f"A{rule}" for rule in rules), write))
        return write

    return keep


# -- records and their replay ----------------------------------------------------------------------


@bug("KAFKA-19383", 24)
def eligible_replicas_cleared_of_a_deleted_topic() -> Log:
    log = cluster(elr=True)
    log.write(r.RemoveTopicRecord(topic_id=ORDERS))
    log.write(r.ClearElrRecord(topic_name="orders"))
    return log


@bug("bitnami/charts 29167", 34)
def a_second_topic_of_a_live_name() -> Log:
    log = cluster()
    log.write(topic("orders", OTHER), new_partition(topic_id=OTHER))
    return log


@bug("bitnami/containers 80381", 29)
def a_change_of_a_broker_in_an_epoch_that_is_not_its() -> Log:
    log = cluster()
    log.write(log.broker(3, broker_epoch=log.epoch_of(3) + 652, fenced=r.FENCE))
    return log


@bug("KAFKA-16952", 26)
def the_same_incarnation_gets_a_new_broker_epoch() -> Log:
    log = cluster()
    log.write(log.register(4))
    return log


@bug("KAFKA-13173", 12, 13)
def brokers_that_expire_together_lose_changes() -> Log:
    """Both are fenced, and only the partitions of the first were looked at."""
    log = cluster()
    log.write(log.change(isr=ids(1, 3)), log.fence(2), log.fence(1))
    return log


@bug("KAFKA-16583", 33)
def a_change_of_replicas_with_too_few_directories() -> Log:
    log = cluster()
    log.write(
        log.change(
            replicas=ids(1, 2, 3, 4),
            adding_replicas=ids(4),
            directories=(directory(1), directory(2), directory(3)),
        )
    )
    return log


@bug("KAFKA-14129", 35)
def a_manual_assignment_with_a_gap() -> Log:
    log = brokers(1, 2, 3)
    log.write(topic(), new_partition(0), new_partition(2))
    return log


# -- who may lead, who is in sync ------------------------------------------------------------------


@bug("KAFKA-13083", 7, 13)
def a_new_partition_with_a_fenced_replica_in_sync() -> Log:
    log = brokers(1, 2, 3)
    log.write(log.fence(3))
    log.write(topic(), new_partition())
    return log


@bug("KAFKA-13916", 13)
def a_fenced_replica_rejoins_the_isr() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)), log.fence(3))
    log.write(log.change(isr=ids(1, 2, 3)))
    return log


@bug("KAFKA-18106", 12, 13)
def a_restart_that_leaves_leaders_and_isr_as_they_were() -> Log:
    log = cluster()
    log.write(log.register(1, 2))
    return log


@bug("KAFKA-19522", 12, 13)
def a_last_known_leader_that_is_fenced() -> Log:
    log = cluster(1, 2, elr=True)
    log.write(log.change(isr=ids(1), elr=ids(2)), log.fence(2))
    log.write(
        log.change(isr=(), leader=NO_LEADER, elr=ids(2, 1), last_known_elr=ids(1)), log.fence(1)
    )
    log.write(log.change(elr=ids(1)), log.register(2, 2))
    log.write(log.change(elr=()), log.register(1, 2))
    log.write(
        log.change(
            isr=ids(1),
            leader=BrokerId(1),
            leader_recovery_state=r.RECOVERING,
            last_known_elr=(),
        )
    )
    return log


@bug("KAFKA-18940", 9)
def an_unclean_election_that_is_called_clean() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1)))
    log.write(log.change(isr=ids(2), leader=BrokerId(2)), log.fence(1))
    return log


@bug("KAFKA-16540", 16)
def a_lower_min_isr_that_leaves_the_elr() -> Log:
    log = cluster(elr=True)
    log.write(log.change(isr=ids(1), elr=ids(2, 3)))
    log.write(config("min.insync.replicas", "1"))
    log.write(log.change(isr=ids(1), leader=BrokerId(1), replicas=ids(1, 2)))
    return log


@bug("KAFKA-18634", 44)
def eligible_replicas_without_the_feature() -> Log:
    log = cluster()
    log.write(config("min.insync.replicas", "2"))
    log.write(log.change(isr=ids(1), elr=ids(2, 3)))
    return log


@bug("KAFKA-15353", 3, 4)
def an_empty_isr_by_a_retried_request() -> Log:
    log = cluster()
    log.write(log.change(isr=()))
    return log


@bug("KAFKA-15021", 5)
def an_expansion_that_bumps_the_leader_epoch() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)))
    log.write(log.change(isr=ids(1, 2, 3), leader=BrokerId(1)))
    return log


@bug("KAFKA-15109", 5)
def a_leader_that_changes_without_its_epoch() -> Log:
    """As a shrink that bumps, after the version that says it need not."""
    log = cluster()
    log.write(level(r.METADATA_VERSION, 14))
    log.write(log.change(isr=ids(1, 2), leader=BrokerId(1)))
    return log


@bug("KAFKA-15665", 22)
def a_reassignment_that_ends_before_the_new_replica_is_in_sync() -> Log:
    log = reassigned_to_124()
    log.write(
        log.change(
            replicas=ids(1, 2, 4),
            isr=ids(1, 2),
            leader=BrokerId(1),
            adding_replicas=(),
            removing_replicas=(),
        )
    )
    return log


@bug("KIP-903", 14)
def a_replica_that_joins_in_a_batch_of_its_restart() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)), log.register(3, 2))
    log.write(log.unfence(3), log.change(isr=ids(1, 2, 3)))
    return log


@bug("KAFKA-14996", 45)
def an_operation_that_is_cut_in_two() -> Log:
    """What was to be one atomic batch begins a transaction while one is open."""
    log = cluster()
    log.write(r.BeginTransactionRecord(), log.change(isr=ids(1, 2)))
    log.write(r.BeginTransactionRecord(), r.EndTransactionRecord())
    return log
