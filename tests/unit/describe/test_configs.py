"""Descriptions tell every layer that has a value, the strongest first, and no secret."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.config import SETTINGS
from kraftpy.describe.configs import describe_configs, list_config_resources
from kraftpy.dynamic_configs import SENSITIVE_SETTINGS
from kraftpy.limits import BATCH_RECORDS_MAX
from kraftpy.metadata_log import ClusterImage
from kraftpy.metadata_log import records as r
from kraftpy.quorum.control.configs import APIS
from kraftpy.topic_configs import TOPIC_CONFIGS
from kraftpy.wire.apis import DESCRIBE_CONFIGS, LIST_CONFIG_RESOURCES
from tests.unit.control.cluster import Cluster, broker, config, partition, topic
from tests.unit.control.makers import answers, request

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST, PASSWORD = 1, 2, 3, 5, 6, 7, 9


def said(kind: int, name: str, key: str, value: str) -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def cluster(*more: Any) -> Cluster:
    return Cluster(broker(1), broker(2), topic(), partition(0, 1, 2), *more)


def describe(
    image: ClusterImage,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    static: tuple[tuple[str, str], ...] = (),
    node_id: int | None = None,
    synonyms: bool = True,
    documentation: bool = True,
) -> Any:
    """The result for one resource, as a client reads it."""
    message = request(
        DESCRIBE_CONFIGS,
        version,
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    values = describe_configs(image, message, static=static, node_id=node_id)
    return answers(DESCRIBE_CONFIGS, APIS[DESCRIBE_CONFIGS], values)[version].results[0]


def entry(image: ClusterImage, kind: int, name: str, key: str, **more: Any) -> Any:
    (found,) = describe(image, kind, name, [key], **more).configs
    return found


def layers(found: Any) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in found.synonyms]


def test_a_topics_value_comes_from_the_strongest_layer() -> None:
    where = cluster(
        config("segment.bytes", "2000000"),
        said(BROKER, "1", "log.segment.bytes", "3000000"),
        said(BROKER, "", "log.segment.bytes", "4000000"),
    )
    static = (("log.segment.bytes", "5000000"),)
    found = entry(where.image, TOPIC, "orders", "segment.bytes", static=static, node_id=1)
    assert (found.value, found.config_source) == ("2000000", 1)
    assert (found.config_type, found.read_only, found.is_sensitive) == (INT, False, False)
    assert found.documentation
    assert layers(found) == [
        ("segment.bytes", "2000000", 1),
        ("log.segment.bytes", "3000000", 2),
        ("log.segment.bytes", "4000000", 3),
        ("log.segment.bytes", "5000000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    alone = entry(where.image, TOPIC, "orders", "segment.bytes")
    assert [each.source for each in alone.synonyms] == [1, 3, 5]  # A controller: no broker's own.


def test_units_of_synonyms_are_converted_and_told_as_they_are() -> None:
    static = (("log.retention.hours", "2"), ("log.roll.ms", "5"))
    image = cluster().image
    retention = entry(image, TOPIC, "orders", "retention.ms", static=static)
    assert (retention.value, retention.config_source) == ("7200000", 4)
    assert layers(retention) == [("log.retention.hours", "2", 4), ("log.retention.hours", "168", 5)]
    assert entry(image, TOPIC, "orders", "segment.ms", static=static).value == "5"
    plain = entry(image, TOPIC, "orders", "segment.ms")
    assert (plain.value, plain.config_source) == ("604800000", 5)


@pytest.mark.parametrize("version", range(1, 5))
def test_all_configs_of_a_topic_are_told_in_every_version(version: int) -> None:
    result = describe(cluster().image, TOPIC, "orders", version=version)
    assert result.error_code == ErrorCode.none
    names = [each.name for each in result.configs]
    assert names == [name for name, key in TOPIC_CONFIGS.items() if not key.internal]


def test_synonyms_and_documentation_only_for_those_who_ask() -> None:
    image = cluster(config("flush.ms", "5")).image
    for key in ("flush.ms", "retention.ms"):
        found = entry(image, TOPIC, "orders", key, synonyms=False, documentation=False)
        assert (found.synonyms, found.documentation) == ((), None)
        assert entry(image, TOPIC, "orders", key).synonyms


def test_types_are_kafkas_numbers() -> None:
    found = {
        each.name: each.config_type for each in describe(cluster().image, TOPIC, "orders").configs
    }
    assert found["preallocate"] == BOOLEAN
    assert found["compression.type"] == STRING
    assert found["min.insync.replicas"] == INT
    assert found["retention.ms"] == LONG
    assert found["min.cleanable.dirty.ratio"] == DOUBLE
    assert found["cleanup.policy"] == LIST


def test_what_is_sensitive_or_of_unknown_type_is_hidden() -> None:
    where = cluster(
        config("some.password", "hunter2"),
        said(BROKER, "1", "sasl.jaas.config", "hunter2"),
    )
    unknown = entry(where.image, TOPIC, "orders", "some.password")
    assert (unknown.value, unknown.is_sensitive, unknown.config_type) == (None, True, 0)
    static = (("quorum.auth.secret", "hunter2"), ("node.id", "1"))
    result = describe(where.image, BROKER, "1", static=static, node_id=1)
    assert "hunter2" not in repr(result)
    found = {each.name: each for each in result.configs}
    assert found["quorum.auth.secret"].is_sensitive
    assert found["quorum.auth.secret"].config_type == PASSWORD
    assert [each.source for each in found["quorum.auth.secret"].synonyms] == [4, 5]
    assert found["sasl.jaas.config"].is_sensitive
    assert found["node.id"].value == "1"


def test_a_broker_tells_what_can_be_changed_and_what_not() -> None:
    where = cluster(
        said(BROKER, "1", "num.io.threads", "4"), said(BROKER, "", "num.io.threads", "5")
    )
    threads = entry(where.image, BROKER, "1", "num.io.threads", node_id=1)
    assert (threads.value, threads.read_only, threads.config_source) == ("4", False, 2)
    assert [each.source for each in threads.synonyms] == [2, 3, 5]
    assert entry(where.image, BROKER, "2", "num.io.threads", node_id=2).value == "5"
    node_id = entry(where.image, BROKER, "1", "node.id", static=(("node.id", "1"),), node_id=1)
    assert (node_id.value, node_id.read_only, node_id.config_source) == ("1", True, 4)


def test_every_default_of_a_broker_is_told_as_it_could_be_given() -> None:
    result = describe(cluster().image, BROKER, "1", node_id=1)
    defaults = {each.name: each.value for each in result.configs}
    for setting in SETTINGS:
        text = defaults[setting.key]
        if setting.default is not None and setting.key not in SENSITIVE_SETTINGS:
            assert text == text.lower() if isinstance(setting.default, bool) else text is not None
            assert setting.kind.parse(text) == setting.default


def test_all_brokers_together_have_only_what_was_said_of_them_all() -> None:
    where = cluster(
        said(BROKER, "1", "num.io.threads", "4"), said(BROKER, "", "log.retention.ms", "5")
    )
    result = describe(where.image, BROKER, "", static=(("log.segment.bytes", "1048576"),))
    assert [(each.name, each.config_source) for each in result.configs] == [("log.retention.ms", 3)]


def test_a_controller_tells_of_a_broker_what_the_log_knows() -> None:
    where = cluster(said(BROKER, "2", "num.io.threads", "4"))
    static = (("log.segment.bytes", "1048576"),)
    assert entry(where.image, BROKER, "2", "num.io.threads", static=static).value == "4"
    assert entry(where.image, BROKER, "2", "log.segment.bytes", static=static).config_source == 5


def test_groups_and_client_metrics_are_told() -> None:
    where = cluster(
        said(GROUP, "g", "consumer.session.timeout.ms", "50000"),
        said(METRICS, "m", "interval.ms", "100"),
    )
    session = entry(where.image, GROUP, "g", "consumer.session.timeout.ms")
    assert (session.value, session.config_source) == ("50000", 8)
    assert [each.source for each in session.synonyms] == [8, 5]
    heartbeat = entry(where.image, GROUP, "g", "consumer.heartbeat.interval.ms")
    assert (heartbeat.value, heartbeat.config_source) == ("5000", 5)
    interval = entry(where.image, METRICS, "m", "interval.ms")
    assert (interval.value, interval.config_source) == ("100", 7)
    assert entry(where.image, METRICS, "m", "match").value == ""


@pytest.mark.parametrize(
    ("kind", "name", "error_code"),
    [
        (TOPIC, "lost", ErrorCode.unknown_topic_or_partition),
        (BROKER, "x", ErrorCode.invalid_request),
        (BROKER, "2", ErrorCode.invalid_request),  # Broker 1 is asked.
        (LOGGER, "1", ErrorCode.invalid_request),
        (GROUP, "", ErrorCode.invalid_request),
        (METRICS, "", ErrorCode.invalid_request),
        (7, "x", ErrorCode.invalid_request),
    ],
)
def test_what_cannot_be_described_says_why(kind: int, name: str, error_code: ErrorCode) -> None:
    result = describe(cluster().image, kind, name, node_id=1)
    assert (result.error_code, result.configs) == (error_code, ())
    assert result.error_message
    assert (result.resource_type, result.resource_name) == (kind, name)


def test_a_request_for_too_many_resources_is_refused() -> None:
    asked = {"resource_type": GROUP, "resource_name": "g", "configuration_keys": None}
    message = request(DESCRIBE_CONFIGS, 4, resources=[asked] * (BATCH_RECORDS_MAX + 1))
    values = describe_configs(cluster().image, message, static=(), node_id=None)
    assert {each["error_code"] for each in values["results"]} == {ErrorCode.policy_violation}


def listed(image: ClusterImage, version: int, *types: int) -> Any:
    message = request(LIST_CONFIG_RESOURCES, version, resource_types=types)
    values = list_config_resources(image, message)
    return answers(LIST_CONFIG_RESOURCES, APIS[LIST_CONFIG_RESOURCES], values)[version]


def test_resources_are_listed_by_type() -> None:
    image = cluster(
        said(GROUP, "g", "consumer.session.timeout.ms", "50000"),
        said(METRICS, "m", "interval.ms", "100"),
        config("flush.ms", "5"),
    ).image
    everything = listed(image, 1)
    assert [(each.resource_type, each.resource_name) for each in everything.config_resources] == [
        (TOPIC, "orders"),
        (BROKER, "1"),
        (BROKER, "2"),
        (LOGGER, "1"),
        (LOGGER, "2"),
        (METRICS, "m"),
        (GROUP, "g"),
    ]
    assert [each.resource_name for each in listed(image, 1, GROUP).config_resources] == ["g"]
    assert [each.resource_name for each in listed(image, 0).config_resources] == ["m"]
    unknown = listed(image, 1, GROUP, 3)
    assert (unknown.error_code, unknown.config_resources) == (ErrorCode.unsupported_version, ())


def test_the_controller_describes_with_its_own_settings() -> None:
    where = Cluster(broker(1), topic(), partition(0, 1), min_insync_replicas=2)
    asked = {"resource_type": TOPIC, "resource_name": "orders", "configuration_keys": None}
    (result,) = where.ask(APIS, DESCRIBE_CONFIGS, 4, resources=[asked]).results
    found = {each.name: (each.value, each.config_source) for each in result.configs}
    assert found["min.insync.replicas"] == ("2", 4)
    assert where.ask(APIS, LIST_CONFIG_RESOURCES, 1).config_resources
