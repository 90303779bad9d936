"""Logs about one partition: its state, how it changes, and how its replicas move."""

from kraftpy.audit.rules import IsrRequest
from kraftpy.audit.rules.view import ELR_FEATURE
from kraftpy.metadata_log import records as r
from kraftpy.types import NO_LEADER, BrokerId
from tests.unit.audit.cases import KEY, breaks, keeps
from tests.unit.audit.logs import (
    OTHER,
    Log,
    cluster,
    config,
    directory,
    ids,
    level,
    new_partition,
    reassigned_to_124,
    topic,
)

UNCLEAN = "unclean.leader.election.enable"

# -- the state of a partition ----------------------------------------------------------------------


@breaks(1)
def a_replica_twice() -> Log:
    log = cluster()
    log.write(
        topic("b", OTHER), new_partition(topic_id=OTHER, replicas=ids(1, 1, 2), isr=ids(1, 2))
    )
    return log


@breaks(1)
def a_replica_on_an_unknown_broker() -> Log:
    log = cluster()
    log.write(
        log.change(
            replicas=ids(1, 2, 3, 9), adding_replicas=ids(9), directories=(directory(1),) * 4
        )
    )
    return log


@keeps(1)
def a_replica_on_a_broker_that_unregistered_later() -> Log:
    log = cluster()
    log.write(
        log.change(isr=ids(1, 2)),
        r.UnregisterBrokerRecord(broker_id=BrokerId(3), broker_epoch=log.epoch_of(3)),
    )
    log.write(log.change(isr=ids(1)))
    return log


@breaks(2)
def an_isr_member_that_is_no_replica() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2, 4)))
    return log


@breaks(2)
def an_isr_member_twice() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2, 2)))
    return log


@keeps(2, 3, 6)
def an_isr_in_another_order_than_the_replicas() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)))
    log.write(
        log.change(isr=ids(3, 1, 2)),
        partition_epochs={KEY: 2},
        isr_requests={KEY: IsrRequest(BrokerId(1), 0, 1, {BrokerId(3): log.epoch_of(3)})},
    )
    return log


@breaks(3)
def a_leader_outside_the_isr() -> Log:
    log = cluster()
    log.write(log.change(leader=BrokerId(2), isr=ids(1, 3)))
    return log


@breaks(4)
def an_empty_isr_without_elr() -> Log:
    log = cluster()
    log.write(log.change(leader=NO_LEADER, isr=()))
    return log


@breaks(15)
def an_eligible_replica_twice() -> Log:
    log = cluster(elr=True)
    log.write(log.change(isr=ids(1), elr=ids(2, 3, 3)))
    return log


@breaks(15, 17)
def an_eligible_replica_in_the_isr() -> Log:
    log = cluster(elr=True)
    log.write(log.change(isr=ids(1), elr=ids(1, 2, 3)))
    return log


@breaks(20, 21)
def adding_what_is_no_replica() -> Log:
    log = cluster()
    log.write(log.change(adding_replicas=ids(4)))
    return log


@breaks(33)
def directories_for_too_few_replicas() -> Log:
    log = cluster()
    log.write(log.change(directories=(directory(1), directory(2))))
    return log


# -- how partitions change -------------------------------------------------------------------------


@breaks(5)
def an_expansion_that_bumps_the_leader_epoch() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)))
    log.write(log.change(isr=ids(1, 2, 3), leader=BrokerId(1)))
    return log


@breaks(5)
def a_new_leader_in_the_old_epoch() -> Log:
    log = cluster()
    log.write(log.change(leader=BrokerId(2), leader_epoch=0))
    return log


@breaks(5)
def a_replica_removed_without_a_new_leader_epoch() -> Log:
    log = reassigned_to_124()
    log.write(
        log.change(
            isr=ids(1, 2, 4), replicas=ids(1, 2, 4), adding_replicas=(), removing_replicas=()
        )
    )
    return log


@keeps(5)
def a_shrink_bumps_the_leader_epoch_before_36() -> Log:
    log = cluster()
    log.write(level(r.METADATA_VERSION, 11))
    log.write(log.change(isr=ids(1, 2), leader=BrokerId(1)))
    return log


@breaks(6)
def a_partition_epoch_that_jumps() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2), partition_epoch=2))
    return log


@breaks(6)
def an_answer_with_another_partition_epoch() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)), partition_epochs={KEY: 2})
    return log


@breaks(7)
def a_new_partition_with_an_old_epoch() -> Log:
    log = cluster()
    log.write(new_partition(1, leader_epoch=4))
    return log


@breaks(7, 13)
def a_new_partition_with_a_fenced_isr_member() -> Log:
    log = cluster()
    log.write(log.fence(4))
    log.write(new_partition(1, replicas=ids(1, 4)))
    return log


@breaks(7)
def a_new_partition_without_an_active_replica_in_its_isr() -> Log:
    log = cluster()
    log.write(new_partition(1, isr=ids(1, 2)))
    return log


@keeps(7)
def a_new_partition_with_a_fenced_replica() -> Log:
    log = cluster()
    log.write(log.fence(4))
    log.write(new_partition(1, replicas=ids(4, 1, 2), isr=ids(1, 2), leader=BrokerId(1)))
    return log


@breaks(8)
def a_change_of_nothing() -> Log:
    log = cluster()
    log.write(log.change())
    return log


@keeps(8)
def a_change_of_directories_only() -> Log:
    log = cluster()
    log.write(log.change(directories=(directory(1), directory(2), r.UNASSIGNED_DIRECTORY)))
    return log


@breaks(9)
def a_leader_from_outside_without_a_mark() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)))
    log.write(log.change(isr=ids(3), leader=BrokerId(3)))
    return log


@keeps(9, 15, 17)
def a_leader_from_the_elr() -> Log:
    log = cluster(elr=True)
    log.write(log.change(isr=ids(1, 2)), log.fence(3))
    log.write(log.change(isr=ids(1), elr=ids(2)), log.fence(2))
    log.write(
        log.change(leader=NO_LEADER, isr=(), elr=ids(1, 2), last_known_elr=ids(1)), log.fence(1)
    )
    log.write(
        log.unfence(2), log.change(leader=BrokerId(2), isr=ids(2), elr=ids(1), last_known_elr=())
    )
    return log


@keeps(9)
def a_leader_that_came_with_a_reassignment() -> Log:
    log = cluster(1)
    log.write(log.change(replicas=ids(4, 1), adding_replicas=ids(4), removing_replicas=ids(1)))
    log.write(
        log.change(
            replicas=ids(4),
            isr=ids(4),
            leader=BrokerId(4),
            adding_replicas=(),
            removing_replicas=(),
        )
    )
    return log


def unclean_leader(log: Log, **evidence: object) -> Log:
    log.write(log.change(isr=ids(1, 2)), log.fence(3))
    log.write(log.change(isr=ids(1)), log.fence(2))
    log.write(log.change(leader=NO_LEADER), log.fence(1))
    log.write(log.unfence(3))
    log.write(
        log.change(isr=ids(3), leader=BrokerId(3), leader_recovery_state=r.RECOVERING), **evidence
    )
    return log


@breaks(10)
def an_unclean_election_nobody_asked_for() -> Log:
    return unclean_leader(cluster(), unclean_elections=frozenset())


@breaks(10)
def an_unclean_election_that_keeps_the_isr() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1)))
    log.write(
        log.change(isr=ids(3), leader=BrokerId(3), elr=ids(1), leader_recovery_state=r.RECOVERING),
        level(ELR_FEATURE, 1),
        config("min.insync.replicas", "2"),
    )
    return log


@keeps(10, 11)
def an_unclean_election_that_was_asked_for() -> Log:
    return unclean_leader(cluster(), unclean_elections=frozenset({KEY}))


@keeps(10)
def an_unclean_election_that_the_topic_allows() -> Log:
    log = cluster()
    log.write(config(UNCLEAN, "true"))
    return unclean_leader(log, unclean_elections=frozenset())


@keeps(10, 19)
def the_last_known_leader_comes_back() -> Log:
    log = cluster(1, elr=True)
    log.write(log.change(leader=NO_LEADER, isr=(), elr=ids(1), last_known_elr=ids(1)), log.fence(1))
    log.write(log.change(elr=()), log.register(1, 2), unclean_restarts=frozenset(ids(1)))
    log.write(
        log.unfence(1),
        log.change(
            leader=BrokerId(1), isr=ids(1), last_known_elr=(), leader_recovery_state=r.RECOVERING
        ),
        unclean_elections=frozenset(),
    )
    return log


@breaks(11)
def an_isr_that_grows_while_recovering() -> Log:
    log = unclean_leader(cluster())
    log.write(log.unfence(1))
    log.write(log.change(isr=ids(3, 1)))
    return log


@breaks(11)
def recovering_without_an_election() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1)))
    log.write(log.change(leader_recovery_state=r.RECOVERING))
    return log


@breaks(14)
def a_replica_that_joins_where_a_broker_is_fenced() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)))
    log.write(log.change(isr=ids(1, 2, 3)), log.fence(4))
    return log


@breaks(14)
def a_replica_that_joins_unasked() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)))
    log.write(log.change(isr=ids(1, 2, 3)), isr_requests={})
    return log


@breaks(14)
def a_replica_that_joins_with_a_stale_epoch() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)))
    request = IsrRequest(BrokerId(1), 0, 1, {BrokerId(3): log.epoch_of(3) - 1})
    log.write(log.change(isr=ids(1, 2, 3)), isr_requests={KEY: request})
    return log


@keeps(14)
def a_replica_that_joins_on_request() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)))
    request = IsrRequest(BrokerId(1), 0, 1, {BrokerId(3): log.epoch_of(3)})
    log.write(log.change(isr=ids(1, 2, 3)), isr_requests={KEY: request})
    return log


@breaks(17)
def a_member_that_leaves_a_short_isr_and_is_forgotten() -> Log:
    log = cluster(elr=True)
    log.write(log.change(isr=ids(1), elr=ids(2)))
    return log


@breaks(19)
def a_lost_isr_without_a_last_leader() -> Log:
    log = cluster(1, elr=True)
    log.write(log.change(leader=NO_LEADER, isr=(), elr=ids(1)), log.fence(1))
    return log
