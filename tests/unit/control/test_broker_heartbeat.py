"""BrokerHeartbeat: the states of a broker, and what a heartbeat may and may not do."""

import itertools
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log import records as r
from kraftpy.quorum.control.broker_heartbeat import APIS
from kraftpy.quorum.control.broker_state import (
    CONTROLLED_SHUTDOWN,
    FENCED,
    SHUTDOWN_NOW,
    TRANSITIONS,
    UNFENCED,
    BrokerState,
    current_state,
    next_state,
)
from kraftpy.quorum.control.decision import Decision
from kraftpy.types import NO_LEADER, BrokerId
from kraftpy.wire.apis import BROKER_HEARTBEAT
from tests.unit.control.cluster import (
    ELR,
    Cluster,
    broker,
    directory,
    ids,
    partition,
    topic,
    wire,
)
from tests.unit.control.makers import answers

VERSIONS = range(3)
CAUGHT_UP = 1 << 40


def heartbeat(broker_id: int, **changed: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "broker_id": broker_id,
        "broker_epoch": 100 * broker_id,
        "current_metadata_offset": CAUGHT_UP,
        "want_fence": False,
        "want_shut_down": False,
        "offline_log_dirs": [],
        "cordoned_log_dirs": None,
    }
    return known | changed


def beat(cluster: Cluster, broker_id: int, *, version: int = 2, **changed: Any) -> Any:
    """As the controller does it: the contact is noted when the heartbeat arrives."""
    values = heartbeat(broker_id, **changed)
    cluster.heartbeats.contact(
        BrokerId(broker_id),
        values["broker_epoch"],
        values["current_metadata_offset"],
        cluster.now_ms,
    )
    return cluster.ask(APIS, BROKER_HEARTBEAT, version, **values)


def decided(cluster: Cluster, broker_id: int, **changed: Any) -> Decision:
    return cluster.decide(APIS, BROKER_HEARTBEAT, 2, **heartbeat(broker_id, **changed))


def told(answer: Any) -> tuple[bool, bool, bool]:
    assert answer.error_code is ErrorCode.none
    return answer.is_caught_up, answer.is_fenced, answer.should_shut_down


# -- who may speak ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stale_epoch_is_refused(version: int) -> None:
    cluster = Cluster(broker(1))
    for epoch in (99, 101, -1):
        answer = beat(cluster, 1, version=version, broker_epoch=epoch)
        assert answer.error_code is ErrorCode.stale_broker_epoch
        assert answer.is_fenced
        assert not answer.should_shut_down


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_broker_is_refused(version: int) -> None:
    answer = beat(Cluster(), 1, version=version)
    assert answer.error_code is ErrorCode.broker_id_not_registered


# -- alive ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_heartbeat_of_a_serving_broker_writes_nothing(version: int) -> None:
    cluster = Cluster(broker(1), topic(), partition(0, 1))
    before = cluster.image
    assert told(beat(cluster, 1, version=version)) == (True, False, False)
    assert cluster.image == before


def test_a_heartbeat_needs_no_proof_of_leadership_and_may_have_many_records() -> None:
    assert not APIS[BROKER_HEARTBEAT].current
    assert decided(Cluster(broker(1)), 1).own


# -- unfence ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_is_unfenced_once_it_has_replayed_its_registration(version: int) -> None:
    cluster = Cluster(broker(1, fenced=True), topic(), partition(0, 1, leader=NO_LEADER))
    offset = cluster.image.end_offset - 1
    late = beat(cluster, 1, version=version, current_metadata_offset=offset - 1)
    assert told(late) == (False, True, False)
    assert cluster.broker(1).fenced
    arrived = beat(cluster, 1, version=version, current_metadata_offset=offset)
    assert told(arrived) == (True, False, False)
    assert not cluster.broker(1).fenced
    assert cluster.partition().leader == BrokerId(1)


def test_kafka_13959_a_busy_log_does_not_keep_a_broker_fenced() -> None:
    """What is appended after the registration never counts, however fast it comes."""
    cluster = Cluster(broker(1, fenced=True))
    offset = cluster.image.end_offset - 1
    for _ in range(100):
        cluster.apply([r.NoOpRecord()] * 100)
    assert told(beat(cluster, 1, current_metadata_offset=offset)) == (True, False, False)


def test_a_registration_behind_its_cleanup_must_be_replayed_to_the_end() -> None:
    """The epoch is the batch's first offset; the registration may be many records behind it."""
    cluster = Cluster()
    epoch = cluster.image.end_offset
    cleanup = [r.NoOpRecord()] * 5
    cluster.apply([*cleanup, broker(1, fenced=True, broker_epoch=epoch)])
    early = beat(cluster, 1, broker_epoch=epoch, current_metadata_offset=epoch)
    assert told(early) == (False, True, False)
    done = beat(cluster, 1, broker_epoch=epoch, current_metadata_offset=epoch + 5)
    assert told(done) == (True, False, False)


def test_a_broker_that_wants_to_stay_fenced_does() -> None:
    cluster = Cluster(broker(1, fenced=True))
    assert told(beat(cluster, 1, want_fence=True)) == (True, True, False)
    assert cluster.broker(1).fenced


def test_an_unfenced_broker_begins_a_session() -> None:
    cluster = Cluster(broker(1, fenced=True))
    beat(cluster, 1)
    assert cluster.heartbeats.has_session(BrokerId(1), cluster.now_ms, 0)


# -- fence ------------------------------------------------------------------------------------


def test_a_broker_may_ask_to_be_fenced() -> None:
    cluster = Cluster(broker(1), broker(2), topic(), partition(0, 1, 2))
    assert told(beat(cluster, 1, want_fence=True)) == (True, True, False)
    assert cluster.broker(1).fenced
    assert cluster.partition().leader == BrokerId(2)
    assert cluster.partition().isr == ids(2)


# -- controlled shutdown ----------------------------------------------------------------------


def shutting_down() -> Cluster:
    """Broker 1 led and has asked to stop; 2 and 3 have not replayed anything."""
    cluster = Cluster(*(broker(each) for each in (1, 2, 3)), topic(), partition(0, 1, 2))
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, False, False)
    return cluster


def test_a_shutdown_moves_the_leaders_away_first() -> None:
    cluster = shutting_down()
    assert cluster.broker(1).in_controlled_shutdown
    assert not cluster.broker(1).fenced
    assert cluster.partition().leader == BrokerId(2)
    assert cluster.partition().isr == ids(2)


def test_a_shutdown_is_granted_when_every_active_broker_has_replayed_it() -> None:
    cluster = shutting_down()
    last_offset = cluster.image.end_offset - 1
    beat(cluster, 2, current_metadata_offset=last_offset)
    beat(cluster, 3, current_metadata_offset=last_offset - 1)
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, False, False)
    beat(cluster, 3, current_metadata_offset=last_offset)
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, True, True)
    assert cluster.broker(1).fenced
    assert cluster.broker(1).in_controlled_shutdown


def test_a_granted_shutdown_is_granted_again_without_records() -> None:
    cluster = shutting_down()
    for each in (2, 3):
        beat(cluster, each)
    beat(cluster, 1, want_shut_down=True)
    before = cluster.image
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, True, True)
    assert cluster.image == before


def test_a_shutdown_waits_no_longer_for_a_broker_that_is_fenced() -> None:
    cluster = shutting_down()
    beat(cluster, 2)
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, False, False)
    beat(cluster, 3, want_fence=True)
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, True, True)


def test_a_shutdown_survives_a_failover_and_still_waits() -> None:
    cluster = shutting_down()
    cluster.fail_over()
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, False, False)
    for each in (2, 3):
        beat(cluster, each)
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, True, True)


def test_a_broker_that_leads_nothing_stops_at_once() -> None:
    cluster = Cluster(broker(1), broker(2), topic(), partition(0, 2, 1))
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, True, True)
    assert cluster.broker(1).fenced
    assert cluster.partition().isr == ids(2)


def test_a_fenced_broker_stops_at_once() -> None:
    cluster = Cluster(broker(1, fenced=True))
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, True, True)


def test_a_broker_that_also_wants_to_be_fenced_does_not_wait() -> None:
    cluster = Cluster(broker(1), broker(2), topic(), partition(0, 1, 2))
    assert told(beat(cluster, 1, want_shut_down=True, want_fence=True)) == (True, True, True)
    assert cluster.partition().leader == BrokerId(2)


def test_kafka_13916_a_shutting_down_broker_gets_no_leadership_back() -> None:
    cluster = shutting_down()
    beat(cluster, 2, want_fence=True)
    assert cluster.partition().leader == NO_LEADER
    beat(cluster, 1, want_shut_down=True)
    assert cluster.partition().leader == NO_LEADER


def test_a_broker_that_was_shut_down_is_unfenced_as_a_new_incarnation_only() -> None:
    cluster = Cluster(broker(1, fenced=True, in_controlled_shutdown=True))
    assert told(beat(cluster, 1)) == (True, True, False)
    assert cluster.broker(1).fenced


def test_the_only_replica_shuts_down_too() -> None:
    cluster = Cluster(broker(1), topic(), partition(0, 1))
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, False, False)
    assert cluster.partition().leader == NO_LEADER
    assert cluster.partition().isr == ids(1)
    assert told(beat(cluster, 1, want_shut_down=True)) == (True, True, True)


# -- directories ------------------------------------------------------------------------------

FIRST, SECOND = directory(1), directory(1, 1)


def two_directories(*extra: r.MetadataRecord, **changed: Any) -> Cluster:
    """Broker 1 leads partition 0 from its first directory and partition 1 from its second."""
    return Cluster(
        broker(1, log_dirs=(FIRST, SECOND), **changed),
        broker(2),
        *extra,
        topic(),
        partition(0, 1, 2),
        partition(1, 1, 2, directories=(SECOND, directory(2))),
    )


def test_a_failed_directory_moves_its_leaders_and_leaves_its_isrs() -> None:
    cluster = two_directories()
    assert told(beat(cluster, 1, offline_log_dirs=[wire(FIRST)])) == (True, False, False)
    assert cluster.partition(0).leader == BrokerId(2)
    assert cluster.partition(0).isr == ids(2)
    assert cluster.partition(1).partition_epoch == 0
    assert cluster.broker(1).log_dirs == (SECOND,)


def test_partition_changes_precede_the_loss_of_the_directory() -> None:
    records = decided(two_directories(), 1, offline_log_dirs=[wire(FIRST)]).records
    assert [type(each) for each in records] == [
        r.PartitionChangeRecord,
        r.BrokerRegistrationChangeRecord,
    ]


def test_a_failed_directory_is_told_once() -> None:
    cluster = two_directories()
    beat(cluster, 1, offline_log_dirs=[wire(FIRST)])
    before = cluster.image
    beat(cluster, 1, offline_log_dirs=[wire(FIRST), wire(directory(7))])
    assert cluster.image == before


def test_a_version_without_directories_reports_none() -> None:
    cluster = two_directories()
    beat(cluster, 1, version=0, offline_log_dirs=[wire(FIRST)])
    assert cluster.broker(1).log_dirs == (FIRST, SECOND)


def test_a_broker_without_a_directory_left_is_fenced_and_stays_so() -> None:
    cluster = two_directories()
    lost = [wire(FIRST), wire(SECOND)]
    for _ in range(2):
        assert told(beat(cluster, 1, offline_log_dirs=lost)) == (True, True, False)
        assert cluster.broker(1).fenced
        assert cluster.broker(1).log_dirs == (FIRST, SECOND)
    for each in (0, 1):
        assert cluster.partition(each).leader == BrokerId(2)
        assert cluster.partition(each).isr == ids(2)


def test_a_broker_is_not_elected_from_the_directory_it_reports_as_failed() -> None:
    """Both come in one heartbeat: the failure, and the wish to serve."""
    cluster = Cluster(
        broker(1, fenced=True, log_dirs=(FIRST, SECOND)),
        topic(),
        partition(0, 1, leader=NO_LEADER),
        partition(1, 1, leader=NO_LEADER, directories=(SECOND,)),
    )
    assert told(beat(cluster, 1, offline_log_dirs=[wire(FIRST)])) == (True, False, False)
    assert cluster.partition(0).leader == NO_LEADER
    assert cluster.partition(1).leader == BrokerId(1)


@pytest.mark.parametrize("extra", [(), (ELR,)])
@pytest.mark.parametrize("wish", ["want_fence", "want_shut_down"])
def test_a_failure_and_a_step_in_one_heartbeat_replay_one_after_the_other(
    wish: str, extra: tuple[r.MetadataRecord, ...]
) -> None:
    """Decided on the same image, the second change of a partition would not replay."""
    cluster = two_directories(*extra)
    beat(cluster, 1, offline_log_dirs=[wire(FIRST)], **{wish: True})
    for each in (0, 1):
        assert cluster.partition(each).leader == BrokerId(2)
        assert cluster.partition(each).isr == ids(2)
    assert cluster.broker(1).log_dirs == (SECOND,)


def test_cordoned_directories_are_remembered() -> None:
    cluster = two_directories()
    beat(cluster, 1, cordoned_log_dirs=[wire(SECOND), wire(directory(7))])
    assert cluster.broker(1).cordoned_log_dirs == (SECOND,)
    before = cluster.image
    beat(cluster, 1, cordoned_log_dirs=None)
    beat(cluster, 1, cordoned_log_dirs=[wire(SECOND)])
    assert cluster.image == before
    beat(cluster, 1, cordoned_log_dirs=[])
    assert cluster.broker(1).cordoned_log_dirs == ()


def test_a_cordoned_directory_that_fails_is_no_longer_cordoned() -> None:
    cluster = two_directories(cordoned_log_dirs=(FIRST,))
    beat(cluster, 1, offline_log_dirs=[wire(FIRST)])
    assert cluster.broker(1).cordoned_log_dirs == ()


# -- the table --------------------------------------------------------------------------------


def test_the_table_has_every_step_that_a_heartbeat_can_take_and_no_other() -> None:
    taken: dict[BrokerState, set[BrokerState]] = {state: set() for state in TRANSITIONS}
    for fenced, shutting, *flags in itertools.product([True, False], repeat=7):
        each = broker(1, fenced=fenced, in_controlled_shutdown=shutting)
        wants_fence, wants_shutdown, is_caught_up, leads, know = flags
        state = next_state(
            each,
            wants_fence=wants_fence,
            wants_shutdown=wants_shutdown,
            is_caught_up=is_caught_up,
            leads_any=lambda leads=leads: leads,  # type: ignore[misc]
            others_know=lambda know=know: know,  # type: ignore[misc]
        )
        taken[current_state(each)].add(state)
    taken[CONTROLLED_SHUTDOWN].add(FENCED)  # By the end of its session.
    assert taken == {state: set(steps) for state, steps in TRANSITIONS.items()}


def test_no_broker_is_told_to_stop_while_it_leads_unless_it_wants_to_be_fenced() -> None:
    for shutting, wants_shutdown, know in itertools.product([True, False], repeat=3):
        state = next_state(
            broker(1, in_controlled_shutdown=shutting),
            wants_fence=False,
            wants_shutdown=wants_shutdown,
            is_caught_up=True,
            leads_any=lambda: True,
            others_know=lambda know=know: know,  # type: ignore[misc]
        )
        assert state is not SHUTDOWN_NOW


def test_only_fenced_and_stopped_brokers_are_told_that_they_are_fenced() -> None:
    assert [each for each in BrokerState if each.is_fenced] == [FENCED, SHUTDOWN_NOW]
    assert not UNFENCED.is_fenced


def test_every_version_can_be_refused() -> None:
    api = APIS[BROKER_HEARTBEAT]
    values = api.refuse(None, ErrorCode.not_controller, "another one leads")
    found = answers(BROKER_HEARTBEAT, api, values)
    assert list(found) == list(VERSIONS)
    for answer in found.values():
        assert answer.error_code is ErrorCode.not_controller
        assert not answer.should_shut_down
