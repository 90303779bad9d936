"""Topics are created whole or not at all.

Method: requests in every version that is served against a small cluster, the records replayed and
the answer built as a client reads it. Then random requests, after which the image holds to the
rules A1, A7, A34, A35 and A37.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kraftpy.limits import BATCH_RECORDS_MAX
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.codec import decode_record, encode_record
from kraftpy.metadata_log.image import ClusterImage, Partition
from kraftpy.quorum.control.activity import is_active
from kraftpy.quorum.control.decision import Decision, Refused
from kraftpy.quorum.control.topics import APIS
from kraftpy.types import NO_LEADER
from kraftpy.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from tests.unit.control.cluster import (
    Cluster,
    broker,
    directory,
    partition,
    topic,
    wire,
)
from tests.unit.control.makers import answers, request
from tests.unit.control.topic_requests import (
    LATEST,
    NONE,
    TIMEOUT,
    creatable,
    create,
    delete,
    three_brokers,
)


def error_of(cluster: Cluster, asked: dict[str, Any]) -> tuple[ErrorCode, str]:
    before = cluster.image
    (result,) = create(cluster, asked)
    assert cluster.image.topics == before.topics, "what is refused is not written"
    assert result.topic_id is None
    return result.error_code, result.error_message


# -- creating -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_and_every_version_says_so(version: int) -> None:
    cluster = three_brokers()
    (result,) = create(cluster, creatable(partitions=4, factor=3), version=version)
    assert (result.name, result.error_code) == ("orders", NONE)
    created = cluster.image.topic("orders")
    assert created is not None
    assert sorted(created.partitions) == [0, 1, 2, 3]
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (4, 3)
        values = {config.name: config.value for config in result.configs}
        assert values["retention.ms"] == "604800000"
        assert "internal.segment.bytes" not in values
    if version >= 7:
        assert result.topic_id == wire(created.topic_id)


def test_new_partitions_follow_rule_a7() -> None:
    cluster = three_brokers(
        broker(4, fenced=True), broker(5, in_controlled_shutdown=True, log_dirs=())
    )
    create(cluster, creatable("wide", 3, 5))
    for each in cluster.image.topics[cluster.image.topic_ids["wide"]].partitions.values():
        assert set(each.isr) == {1, 2, 3}  # KAFKA-13083: active ones only.
        assert each.isr == tuple(b for b in each.replicas if b in each.isr)
        assert each.leader == each.isr[0] == each.replicas[0]
        assert (each.leader_epoch, each.partition_epoch) == (0, 0)
        assert each.leader_recovery_state == r.RECOVERED
        expected = {b: directory(b) for b in (1, 2, 3, 4)} | {5: r.MIGRATING_DIRECTORY}
        assert each.directories == tuple(expected[b] for b in each.replicas)


def test_records_of_a_topic_are_in_order_and_topics_one_after_the_other() -> None:
    decision = three_brokers().decide(
        APIS,
        CREATE_TOPICS,
        LATEST,
        topics=[
            creatable("a", 2, 1, retention_ms="1000", cleanup_policy="compact"),
            creatable("b", 1, 1),
        ],
    )
    kinds = [type(record).__name__ for record in decision.records]
    assert kinds == [
        "TopicRecord",
        "ConfigRecord",
        "ConfigRecord",
        "PartitionRecord",
        "PartitionRecord",
        "TopicRecord",
        "PartitionRecord",
    ]
    assert not decision.own


def test_the_records_are_what_the_log_gives_back() -> None:
    cluster = three_brokers(broker(4, fenced=True))
    asked = [creatable("a", 3, 4, retention_ms="5")]
    for record in cluster.decide(APIS, CREATE_TOPICS, LATEST, topics=asked).records:
        assert decode_record(encode_record(record)) == record


def test_defaults_come_from_the_settings() -> None:
    cluster = three_brokers(num_partitions=5, default_replication_factor=2)
    (result,) = create(cluster, creatable())
    assert (result.num_partitions, result.replication_factor) == (5, 2)


def test_configs_of_the_answer_tell_where_values_come_from() -> None:
    cluster = three_brokers(
        r.ConfigRecord(
            resource_type=r.BROKER_RESOURCE, resource_name="", name="log.retention.ms", value="5000"
        ),
        min_insync_replicas=2,
    )
    (result,) = create(cluster, creatable(flush_ms="7"))
    values = {config.name: (config.value, config.config_source) for config in result.configs}
    assert values["flush.ms"] == ("7", 1)
    assert values["retention.ms"] == ("5000", 3)
    assert values["min.insync.replicas"] == ("2", 4)
    assert values["segment.ms"] == ("604800000", 5)
    assert [config.name for config in result.configs] == sorted(values)


def test_validate_only_answers_and_writes_nothing() -> None:
    cluster = three_brokers()
    good, bad = create(cluster, creatable("a", 4, 3), creatable("b", 0, 3), validate_only=True)
    assert (good.error_code, good.num_partitions, good.topic_id) == (NONE, 4, None)
    assert bad.error_code == ErrorCode.invalid_partitions
    assert not cluster.image.topics


def test_a_bad_topic_does_not_spoil_the_others() -> None:
    cluster = three_brokers(topic("old"))
    results = create(cluster, creatable("a"), creatable("old"), creatable("b/c"), creatable("d"))
    assert [each.error_code for each in results] == [
        NONE,
        ErrorCode.topic_already_exists,
        ErrorCode.invalid_topic_exception,
        NONE,
    ]
    assert sorted(cluster.image.topic_ids) == ["a", "d", "old"]


def test_a_name_twice_in_one_request_creates_neither() -> None:
    cluster = three_brokers()
    results = create(cluster, creatable("a", 1, 1), creatable("b", 1, 1), creatable("a", 2, 1))
    assert [(each.name, each.error_code) for each in results] == [
        ("a", ErrorCode.invalid_request),
        ("b", NONE),
    ]
    assert list(cluster.image.topic_ids) == ["b"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "empty"),
        (".", "cannot be ."),
        ("..", "cannot be .."),
        ("x" * 250, "249 characters at most, not 250"),
        ("orders!", "ASCII letters"),
        ("bücher", "ASCII letters"),
        ("new\nline", "ASCII letters"),
    ],
)
def test_a_name_that_is_not_one_is_refused(name: str, said: str) -> None:
    error_code, why = error_of(three_brokers(), creatable(name))
    assert error_code == ErrorCode.invalid_topic_exception
    assert said in why


def test_the_longest_name_is_accepted() -> None:
    assert create(three_brokers(), creatable("x" * 249))[0].error_code == NONE


def test_the_metadata_log_cannot_be_created() -> None:
    error_code, _ = error_of(three_brokers(), creatable("__cluster_metadata"))
    assert error_code == ErrorCode.invalid_request


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    cluster = three_brokers()
    create(cluster, creatable("a.b_c"), creatable("plain"))
    for failed_over in (False, True):
        error_code, why = error_of(cluster, creatable("a_b.c"))
        assert error_code == ErrorCode.invalid_topic_exception
        assert "a.b_c" in why
        if not failed_over:
            cluster.fail_over()
    assert create(cluster, creatable("plain.c"))[0].error_code == NONE
    first, second = create(cluster, creatable("x.y"), creatable("x_y"))
    assert (first.error_code, second.error_code) == (NONE, ErrorCode.invalid_topic_exception)
    delete(cluster, ("a.b_c", None))
    assert create(cluster, creatable("a_b.c"))[0].error_code == NONE


@pytest.mark.parametrize(
    ("asked", "error_code", "said"),
    [
        (creatable(partitions=0), ErrorCode.invalid_partitions, "positive"),
        (creatable(partitions=-2), ErrorCode.invalid_partitions, "not -2"),
        (creatable(factor=0), ErrorCode.invalid_replication_factor, "positive"),
        (creatable(factor=4), ErrorCode.invalid_replication_factor, "4 replicas need"),
        (creatable(retention_ms="never"), ErrorCode.invalid_config, "retention.ms must be"),
        (creatable(retention_sm="1"), ErrorCode.invalid_config, "unknown topic config"),
        (
            creatable(min_compaction_lag_ms="2", max_compaction_lag_ms="1"),
            ErrorCode.invalid_config,
            "is above",
        ),
        (creatable(assigned={0: ()}), ErrorCode.invalid_replica_assignment, "no replicas"),
        (creatable(assigned={0: (1, 1)}), ErrorCode.invalid_replica_assignment, "more than once"),
        (creatable(assigned={0: (1, 9)}), ErrorCode.invalid_replica_assignment, "broker 9"),
        (
            creatable(assigned={0: (1, 2), 1: (1,)}),
            ErrorCode.invalid_replica_assignment,
            "1 replicas and others of the topic have 2",
        ),
        (creatable(partitions=1, assigned={0: (1,)}), ErrorCode.invalid_request, "both -1"),
        (creatable(factor=1, assigned={0: (1,)}), ErrorCode.invalid_request, "both -1"),
    ],
)
def test_what_cannot_be_is_refused_with_kafkas_error(
    asked: dict[str, Any], error_code: ErrorCode, said: str
) -> None:
    found, why = error_of(three_brokers(), asked)
    assert found == error_code
    assert said in why


def test_kafka_14129_assigned_partitions_are_numbered_without_gaps() -> None:
    for assigned in ({1: (1,)}, {0: (1,), 2: (1,)}, {-1: (1,), 0: (1,)}):
        error_code, _ = error_of(three_brokers(), creatable(assigned=assigned))
        assert error_code == ErrorCode.invalid_replica_assignment
    asked = creatable(assigned={0: (1,)})
    asked["assignments"] *= 2
    assert error_of(three_brokers(), asked)[0] == ErrorCode.invalid_replica_assignment


def test_kafka_13863_a_config_without_value_is_refused() -> None:
    error_code, why = error_of(three_brokers(), creatable(retention_ms=None))
    assert error_code == ErrorCode.invalid_config
    assert "retention.ms" in why


def test_kafka_13083_no_fenced_broker_is_in_the_isr_of_an_assigned_partition() -> None:
    cluster = three_brokers(broker(4, fenced=True))
    create(cluster, creatable("by-hand", assigned={1: (4, 2), 0: (2, 4)}))
    created = cluster.image.topic("by-hand")
    assert created is not None
    assert created.partitions[0].replicas == (2, 4)
    assert created.partitions[1].replicas == (4, 2)
    assert created.partitions[1].isr == (2,)
    assert created.partitions[1].leader == 2
    error_code, why = error_of(cluster, creatable("dark", assigned={0: (4,)}))
    assert error_code == ErrorCode.invalid_replica_assignment
    assert "fenced" in why


def test_without_active_brokers_no_topic_is_created() -> None:
    cluster = Cluster(broker(1, fenced=True))
    error_code, why = error_of(cluster, creatable(factor=1))
    assert error_code == ErrorCode.invalid_replication_factor
    assert "fenced" in why


@pytest.mark.parametrize(
    "topics",
    [
        [creatable("a", 2**31 - 1, 1)],
        [creatable("a", BATCH_RECORDS_MAX, 1)],
        [creatable("a", 5000, 1), creatable("b", 5001, 1)],
        [creatable("a", BATCH_RECORDS_MAX - 1, 1, retention_ms="1")],
    ],
)
def test_kafka_14996_a_request_beyond_a_batch_is_refused_as_a_whole(
    topics: list[dict[str, Any]],
) -> None:
    cluster = three_brokers()
    for each in create(cluster, *topics):
        assert each.error_code == ErrorCode.policy_violation
        assert str(BATCH_RECORDS_MAX) in each.error_message
    assert not cluster.image.topics
    with pytest.raises(Refused):
        cluster.decide(APIS, CREATE_TOPICS, LATEST, topics=topics)


def test_a_request_that_just_fits_a_batch_is_created() -> None:
    cluster = three_brokers()
    (result,) = create(cluster, creatable("a", BATCH_RECORDS_MAX - 1, 1))
    assert result.error_code == NONE


def test_topic_ids_are_new_even_if_chance_repeats_itself() -> None:
    cluster = three_brokers()
    create(cluster, creatable("a", 1, 1))
    cluster.rng = random.Random(1)  # The same draws again.
    create(cluster, creatable("b", 1, 1))
    assert len(cluster.image.topics) == 2
    for topic_id in cluster.image.topics:
        assert topic_id[:15] != bytes(15)


# -- all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("api_key", sorted(APIS))
def test_a_refusal_names_every_topic_in_every_version(api_key: int) -> None:
    api = APIS[api_key]
    for version in range(api.versions.min_version, api.versions.max_version + 1):
        asked = [{**creatable(name), "topic_id": None, "count": 3} for name in ("a", "b", "a")]
        message = request(
            api_key,
            version,
            topics=asked,
            topic_names=["a", "b", "a"],
            validate_only=False,
            timeout=TIMEOUT,
        )
        values = api.refuse(message, ErrorCode.not_controller, "not here")
        answer = answers(api_key, api, values)[version]
        items = getattr(
            answer, "topics", getattr(answer, "responses", getattr(answer, "results", ()))
        )
        assert [(each.name, each.error_code) for each in items] == [
            ("a", ErrorCode.not_controller),
            ("b", ErrorCode.not_controller),
        ]


def broken_rules(image: ClusterImage, before: ClusterImage, decision: Decision) -> list[str]:
    """What A1, A7, A34, A35 and A37 say about the topics that a decision created."""
    broken = []
    if sorted(image.topic_ids.values()) != sorted(image.topics):
        broken.append("A34: a live name has one topic")
    for topic_id, found in image.topics.items():
        if sorted(found.partitions) != list(range(len(found.partitions))) or not found.partitions:
            broken.append("A35 A37: all partitions from 0, without gaps")
        old = before.topics.get(topic_id)
        for partition_id, each in found.partitions.items():
            if old is None or partition_id not in old.partitions:
                broken += broken_by_new(image, each)
    names = [each.name for each in decision.records if isinstance(each, r.TopicRecord)]
    for record in decision.records:
        if isinstance(record, r.ConfigRecord) and record.resource_name not in names:
            broken.append("A37: configs are in the batch of their topic")
    return broken


def broken_by_new(image: ClusterImage, each: Partition) -> Iterator[str]:
    active = tuple(b for b in each.replicas if is_active(image, b))
    if len(set(each.replicas)) != len(each.replicas) or not each.replicas:
        yield "A1: replicas are different brokers"
    if any(b not in image.brokers for b in each.replicas):
        yield "A1: replicas are registered"
    if each.isr != active or each.leader == NO_LEADER or each.leader != each.isr[0]:
        yield "A7: the ISR is the active replicas, its first one leads"


NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "c", "", "x y"])
TOPICS = st.builds(
    creatable,
    NAMES,
    st.integers(-2, 5),
    st.integers(-2, 5),
    st.none()
    | st.dictionaries(
        st.integers(-1, 3), st.lists(st.integers(0, 6), max_size=3).map(tuple), max_size=3
    ),
    retention_ms=st.sampled_from(["1", "x", None]),
)


@settings(max_examples=150, deadline=None)
@given(
    lives=st.lists(st.sampled_from(["up", "fenced", "leaving"]), min_size=1, max_size=6),
    rounds=st.lists(
        st.tuples(st.lists(TOPICS, max_size=4), NAMES, st.integers(-1, 9), NAMES), max_size=6
    ),
    seed=st.integers(0, 2**32),
)
def test_whatever_is_asked_the_image_holds_to_the_rules(
    lives: list[str], rounds: list[Any], seed: int
) -> None:
    brokers = [
        broker(number, fenced=life == "fenced", in_controlled_shutdown=life == "leaving")
        for number, life in enumerate(lives)
    ]
    cluster = Cluster(*brokers)
    cluster.rng = random.Random(seed)
    for topics, grown, count, deleted in rounds:
        for api_key, version, values in (
            (CREATE_TOPICS, LATEST, {"topics": topics}),
            (
                CREATE_PARTITIONS,
                3,
                {
                    "topics": [{"name": grown, "count": count, "assignments": None}],
                    "validate_only": False,
                },
            ),
            (DELETE_TOPICS, 6, {"topics": [{"name": deleted, "topic_id": None}]}),
        ):
            before = cluster.image
            decision = cluster.decide(APIS, api_key, version, timeout=TIMEOUT, **values)
            answers(api_key, APIS[api_key], decision.response)
            cluster.apply(decision.records)
            assert broken_rules(cluster.image, before, decision) == []


@pytest.mark.parametrize(
    ("bug", "rule"),
    [
        (lambda p: partition(0, 1, 4, topic_id=p.topic_id), "A7"),
        (lambda p: partition(0, 1, 1, topic_id=p.topic_id), "A1"),
        (lambda p: partition(0, 1, 9, topic_id=p.topic_id), "A1"),
        (lambda p: partition(1, 1, topic_id=p.topic_id), "A35"),
        (lambda p: partition(0, 1, 2, leader=2, topic_id=p.topic_id), "A7"),
    ],
)
def test_the_rules_see_a_planted_bug(bug: Any, rule: str) -> None:
    cluster = three_brokers(broker(4, fenced=True))
    before = cluster.image
    decision = cluster.decide(APIS, CREATE_TOPICS, LATEST, topics=[creatable("a", 1, 1)])
    head, last = decision.records
    cluster.apply([head, bug(last)])
    assert any(each.startswith(rule) for each in broken_rules(cluster.image, before, decision))
