"""BrokerRegistration and UnregisterBroker: who may register, and what a new life ends."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log import records as r
from kraftpy.quorum.control.brokers import APIS
from kraftpy.quorum.control.decision import Decision
from kraftpy.types import NO_LEADER, BrokerId, uuid_text
from kraftpy.wire.apis import BROKER_REGISTRATION, UNREGISTER_BROKER
from tests.unit.control.cluster import (
    ELR,
    METADATA_LEVEL,
    SESSION_MS,
    Cluster,
    broker,
    config,
    directory,
    feature,
    ids,
    incarnation,
    partition,
    topic,
    wire,
)
from tests.unit.control.makers import CLUSTER_ID, answers

VERSIONS = range(5)
MIN_ISR_2 = config("min.insync.replicas", "2")


def supports(name: str, lowest: int, highest: int) -> dict[str, Any]:
    return {"name": name, "min_supported_version": lowest, "max_supported_version": highest}


def listener(name: str = "PLAINTEXT", protocol: int = 0) -> dict[str, Any]:
    return {"name": name, "host": "localhost", "port": 9092, "security_protocol": protocol}


def registration(broker_id: int, life: int = 2, **changed: Any) -> dict[str, Any]:
    """The request of a broker that is started for the second time, unless `life` says other."""
    known: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": uuid_text(CLUSTER_ID),
        "incarnation_id": wire(incarnation(broker_id, life)),
        "listeners": [listener()],
        "features": [supports(r.METADATA_VERSION, 1, METADATA_LEVEL), supports(ELR.name, 0, 1)],
        "rack": "a",
        "log_dirs": [wire(directory(broker_id))],
    }
    return known | changed


def register(cluster: Cluster, broker_id: int, *, version: int = 4, **changed: Any) -> Any:
    return cluster.ask(APIS, BROKER_REGISTRATION, version, **registration(broker_id, **changed))


def decided(cluster: Cluster, broker_id: int, **changed: Any) -> Decision:
    return cluster.decide(APIS, BROKER_REGISTRATION, 4, **registration(broker_id, **changed))


# -- a first registration ---------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_broker_starts_fenced_with_the_batch_offset_as_its_epoch(version: int) -> None:
    cluster = Cluster()
    epoch = cluster.image.end_offset
    answer = register(cluster, 1, version=version)
    assert answer.error_code is ErrorCode.none
    assert answer.broker_epoch == epoch
    found = cluster.broker(1)
    assert found.fenced
    assert not found.in_controlled_shutdown
    assert found.broker_epoch == epoch
    assert found.incarnation_id == incarnation(1, 2)
    assert found.rack == "a"
    assert found.end_points == (
        r.Endpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0),
    )
    assert [each.name for each in found.features] == [r.METADATA_VERSION, ELR.name]
    assert found.log_dirs == ((directory(1),) if version >= 2 else ())


def test_the_registration_may_have_more_records_than_a_batch() -> None:
    assert decided(Cluster(), 1).own


def test_epochs_grow_with_each_incarnation() -> None:
    cluster = Cluster()
    epochs = [register(cluster, 1, life=life).broker_epoch for life in (1, 2, 3)]
    assert epochs == sorted(set(epochs))


# -- the same incarnation ---------------------------------------------------------------------


@pytest.mark.parametrize("fenced", [True, False])
def test_kafka_16952_the_same_incarnation_keeps_its_epoch(fenced: bool) -> None:
    cluster = Cluster(broker(1, fenced=fenced), topic(), partition(0, 1))
    answer = register(cluster, 1, life=1, rack="b")
    assert answer.error_code is ErrorCode.none
    assert answer.broker_epoch == cluster.broker(1).broker_epoch == 100
    assert cluster.broker(1).fenced is fenced
    assert cluster.broker(1).rack == "b"
    assert cluster.partition().leader == BrokerId(1)
    assert cluster.partition().partition_epoch == 0


def test_registering_again_with_nothing_new_writes_nothing() -> None:
    cluster = Cluster()
    first = register(cluster, 1)
    end_offset = cluster.image.end_offset
    assert register(cluster, 1).broker_epoch == first.broker_epoch
    assert cluster.image.end_offset == end_offset


def test_a_shutdown_goes_on_when_the_same_incarnation_registers_again() -> None:
    cluster = Cluster(broker(1, in_controlled_shutdown=True))
    register(cluster, 1, life=1)
    assert cluster.broker(1).in_controlled_shutdown


def test_a_directory_that_the_same_incarnation_no_longer_names_leaves_isrs() -> None:
    both = (directory(1), directory(1, 1))
    cluster = Cluster(
        broker(1, log_dirs=both, cordoned_log_dirs=both), broker(2), topic(), partition(0, 1, 2)
    )
    register(cluster, 1, life=1, log_dirs=[wire(directory(1, 1))])
    assert cluster.partition().leader == BrokerId(2)
    assert cluster.partition().isr == ids(2)
    assert cluster.broker(1).log_dirs == (directory(1, 1),)
    assert cluster.broker(1).cordoned_log_dirs == (directory(1, 1),)


# -- duplicates -------------------------------------------------------------------------------


def test_another_incarnation_is_refused_while_the_first_one_is_alive() -> None:
    cluster = Cluster(broker(1))
    before = cluster.image
    answer = register(cluster, 1)
    assert answer.error_code is ErrorCode.duplicate_broker_registration
    assert answer.broker_epoch == -1
    assert cluster.image == before


def test_another_incarnation_is_accepted_once_the_session_is_over() -> None:
    cluster = Cluster(broker(1))
    cluster.now_ms += SESSION_MS
    assert register(cluster, 1).error_code is ErrorCode.duplicate_broker_registration
    cluster.now_ms += 1
    assert register(cluster, 1).error_code is ErrorCode.none
    assert cluster.broker(1).fenced


def test_a_restart_after_the_fence_need_not_wait_for_the_session() -> None:
    cluster = Cluster(broker(1, fenced=True))
    cluster.heartbeats.contact(BrokerId(1), 100, 5, cluster.now_ms)
    assert register(cluster, 1).error_code is ErrorCode.none


def test_a_new_controller_gives_a_registered_broker_a_session_before_another_may_have_its_id() -> (
    None
):
    cluster = Cluster(broker(1))
    cluster.now_ms += SESSION_MS + 1
    cluster.fail_over()
    assert register(cluster, 1).error_code is ErrorCode.duplicate_broker_registration


# -- what is refused --------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "another_cluster": ({"cluster_id": "other"}, ErrorCode.inconsistent_cluster_id),
    "a_negative_id": ({"broker_id": -1}, ErrorCode.invalid_registration),
    "no_directory": ({"log_dirs": []}, ErrorCode.invalid_registration),
    "a_reserved_directory": (
        {"log_dirs": [wire(r.LOST_DIRECTORY)]},
        ErrorCode.invalid_registration,
    ),
    "a_directory_without_an_id": ({"log_dirs": [None]}, ErrorCode.invalid_registration),
    "a_directory_twice": (
        {"log_dirs": [wire(directory(1)), wire(directory(1))]},
        ErrorCode.invalid_registration,
    ),
    "a_directory_of_another_broker": (
        {"log_dirs": [wire(directory(1)), wire(directory(9))]},
        ErrorCode.invalid_registration,
    ),
    "two_listeners_of_one_name": (
        {"listeners": [listener(), listener()]},
        ErrorCode.invalid_registration,
    ),
    "an_unknown_security_protocol": (
        {"listeners": [listener(protocol=9)]},
        ErrorCode.invalid_registration,
    ),
    "no_metadata_version": ({"features": []}, ErrorCode.invalid_registration),
    "a_feature_twice": (
        {"features": [supports(r.METADATA_VERSION, 1, METADATA_LEVEL)] * 2},
        ErrorCode.invalid_registration,
    ),
    "an_older_metadata_version": (
        {"features": [supports(r.METADATA_VERSION, 1, METADATA_LEVEL - 1)]},
        ErrorCode.unsupported_version,
    ),
    "a_newer_metadata_version": (
        {"features": [supports(r.METADATA_VERSION, METADATA_LEVEL + 1, 99)]},
        ErrorCode.unsupported_version,
    ),
    "a_zookeeper_broker": ({"is_migrating_zk_broker": True}, ErrorCode.broker_id_not_registered),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    changed, error_code = REFUSED[case]
    cluster = Cluster(broker(9))
    before = cluster.image
    answer = cluster.ask(APIS, BROKER_REGISTRATION, 4, **(registration(1) | changed))
    assert answer.error_code is error_code
    assert answer.broker_epoch == -1
    assert cluster.image == before


def test_a_broker_may_keep_its_own_directory_over_a_restart() -> None:
    cluster = Cluster(broker(1, fenced=True))
    assert register(cluster, 1).error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("features", "error_code"),
    [
        ([], ErrorCode.unsupported_version),
        ([supports("group.version", 0, 1)], ErrorCode.none),
        ([supports("group.version", 0, 0)], ErrorCode.unsupported_version),
        ([supports("group.version", 2, 3)], ErrorCode.unsupported_version),
    ],
)
def test_a_broker_must_support_every_finalized_level(
    features: list[Any], error_code: ErrorCode
) -> None:
    cluster = Cluster(feature("group.version", 1))
    base = [supports(r.METADATA_VERSION, 1, METADATA_LEVEL)]
    assert register(cluster, 1, features=base + features).error_code is error_code


def test_a_feature_that_is_not_finalized_is_at_level_0() -> None:
    base = [supports(r.METADATA_VERSION, 1, METADATA_LEVEL)]
    for lowest, error_code in ((0, ErrorCode.none), (1, ErrorCode.unsupported_version)):
        features = [*base, supports("new.version", lowest, 1)]
        assert register(Cluster(), 1, features=features).error_code is error_code


# -- the end of the previous life -------------------------------------------------------------


def restarted(*extra: r.MetadataRecord, previous_epoch: int, version: int = 4) -> Cluster:
    """Broker 1 led partition 0 and followed in partition 1; it comes back before it is fenced."""
    cluster = Cluster(
        *(broker(each) for each in (1, 2, 3)),
        topic(),
        *extra,
        partition(0, 1, 2, 3),
        partition(1, 2, 1),
    )
    cluster.now_ms += SESSION_MS + 1
    answer = register(cluster, 1, version=version, previous_broker_epoch=previous_epoch)
    assert answer.error_code is ErrorCode.none
    return cluster


@pytest.mark.parametrize("extra", [(), (ELR, MIN_ISR_2)])
@pytest.mark.parametrize("previous_epoch", [100, -1])
def test_kafka_18106_a_restarted_broker_is_out_of_every_isr_when_it_is_registered(
    extra: tuple[r.MetadataRecord, ...], previous_epoch: int
) -> None:
    cluster = restarted(*extra, previous_epoch=previous_epoch)
    assert cluster.partition(0).leader == BrokerId(2)
    assert cluster.partition(0).isr == ids(2, 3)
    assert cluster.partition(0).leader_epoch == 1
    assert cluster.partition(1).isr == ids(2)
    assert cluster.partition(1).partition_epoch == 1


def test_the_changes_of_the_previous_life_precede_the_registration_and_share_its_epoch() -> None:
    cluster = Cluster(broker(1), broker(2), topic(), partition(0, 1, 2))
    cluster.now_ms += SESSION_MS + 1
    records = decided(cluster, 1).records
    assert [type(each) for each in records] == [r.PartitionChangeRecord, r.RegisterBrokerRecord]
    last = records[-1]
    assert isinstance(last, r.RegisterBrokerRecord)
    assert last.broker_epoch == cluster.image.end_offset


def test_a_clean_restart_stays_eligible() -> None:
    cluster = restarted(ELR, MIN_ISR_2, previous_epoch=100)
    assert cluster.partition(1).elr == ids(1)


@pytest.mark.parametrize("previous_epoch", [-1, 99, 101])
def test_an_unclean_restart_is_not_eligible(previous_epoch: int) -> None:
    cluster = restarted(ELR, MIN_ISR_2, previous_epoch=previous_epoch)
    assert cluster.partition(1).elr == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_only_versions_that_can_prove_a_clean_shutdown_had_one(version: int) -> None:
    cluster = restarted(ELR, MIN_ISR_2, previous_epoch=100, version=version)
    assert cluster.partition(1).elr == (ids(1) if version >= 3 else ())


@pytest.mark.parametrize("previous_epoch", [100, -1])
def test_an_eligible_replica_loses_its_place_with_an_unclean_restart_only(
    previous_epoch: int,
) -> None:
    eligible = partition(0, 2, 1, isr=ids(2), eligible_leader_replicas=ids(1))
    cluster = Cluster(broker(1, fenced=True), broker(2), ELR, topic(), MIN_ISR_2, eligible)
    register(cluster, 1, previous_broker_epoch=previous_epoch)
    assert cluster.partition().elr == (ids(1) if previous_epoch == 100 else ())


def test_the_last_member_of_an_isr_keeps_its_place_without_elr() -> None:
    """It alone is known to hold every committed record; but it leads nothing while fenced."""
    cluster = Cluster(broker(1), broker(2), topic(), partition(0, 1, 2, isr=ids(1)))
    cluster.now_ms += SESSION_MS + 1
    register(cluster, 1)
    assert cluster.partition().isr == ids(1)
    assert cluster.partition().leader == NO_LEADER


def test_an_unclean_restart_is_not_elected_by_its_own_registration() -> None:
    """The image still shows the previous life as unfenced, and unclean election is allowed."""
    alone = partition(0, 1, 2, isr=ids(1))
    unclean = config("unclean.leader.election.enable", "true")
    for extra in ((), (ELR,)):
        cluster = Cluster(broker(1), broker(2, fenced=True), *extra, topic(), unclean, alone)
        cluster.now_ms += SESSION_MS + 1
        register(cluster, 1)
        assert cluster.partition().leader == NO_LEADER


def test_a_broker_that_was_unregistered_comes_back_as_unclean() -> None:
    eligible = partition(0, 2, 1, isr=ids(2), eligible_leader_replicas=ids(1))
    cluster = Cluster(broker(2), ELR, topic(), MIN_ISR_2, eligible)
    register(cluster, 1, previous_broker_epoch=-1)
    assert cluster.partition().elr == ()


# -- UnregisterBroker -------------------------------------------------------------------------


def unregister(cluster: Cluster, broker_id: int) -> Any:
    return cluster.ask(APIS, UNREGISTER_BROKER, 0, broker_id=broker_id)


def test_an_unregistered_broker_is_gone_and_leads_nothing() -> None:
    cluster = Cluster(broker(1), broker(2), topic(), partition(0, 1, 2), partition(1, 2, 1))
    answer = unregister(cluster, 1)
    assert answer.error_code is ErrorCode.none
    assert answer.error_message is None
    assert BrokerId(1) not in cluster.image.brokers
    assert cluster.partition(0).leader == BrokerId(2)
    assert cluster.partition(0).isr == cluster.partition(1).isr == ids(2)
    assert not cluster.heartbeats.has_session(BrokerId(1), cluster.now_ms, SESSION_MS)


def test_partition_changes_precede_the_unregistration() -> None:
    cluster = Cluster(broker(1), broker(2), topic(), partition(0, 1, 2))
    decision = cluster.decide(APIS, UNREGISTER_BROKER, 0, broker_id=1)
    assert [type(each) for each in decision.records] == [
        r.PartitionChangeRecord,
        r.UnregisterBrokerRecord,
    ]
    assert decision.own


def test_an_unregistered_broker_is_not_eligible_either() -> None:
    eligible = partition(0, 2, 1, isr=ids(2), eligible_leader_replicas=ids(1))
    member = partition(1, 2, 1)
    cluster = Cluster(broker(1), broker(2), ELR, topic(), MIN_ISR_2, eligible, member)
    unregister(cluster, 1)
    for each in (0, 1):
        assert cluster.partition(each).isr == ids(2)
        assert cluster.partition(each).elr == ()


def test_an_unknown_broker_cannot_be_unregistered() -> None:
    answer = unregister(Cluster(), 7)
    assert answer.error_code is ErrorCode.broker_id_not_registered
    assert answer.error_message == "broker 7 is not registered"


# -- answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("api_key", [BROKER_REGISTRATION, UNREGISTER_BROKER])
def test_every_version_can_be_refused(api_key: int) -> None:
    api = APIS[api_key]
    values = api.refuse(None, ErrorCode.not_controller, "another one leads")
    for answer in answers(api_key, api, values).values():
        assert answer.error_code is ErrorCode.not_controller
