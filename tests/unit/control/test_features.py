"""Feature levels: what a new cluster begins with, and who must agree before a level changes."""

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log import ClusterImage, MetadataRecord
from kraftpy.metadata_log.codec import encode_record
from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.records import (
    BROKER_RESOURCE,
    METADATA_VERSION,
    RECORD_TYPES,
    TOPIC_RESOURCE,
    ClearElrRecord,
    ConfigRecord,
    Feature,
    FeatureLevelRecord,
)
from kraftpy.quorum.control.decision import Decision
from kraftpy.quorum.control.features import (
    APIS,
    METADATA_VERSION_LEVEL,
    SUPPORTED,
    bootstrap_records,
    supported_features,
)
from kraftpy.quorum.control.topic_settings import ELR_FEATURE, elr_enabled
from kraftpy.types import BrokerId
from kraftpy.wire.apis import UPDATE_FEATURES
from tests.unit.control.makers import answers, ask, image_of, request, situation
from tests.unit.metadata_log.makers import TOPIC_ID, brokers, controller, partition, register, topic

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
MIN_ISR = "min.insync.replicas"
ELR_ON = FeatureLevelRecord(name=ELR_FEATURE, feature_level=1)
ELR_OFF = FeatureLevelRecord(name=ELR_FEATURE, feature_level=0)
LEVEL = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL)
OLD = (Feature(name=METADATA_VERSION, min_supported_version=33, max_supported_version=33),)


def registered(*ids: int, features: tuple[Feature, ...] | None = None) -> list[MetadataRecord]:
    known = supported_features() if features is None else features
    return [replace_features(controller(each), known) for each in ids]


def replace_features(record: Any, features: tuple[Feature, ...]) -> Any:
    return replace(record, features=features)


IMAGE = image_of(LEVEL, *registered(1, 2, 3))


def min_isr(name: str, value: str | None, resource_type: int = BROKER_RESOURCE) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=MIN_ISR, value=value)


def update(name: str, level: int, kind: int = UPGRADE) -> dict[str, Any]:
    return {
        "feature": name,
        "max_version_level": level,
        "upgrade_type": kind,
        "allow_downgrade": kind != UPGRADE,
    }


def ask_for(
    image: ClusterImage, *updates: dict[str, Any], version: int = 2, **values: Any
) -> tuple[Decision, Any]:
    settings = {
        name: values.pop(name) for name in ("voters", "min_insync_replicas") if name in values
    }
    return ask(
        APIS,
        situation(image, **settings),
        UPDATE_FEATURES,
        version,
        feature_updates=updates,
        **values,
    )


# -- a new cluster ----------------------------------------------------------------------------


def test_a_new_cluster_begins_with_levels_and_one_min_insync_replicas() -> None:
    records = bootstrap_records(image_of(), situation(min_insync_replicas=2).settings)
    groups = FeatureLevelRecord(name="group.version", feature_level=1)
    assert records == (LEVEL, min_isr("", "2"), ELR_ON, groups)


def test_a_cluster_with_levels_is_not_begun_again() -> None:
    settings = situation().settings
    image = replay_all(image_of(), bootstrap_records(image_of(), settings))
    assert elr_enabled(image)
    assert bootstrap_records(image, settings) == ()


def test_every_level_at_the_beginning_is_supported() -> None:
    image = replay_all(image_of(), bootstrap_records(image_of(), situation().settings))
    for name, level in image.features.items():
        low, high = SUPPORTED[name]
        assert low <= level <= high


def test_every_record_version_belongs_to_the_one_metadata_version() -> None:
    """The newest version of each type in Kafka 4.4, whose metadata.version is 33."""
    assert SUPPORTED[METADATA_VERSION] == (33, 33)
    newest = {api_key: cls.MAX_VERSION for api_key, cls in RECORD_TYPES.items() if cls.MAX_VERSION}
    assert newest == {0: 4, 3: 2, 5: 2, 17: 3}
    assert max(RECORD_TYPES) == 29
    assert encode_record(LEVEL)


# -- levels go up and down --------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elr_goes_on_with_one_min_insync_replicas_for_all(version: int) -> None:
    image = image_of(min_isr("1", "3"), min_isr("2", "1"), base=IMAGE)
    decision, answer = ask_for(
        image, update(ELR_FEATURE, 1), version=version, min_insync_replicas=2
    )
    assert answer.error_code is ErrorCode.none
    assert decision.records == [min_isr("", "2"), min_isr("1", None), min_isr("2", None), ELR_ON]
    assert elr_enabled(replay_all(image, decision.records))


def test_what_the_cluster_was_told_stays() -> None:
    others = min_isr("orders", "2", TOPIC_RESOURCE), min_isr("", "3")
    decision, _ = ask_for(image_of(*others, base=IMAGE), update(ELR_FEATURE, 1))
    assert decision.records == [ELR_ON]


@pytest.mark.parametrize("kind", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_elr_goes_off_and_takes_the_lists_with_it(version: int, kind: int) -> None:
    image = image_of(
        ELR_ON,
        topic(),
        partition(isr=brokers(1), eligible_leader_replicas=brokers(2), last_known_elr=brokers(3)),
        base=IMAGE,
    )
    decision, answer = ask_for(image, update(ELR_FEATURE, 0, kind), version=version)
    assert answer.error_code is ErrorCode.none
    assert decision.records == [ClearElrRecord(topic_name=""), ELR_OFF]
    after = replay_all(image, decision.records)
    found = after.partition(TOPIC_ID, 0)
    assert found is not None
    assert (found.elr, found.last_known_elr) == ((), ())
    assert not elr_enabled(after)


def test_elr_stays_on_while_only_it_knows_who_holds_a_partition() -> None:
    leaderless = partition(isr=(), leader=BrokerId(-1), eligible_leader_replicas=brokers(2))
    image = image_of(ELR_ON, topic(), leaderless, base=IMAGE)
    decision, answer = ask_for(image, update(ELR_FEATURE, 0, SAFE_DOWNGRADE))
    assert answer.error_code is ErrorCode.invalid_update_version
    assert "orders-0 has nobody in sync" in answer.error_message
    assert decision.records == ()


def test_a_level_that_does_not_change_writes_nothing() -> None:
    image = image_of(ELR_ON, base=IMAGE)
    for kind in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        decision, answer = ask_for(
            image,
            update(ELR_FEATURE, 1, kind),
            update(METADATA_VERSION, 33, kind),
            update("kraft.version", 0, kind),
        )
        assert (answer.error_code, decision.records) == (ErrorCode.none, [])


def test_validate_only_writes_nothing_but_refuses_the_same() -> None:
    for level, error_code in ((1, ErrorCode.none), (2, ErrorCode.invalid_update_version)):
        decision, answer = ask_for(IMAGE, update(ELR_FEATURE, level), validate_only=True)
        assert (answer.error_code, decision.records) == (error_code, ())


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (update(ELR_FEATURE, 0), "which takes a downgrade"),
        (update(ELR_FEATURE, 2), "this controller supports only 0 to 1"),
        (update(ELR_FEATURE, -1, SAFE_DOWNGRADE), "not negative"),
        (update(ELR_FEATURE, 1, 0), "unknown upgrade type 0"),
        (update(ELR_FEATURE, 1, 4), "unknown upgrade type 4"),
        (update("group.version", 2), "supports only 0 to 1"),
        (update("transaction.version", 2), "supports only 0 to 0"),
        (update("kraft.version", 1), "supports only 0 to 0"),
        (update(METADATA_VERSION, 34), "supports only 33 to 33"),
        (update(METADATA_VERSION, 32, UNSAFE_DOWNGRADE), "supports only 33 to 33"),
        (update("no.such.feature", 1), "not a feature"),
        (update("no.such.feature", 0, SAFE_DOWNGRADE), "not a feature"),
    ],
)
def test_what_is_refused(asked: dict[str, Any], why: str) -> None:
    decision, answer = ask_for(image_of(ELR_ON, base=IMAGE), asked)
    assert answer.error_code is ErrorCode.invalid_update_version
    assert why in answer.error_message
    assert not decision.records


def test_a_downgrade_does_not_go_up() -> None:
    _, answer = ask_for(IMAGE, update(ELR_FEATURE, 1, SAFE_DOWNGRADE))
    assert "which is no downgrade" in answer.error_message


# -- who must agree ---------------------------------------------------------------------------


@pytest.mark.parametrize("fenced", [False, True])
def test_every_registered_broker_must_support_the_level(fenced: bool) -> None:
    able = register(1, features=supported_features(), fenced=False)
    unable = register(2, features=OLD, fenced=fenced)
    decision, answer = ask_for(image_of(able, unable, base=IMAGE), update(ELR_FEATURE, 1))
    assert answer.error_code is ErrorCode.invalid_update_version
    assert "broker 2 supports only 0 to 0" in answer.error_message
    assert not decision.records
    decision, _ = ask_for(image_of(able, base=IMAGE), update(ELR_FEATURE, 1))
    assert decision.records


def test_every_controller_must_support_the_level() -> None:
    image = image_of(*registered(2, features=OLD), base=IMAGE)
    _, answer = ask_for(image, update(ELR_FEATURE, 1))
    assert "controller 2 supports only 0 to 0" in answer.error_message


def test_a_controller_that_has_not_registered_may_not_support_it() -> None:
    image = image_of(LEVEL, *registered(1, 2))
    _, answer = ask_for(image, update(ELR_FEATURE, 1))
    assert "controller 3 has not said" in answer.error_message
    alone = image_of(LEVEL)
    _, answer = ask_for(alone, update(ELR_FEATURE, 1), voters=(1,))
    assert answer.error_code is ErrorCode.none


# -- the answer -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_one_refused_feature_refuses_them_all(version: int) -> None:
    asked = update(ELR_FEATURE, 1), update("transaction.version", 2)
    for updates in (asked, asked[::-1]):
        decision, answer = ask_for(IMAGE, *updates, version=version)
        assert not decision.records
        assert answer.error_code is ErrorCode.invalid_update_version
        assert "transaction.version cannot be set to 2" in answer.error_message
        if version < 2:
            codes = {each.feature: each.error_code for each in answer.results}
            assert codes == {
                ELR_FEATURE: ErrorCode.feature_update_failed,
                "transaction.version": ErrorCode.invalid_update_version,
            }


@pytest.mark.parametrize("version", [0, 1])
def test_old_versions_say_so_for_each_feature(version: int) -> None:
    _, answer = ask_for(IMAGE, update(ELR_FEATURE, 1), version=version)
    assert [(each.feature, each.error_code) for each in answer.results] == [
        (ELR_FEATURE, ErrorCode.none)
    ]


def test_a_feature_is_named_once() -> None:
    _, answer = ask_for(IMAGE, update(ELR_FEATURE, 1), update(ELR_FEATURE, 0))
    assert answer.error_code is ErrorCode.invalid_request


def test_a_refusal_for_all_is_answered() -> None:
    api = APIS[UPDATE_FEATURES]
    message = request(UPDATE_FEATURES, 1, feature_updates=[update(ELR_FEATURE, 1)])
    found = answers(UPDATE_FEATURES, api, api.refuse(message, ErrorCode.not_controller, "not here"))
    assert {each.error_code for each in found.values()} == {ErrorCode.not_controller}
    assert [each.error_code for each in found[0].results] == [ErrorCode.not_controller]


def test_a_broker_id_is_not_a_controller_id() -> None:
    """Both are counted from one space of ids, but only their own registrations speak for them."""
    image = image_of(LEVEL, *registered(1, 2), register(3, features=supported_features()))
    assert BrokerId(3) in image.brokers
    _, answer = ask_for(image, update(ELR_FEATURE, 1))
    assert "controller 3 has not said" in answer.error_message
