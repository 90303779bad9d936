"""Logs about reassignments, and about partitions whose brokers come and go."""

from kraftpy.audit.rules.view import ELR_FEATURE
from kraftpy.metadata_log import records as r
from kraftpy.types import NO_LEADER, BrokerId
from tests.unit.audit.cases import breaks, keeps
from tests.unit.audit.logs import (
    Log,
    cluster,
    config,
    directory,
    fence_in_order,
    ids,
    level,
    reassigned_to_124,
)

# -- reassignments ---------------------------------------------------------------------------------


@keeps(20, 21, 22)
def a_reassignment_from_start_to_end() -> Log:
    log = reassigned_to_124()
    log.write(
        log.change(
            isr=ids(1, 2, 4),
            replicas=ids(1, 2, 4),
            leader=BrokerId(1),
            adding_replicas=(),
            removing_replicas=(),
        )
    )
    return log


@keeps(22)
def a_reassignment_that_is_in_sync_at_once() -> Log:
    log = cluster()
    log.write(log.change(replicas=ids(1, 2), isr=ids(1, 2), leader=BrokerId(1)))
    return log


@keeps(9, 22)
def a_reassignment_that_ends_with_an_eligible_replica_for_its_leader() -> Log:
    """Who was eligible is in sync again, and then leads: it is not the election of an eligible."""
    log = cluster(1, 2, elr=True)
    log.write(config("min.insync.replicas", "2"))
    log.write(log.change(isr=ids(1), eligible_leader_replicas=ids(2)))
    log.write(log.change(replicas=ids(2, 3, 1), adding_replicas=ids(3), removing_replicas=ids(1)))
    log.write(
        log.change(
            isr=ids(2, 3),
            replicas=ids(2, 3),
            leader=BrokerId(2),
            eligible_leader_replicas=(),
            adding_replicas=(),
            removing_replicas=(),
        )
    )
    return log


@keeps(22)
def the_same_replicas_in_another_order() -> Log:
    log = cluster()
    log.write(log.change(isr=ids(1, 2)))
    log.write(
        log.change(replicas=ids(3, 2, 1), directories=(directory(3), directory(2), directory(1)))
    )
    return log


@breaks(21)
def a_reassignment_that_starts_with_another_isr() -> Log:
    log = cluster()
    log.write(
        log.change(
            replicas=ids(1, 2, 4, 3),
            isr=ids(1, 3, 4),
            adding_replicas=ids(4),
            removing_replicas=ids(3),
        )
    )
    return log


@breaks(21)
def a_reassignment_with_what_goes_in_front() -> Log:
    log = cluster()
    log.write(
        log.change(replicas=ids(3, 1, 2, 4), adding_replicas=ids(4), removing_replicas=ids(3))
    )
    return log


@breaks(22)
def a_reassignment_that_ends_out_of_sync() -> Log:
    log = reassigned_to_124()
    log.write(
        log.change(
            isr=ids(1, 2),
            replicas=ids(1, 2, 4),
            leader=BrokerId(1),
            adding_replicas=(),
            removing_replicas=(),
        )
    )
    return log


@breaks(23)
def a_cancel_that_drops_an_original() -> Log:
    log = reassigned_to_124()
    log.write(
        log.change(
            isr=ids(1),
            replicas=ids(1, 2),
            leader=BrokerId(1),
            adding_replicas=(),
            removing_replicas=(),
        )
    )
    return log


@keeps(23)
def a_cancel() -> Log:
    log = reassigned_to_124()
    log.write(
        log.change(
            replicas=ids(1, 2, 3), leader=BrokerId(1), adding_replicas=(), removing_replicas=()
        )
    )
    return log


@keeps(10, 11, 14, 23)
def a_cancel_that_is_an_unclean_election() -> Log:
    log = cluster(1)
    log.write(
        log.change(replicas=ids(4, 2, 1), adding_replicas=ids(4, 2), removing_replicas=ids(1))
    )
    log.write(log.change(isr=ids(1, 4)))
    log.write(log.change(isr=ids(4), leader=BrokerId(4)), log.fence(1))
    log.write(log.unfence(1))
    log.write(config("unclean.leader.election.enable", "true"))
    log.write(
        log.change(
            replicas=ids(1),
            isr=ids(1),
            leader=BrokerId(1),
            leader_recovery_state=r.RECOVERING,
            adding_replicas=(),
            removing_replicas=(),
        ),
        unclean_elections=frozenset(),
        isr_requests={},
    )
    return log


@breaks(23, 9)
def a_cancel_that_hides_an_unclean_election() -> Log:
    log = cluster(1)
    log.write(
        log.change(replicas=ids(4, 2, 1), adding_replicas=ids(4, 2), removing_replicas=ids(1))
    )
    log.write(log.change(isr=ids(1, 4)))
    log.write(log.change(isr=ids(4), leader=BrokerId(4)), log.fence(1))
    log.write(log.unfence(1))
    log.write(
        log.change(
            replicas=ids(1),
            isr=ids(1),
            leader=BrokerId(1),
            adding_replicas=(),
            removing_replicas=(),
        )
    )
    return log


# -- between partitions and brokers ----------------------------------------------------------------


@breaks(12, 13)
def a_leader_on_a_fenced_broker() -> Log:
    log = cluster()
    log.write(log.fence(1))
    return log


@breaks(12)
def a_leader_in_a_lost_directory() -> Log:
    log = cluster()
    log.write(log.broker(1, log_dirs=(directory(9),)))
    return log


@keeps(12, 13, 30, 3, 4)
def brokers_that_are_fenced_one_by_one() -> Log:
    log = cluster()
    for _ in fence_in_order(log, 2, 1, 3):
        pass
    return log


@breaks(13)
def a_follower_fenced_within_the_isr() -> Log:
    log = cluster()
    log.write(log.fence(2))
    return log


@breaks(13)
def a_last_member_that_stays_though_elr_would_know_it() -> Log:
    log = cluster(1, elr=True)
    log.write(log.change(leader=NO_LEADER), log.fence(1))
    return log


@keeps(13)
def a_last_member_that_was_fenced_before_elr() -> Log:
    log = cluster(1)
    log.write(log.change(leader=NO_LEADER), log.fence(1))
    log.write(level(ELR_FEATURE, 1))
    return log


@breaks(13)
def a_shutdown_within_the_isr() -> Log:
    log = cluster()
    log.write(log.broker(2, in_controlled_shutdown=r.SHUTTING_DOWN))
    return log


@breaks(16)
def a_whole_isr_beside_an_elr() -> Log:
    log = cluster(elr=True)
    log.write(log.change(isr=ids(1), elr=ids(2, 3)))
    log.write(log.change(isr=ids(1, 2), elr=ids(3)))
    return log


@breaks(16)
def a_lowered_minimum_that_leaves_the_elr() -> Log:
    log = cluster(elr=True)
    log.write(log.change(isr=ids(1), elr=ids(2, 3)))
    log.write(config("min.insync.replicas", "1"))
    return log


@keeps(16)
def a_lowered_minimum_that_clears_the_elr() -> Log:
    log = cluster(elr=True)
    log.write(log.change(isr=ids(1), elr=ids(2, 3)))
    log.write(config("min.insync.replicas", "1"), r.ClearElrRecord(topic_name="orders"))
    return log


@breaks(18)
def a_crashed_broker_that_stays_eligible() -> Log:
    log = cluster(elr=True)
    log.write(log.change(isr=ids(1, 3)), log.fence(2))
    log.write(log.change(isr=ids(1), elr=ids(3)), log.fence(3))
    log.write(log.register(3, 2), unclean_restarts=frozenset(ids(3)))
    return log


@keeps(17, 18)
def a_crashed_broker_that_is_forgotten() -> Log:
    log = cluster(elr=True)
    log.write(log.change(isr=ids(1, 3)), log.fence(2))
    log.write(log.change(isr=ids(1), elr=ids(3)), log.fence(3))
    log.write(log.change(elr=()), log.register(3, 2), unclean_restarts=frozenset(ids(3)))
    return log


@keeps(18)
def a_crashed_broker_that_was_the_last_without_elr() -> Log:
    log = cluster(1)
    log.write(log.change(leader=NO_LEADER), log.register(1, 2), unclean_restarts=frozenset(ids(1)))
    return log


@breaks(25)
def a_candidate_that_comes_back_and_is_not_elected() -> Log:
    log = cluster(1)
    log.write(log.change(leader=NO_LEADER), log.fence(1))
    log.write(log.unfence(1))
    return log


@keeps(25)
def a_candidate_that_comes_back_and_leads() -> Log:
    log = cluster(1)
    log.write(log.change(leader=NO_LEADER), log.fence(1))
    log.write(log.unfence(1), log.change(leader=BrokerId(1)))
    return log
