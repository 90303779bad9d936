"""Configs are altered all or nothing per resource, and what they imply for ELR is written too."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kraftpy import topic_configs
from kraftpy.describe.configs import configs_of
from kraftpy.errors import ConfigError
from kraftpy.limits import BATCH_RECORDS_MAX
from kraftpy.metadata_log import MetadataRecord
from kraftpy.metadata_log import records as r
from kraftpy.quorum.control.configs import (
    APIS,
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    enables_unclean_election,
)
from kraftpy.quorum.control.topic_settings import min_insync_replicas
from kraftpy.types import TopicId, Uuid
from kraftpy.wire.apis import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
from tests.unit.control.cluster import ELR, Cluster, broker, config, ids, partition, topic
from tests.unit.control.makers import answers, request

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
NONE = ErrorCode.none
OTHER_ID = TopicId(Uuid(b"O" * 16))


def cluster(*more: MetadataRecord) -> Cluster:
    return Cluster(broker(1), broker(2), topic(), partition(0, 1, 2), *more)


def resource(kind: int, name: str, *configs: tuple[Any, ...]) -> dict[str, Any]:
    """Configs are (name, value) or (name, value, operation)."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": each[0], "value": each[1], "config_operation": (*each, SET)[2]}
            for each in configs
        ],
    }


def alter(
    where: Cluster, *resources: dict[str, Any], version: int = 1, validate_only: bool = False
) -> list[Any]:
    values = {"resources": resources, "validate_only": validate_only}
    return list(where.ask(APIS, INCREMENTAL_ALTER_CONFIGS, version, **values).responses)


def replace_all(where: Cluster, *resources: dict[str, Any], version: int = 2) -> list[Any]:
    values = {"resources": resources, "validate_only": False}
    return list(where.ask(APIS, ALTER_CONFIGS, version, **values).responses)


def configs(where: Cluster, kind: int = TOPIC, name: str = "orders") -> dict[str, str]:
    return dict(where.image.configs.get((kind, name), {}))


@pytest.mark.parametrize("version", [0, 1])
def test_a_config_is_set_and_deleted_in_every_version(version: int) -> None:
    where = cluster()
    (result,) = alter(where, resource(TOPIC, "orders", ("flush.ms", "5")), version=version)
    assert (result.error_code, result.resource_type) == (NONE, TOPIC)
    assert result.resource_name == "orders"
    assert configs(where) == {"flush.ms": "5"}
    alter(where, resource(TOPIC, "orders", ("flush.ms", None, DELETE)), version=version)
    assert configs(where) == {}


def test_lists_are_appended_to_and_subtracted_from() -> None:
    where = cluster()

    def policy(value: str, operation: int) -> str | None:
        change = resource(TOPIC, "orders", ("cleanup.policy", value, operation))
        assert alter(where, change)[0].error_code == NONE
        return configs(where).get("cleanup.policy")

    assert policy("compact", APPEND) == "delete,compact"  # To the default.
    assert policy("compact", APPEND) == "delete,compact"
    assert policy("delete", SUBTRACT) == "compact"
    assert policy("compact", SUBTRACT) == ""
    assert policy("delete", APPEND) == "delete"


@pytest.mark.parametrize(
    ("change", "error_code", "said"),
    [
        (("flush.ms", "x"), ErrorCode.invalid_config, "flush.ms must be"),
        (("flush.sm", "1"), ErrorCode.invalid_config, "unknown topic config"),
        (("flush.ms", None), ErrorCode.invalid_request, "no value"),
        (("flush.ms", "1", APPEND), ErrorCode.invalid_config, "not a list"),
        (("flush.sm", "1", APPEND), ErrorCode.invalid_config, "not a list"),
        (("cleanup.policy", "shred", APPEND), ErrorCode.invalid_config, "cleanup.policy"),
        (("cleanup.policy", None, SUBTRACT), ErrorCode.invalid_request, "no value"),
        (("flush.ms", "1", 9), ErrorCode.invalid_request, "not an operation"),
        (("min.insync.replicas", "0"), ErrorCode.invalid_config, "min.insync.replicas"),
    ],
)
def test_a_resource_changes_as_a_whole_or_not_at_all(
    change: tuple[Any, ...], error_code: ErrorCode, said: str
) -> None:
    where = cluster()
    good, bad = alter(
        where,
        resource(GROUP, "g", ("consumer.session.timeout.ms", "50000")),
        resource(TOPIC, "orders", ("retention.ms", "1"), change),
    )
    assert good.error_code == NONE
    assert bad.error_code == error_code
    assert said in bad.error_message
    assert configs(where) == {}
    assert configs(where, GROUP, "g") == {"consumer.session.timeout.ms": "50000"}


def test_rules_between_configs_look_at_what_was_set_before() -> None:
    where = cluster(config("max.compaction.lag.ms", "10"))
    (result,) = alter(where, resource(TOPIC, "orders", ("min.compaction.lag.ms", "11")))
    assert result.error_code == ErrorCode.invalid_config


@pytest.mark.parametrize(
    ("named", "error_code"),
    [
        ((TOPIC, "lost"), ErrorCode.unknown_topic_or_partition),
        ((TOPIC, ""), ErrorCode.invalid_request),
        ((BROKER, "9"), ErrorCode.broker_id_not_registered),
        ((BROKER, "-1"), ErrorCode.invalid_request),
        ((BROKER, "one"), ErrorCode.invalid_request),
        ((BROKER, "01"), ErrorCode.invalid_request),
        ((BROKER, "1" * 5000), ErrorCode.invalid_request),
        ((LOGGER, "1"), ErrorCode.invalid_request),
        ((METRICS, ""), ErrorCode.invalid_request),
        ((GROUP, ""), ErrorCode.invalid_request),
        ((3, "x"), ErrorCode.unsupported_version),
    ],
)
def test_a_resource_that_is_none_is_refused(named: tuple[int, str], error_code: ErrorCode) -> None:
    where = cluster()
    (result,) = alter(where, resource(*named))
    assert result.error_code == error_code
    assert result.error_message


def test_a_resource_or_a_key_that_is_named_twice_is_not_altered() -> None:
    where = cluster()
    change = resource(TOPIC, "orders", ("flush.ms", "5"))
    (result,) = alter(where, change, change)
    assert result.error_code == ErrorCode.invalid_request
    (result,) = alter(where, resource(TOPIC, "orders", ("flush.ms", "5"), ("flush.ms", "6")))
    assert result.error_code == ErrorCode.invalid_request
    assert "flush.ms" in result.error_message
    assert not where.image.configs


def test_brokers_are_told_even_what_they_know_and_topics_are_not() -> None:
    where = cluster()
    change = [
        resource(TOPIC, "orders", ("flush.ms", "5")),
        resource(BROKER, "1", ("num.io.threads", "4")),
        resource(BROKER, "", ("log.retention.ms", "1000")),
        resource(BROKER, "3000", ("num.io.threads", "2")),  # A controller.
    ]
    assert [each.error_code for each in alter(where, *change)] == [NONE] * 4
    assert configs(where, BROKER, "") == {"log.retention.ms": "1000"}
    again = where.decide(
        APIS, INCREMENTAL_ALTER_CONFIGS, 1, resources=change, validate_only=False
    ).records
    kinds = [each.resource_type for each in again if isinstance(each, r.ConfigRecord)]
    assert kinds == [BROKER, BROKER, BROKER]


def test_what_a_broker_reads_at_its_start_is_refused() -> None:
    where = cluster()
    for name in ("node.id", "log.retention.hours", "retention.ms"):
        (result,) = alter(where, resource(BROKER, "1", (name, "1")))
        assert result.error_code == ErrorCode.invalid_config
    assert not where.image.configs


def test_a_broker_config_that_others_wrote_does_not_stand_in_the_way() -> None:
    foreign = r.ConfigRecord(
        resource_type=BROKER, resource_name="1", name="ssl.cipher.suites", value="x"
    )
    where = cluster(foreign)
    assert alter(where, resource(BROKER, "1", ("num.io.threads", "4")))[0].error_code == NONE


def test_client_metrics_are_configured() -> None:
    where = cluster()
    good, bad = alter(
        where,
        resource(METRICS, "m", ("metrics", "org.apache.", APPEND), ("interval.ms", "1000")),
        resource(METRICS, "n", ("interval.ms", "1")),
    )
    assert (good.error_code, bad.error_code) == (NONE, ErrorCode.invalid_config)
    assert configs(where, METRICS, "m") == {"metrics": "org.apache.", "interval.ms": "1000"}


def test_validate_only_writes_nothing() -> None:
    where = cluster()
    good, bad = alter(
        where,
        resource(TOPIC, "orders", ("flush.ms", "5")),
        resource(TOPIC, "lost", ("flush.ms", "5")),
        validate_only=True,
    )
    assert (good.error_code, bad.error_code) == (NONE, ErrorCode.unknown_topic_or_partition)
    assert not where.image.configs


@pytest.mark.parametrize("version", range(3))
def test_the_old_way_removes_what_is_not_named(version: int) -> None:
    where = cluster(config("flush.ms", "5"), config("retention.ms", "7"))
    change = resource(TOPIC, "orders", ("retention.ms", "7"), ("segment.ms", "9"))
    (result,) = replace_all(where, change, version=version)
    assert result.error_code == NONE
    assert configs(where) == {"retention.ms": "7", "segment.ms": "9"}
    (result,) = replace_all(where, resource(TOPIC, "orders", ("flush.ms", None)), version=version)
    assert result.error_code == ErrorCode.invalid_request
    (result,) = replace_all(where, resource(TOPIC, "orders"), version=version)
    assert result.error_code == NONE
    assert not where.image.configs


def test_kafka_14996_a_request_beyond_a_batch_is_refused_as_a_whole() -> None:
    where = cluster()
    many = [
        resource(GROUP, f"g{number}", ("consumer.session.timeout.ms", "50000"))
        for number in range(BATCH_RECORDS_MAX + 1)
    ]
    for result in alter(where, *many):
        assert result.error_code == ErrorCode.policy_violation
        assert str(BATCH_RECORDS_MAX) in result.error_message
    assert not where.image.configs


# -- eligible leader replicas -------------------------------------------------------------------


def shrunken(*more: MetadataRecord) -> Cluster:
    """Two topics, each with a replica that is eligible though not in sync."""
    small = {"isr": ids(1), "eligible_leader_replicas": ids(2)}
    return Cluster(
        ELR,
        broker(1),
        broker(2, fenced=True),
        topic(),
        partition(0, 1, 2, **small),
        topic("other", OTHER_ID),
        partition(0, 1, 2, **small, topic_id=OTHER_ID),
        r.ConfigRecord(
            resource_type=BROKER, resource_name="", name="min.insync.replicas", value="2"
        ),
        *more,
    )


def elrs(where: Cluster) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return where.partition().elr, where.partition(topic_id=OTHER_ID).elr


def test_kafka_16540_a_topics_min_insync_replicas_clears_its_elr() -> None:
    where = shrunken()
    assert elrs(where) == ((2,), (2,))
    assert alter(where, resource(TOPIC, "orders", ("flush.ms", "5")))[0].error_code == NONE
    assert elrs(where) == ((2,), (2,)), "other configs have nothing to do with it"
    change = resource(TOPIC, "orders", ("min.insync.replicas", "1"))
    assert alter(where, change)[0].error_code == NONE
    assert elrs(where) == ((), (2,))
    assert min_insync_replicas(where.image, where.settings, "orders") == 1
    unchanged = where.image.without_provenance()
    alter(where, change)
    assert where.image.without_provenance() == unchanged


@pytest.mark.parametrize("value", ["1", "2"])
def test_kafka_16540_the_clusters_min_insync_replicas_clears_every_elr(value: str) -> None:
    where = shrunken()
    decision = where.decide(
        APIS,
        INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[
            resource(TOPIC, "orders", ("min.insync.replicas", "3")),
            resource(BROKER, "", ("min.insync.replicas", value)),
        ],
        validate_only=False,
    )
    clears = [each for each in decision.records if isinstance(each, r.ClearElrRecord)]
    assert clears == [r.ClearElrRecord(topic_name="")]
    where.apply(decision.records)
    assert elrs(where) == ((), ())


def test_removing_the_topics_value_clears_its_elr_in_the_old_way_too() -> None:
    where = shrunken(config("min.insync.replicas", "2"))
    assert replace_all(where, resource(TOPIC, "orders"))[0].error_code == NONE
    assert elrs(where) == ((), (2,))


def test_while_elr_is_on_min_insync_replicas_is_one_for_all_brokers() -> None:
    where = shrunken()
    for change in (
        resource(BROKER, "1", ("min.insync.replicas", "1")),
        resource(BROKER, "1", ("min.insync.replicas", None, DELETE)),
        resource(BROKER, "", ("min.insync.replicas", None, DELETE)),
    ):
        (result,) = alter(where, change)
        assert result.error_code == ErrorCode.invalid_config
        assert "eligible leader replicas" in result.error_message
    (result,) = replace_all(where, resource(BROKER, ""))
    assert result.error_code == ErrorCode.invalid_config
    assert elrs(where) == ((2,), (2,))


def test_while_elr_is_off_nothing_is_cleared_and_brokers_may_differ() -> None:
    where = cluster()
    results = alter(
        where,
        resource(TOPIC, "orders", ("min.insync.replicas", "2")),
        resource(BROKER, "1", ("min.insync.replicas", "2")),
        resource(BROKER, "", ("min.insync.replicas", None, DELETE)),
    )
    assert [each.error_code for each in results] == [NONE] * 3
    assert where.partition().partition_epoch == 0


def test_turning_unclean_election_on_is_seen() -> None:
    where = cluster()

    def records(value: str | None, operation: int = SET) -> Any:
        change = resource(TOPIC, "orders", ("unclean.leader.election.enable", value, operation))
        values = {"resources": [change], "validate_only": False}
        return where.decide(APIS, INCREMENTAL_ALTER_CONFIGS, 1, **values).records

    assert enables_unclean_election(records("True"))
    assert not enables_unclean_election(records("false"))
    assert not enables_unclean_election(records(None, DELETE))
    assert not enables_unclean_election([config("flush.ms", "1")])


# -- all of them --------------------------------------------------------------------------------


def test_a_refusal_names_every_resource_in_every_version() -> None:
    asked = [resource(TOPIC, name) for name in ("a", "b")]
    for api_key in (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CONFIGS):
        api = APIS[api_key]
        for version in range(api.versions.min_version, api.versions.max_version + 1):
            message = request(api_key, version, resources=asked, validate_only=False)
            values = api.refuse(message, ErrorCode.not_controller, "not here")
            answer = answers(api_key, api, values)[version]
            results = answer.results if api_key == DESCRIBE_CONFIGS else answer.responses
            assert [(each.resource_name, each.error_code) for each in results] == [
                ("a", ErrorCode.not_controller),
                ("b", ErrorCode.not_controller),
            ]


def test_a_refused_listing_says_so_in_every_version() -> None:
    api = APIS[LIST_CONFIG_RESOURCES]
    values = api.refuse(None, ErrorCode.not_controller, None)
    for answer in answers(LIST_CONFIG_RESOURCES, api, values).values():
        assert answer.error_code == ErrorCode.not_controller


NAMES = st.sampled_from(
    ["min.insync.replicas", "cleanup.policy", "min.compaction.lag.ms", "max.compaction.lag.ms", "x"]
)
CHANGES = st.tuples(
    NAMES,
    st.sampled_from(["1", "2", "9", "compact", "delete", "compact,delete", "", "x", None]),
    st.sampled_from([SET, DELETE, APPEND, SUBTRACT, 7]),
)


def check_requests(requests: list[tuple[bool, list[tuple[Any, ...]]]]) -> None:
    where = shrunken()
    for is_old, changes in requests:
        before = where.image
        change = resource(TOPIC, "orders", *changes)
        (result,) = replace_all(where, change) if is_old else alter(where, change)
        topic_configs.validate(configs(where))
        was, now = (
            configs_of(each, TOPIC, "orders").get("min.insync.replicas")
            for each in (before, where.image)
        )
        if result.error_code != NONE:
            assert where.image.without_provenance() == before.without_provenance()
        if was != now:
            assert where.partition().elr == (), "KAFKA-16540"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(CHANGES, max_size=4)), max_size=8))
def test_whatever_is_asked_a_topic_never_has_configs_that_kafka_refuses(requests: Any) -> None:
    check_requests(requests)


@pytest.mark.parametrize(
    ("planted", "does", "request_"),
    [
        ("_elr_to_clear", lambda *_: [], (False, [("min.insync.replicas", "2", SET)])),
        ("_check_told", lambda *_: None, (False, [("cleanup.policy", "x", SET)])),
        ("_check_told", lambda *_: None, (True, [("x", "1", SET)])),
    ],
)
def test_the_checks_see_a_planted_bug(
    planted: str, does: Any, request_: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_requests([request_])
    monkeypatch.setattr(f"kraftpy.quorum.control.configs.{planted}", does)
    with pytest.raises((AssertionError, ConfigError)):
        check_requests([request_])
