"""The new protocol: what is refused, who gets what, how it is stored, which names match."""

import random
import re
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import consumer_records as kinds
from kraftpy.broker.groups.consumer_assignors import ASSIGNORS, Reader
from kraftpy.broker.groups.consumer_records import (
    ConsumerKey,
    Current,
    MemberState,
    Profile,
    TopicSize,
    consumer_record,
    read_consumer_key,
    read_consumer_value,
)
from kraftpy.broker.groups.consumer_requests import HeartbeatRequest, check_request
from kraftpy.broker.groups.topic_patterns import PatternError, TopicPattern
from kraftpy.errors import InvalidBatch
from kraftpy.types import TopicId, Uuid
from tests.property.consumer_groups_model import Model

T1, T2 = (TopicId(Uuid(bytes([n]) * 16)) for n in (1, 2))
JOIN = HeartbeatRequest("m", 0, rebalance_timeout_ms=1000, topics=("t",), owned=frozenset())


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, None),
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"instance_id": " "}, ErrorCode.invalid_request),
        ({"rebalance_timeout_ms": -1}, ErrorCode.invalid_request),
        ({"owned": None}, ErrorCode.invalid_request),
        ({"owned": frozenset({(T1, 0)})}, ErrorCode.invalid_request),
        ({"topics": None}, ErrorCode.invalid_request),
        ({"topics": None, "regex": "t.*"}, None),
        ({"epoch": -2}, ErrorCode.invalid_request),
        ({"epoch": -3}, ErrorCode.invalid_request),
        ({"assignor": "range"}, None),
        ({"assignor": "sticky"}, ErrorCode.unsupported_assignor),
        ({"regex": "("}, ErrorCode.invalid_regular_expression),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], error: ErrorCode | None) -> None:
    refused = check_request(JOIN._replace(**changes), ("uniform", "range"))
    assert (refused and refused.error) == error


def test_a_static_member_that_was_replaced_is_fenced() -> None:
    model = Model()
    old, new = model.client("old", "i"), model.client("new", "i")
    model.heartbeat(old)
    model.settle()
    epoch = old.epoch
    model.leave(old, for_now=True)
    model.settle()
    model.heartbeat(new)
    model.settle()
    assert new.epoch == epoch == 1  # Nobody else noticed.
    assert len(new.target) == 4
    old.is_away, old.epoch = False, epoch
    answer = model.send(old).answer
    assert answer is not None
    assert answer.error is ErrorCode.fenced_instance_id


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (ConsumerKey(kinds.GROUP, "g"), 7),
        (ConsumerKey(kinds.TARGET_EPOCH, "g"), 7),
        (ConsumerKey(kinds.TOPICS, "g"), {"t": TopicSize(T1, 3), "ü": TopicSize(T2, 200)}),
        (ConsumerKey(kinds.PROFILE, "g", "m"), Profile()),
        (
            ConsumerKey(kinds.PROFILE, "g", "m"),
            Profile(instance_id="i", topics=("a", "b"), regex="x" * 200, assignor="range"),
        ),
        (ConsumerKey(kinds.TARGET, "g", "m"), frozenset({(T1, 0), (T1, 5), (T2, 1)})),
        (
            ConsumerKey(kinds.CURRENT, "g", "m"),
            Current(
                epoch=3,
                previous_epoch=2,
                state=MemberState.UNREVOKED,
                assigned=frozenset({(T1, 0)}),
                revoking=frozenset({(T2, 9)}),
            ),
        ),
    ],
)
def test_what_is_written_is_read(key: ConsumerKey, value: Any) -> None:
    record = consumer_record(key, value)
    assert read_consumer_key(record.key) == key
    assert record.value is not None
    assert read_consumer_value(key.kind, record.value) == value
    for end in range(len(record.value) - 1):  # The last byte says that there are no tags.
        with pytest.raises(InvalidBatch):
            read_consumer_value(key.kind, record.value[:end])


def test_records_have_kafkas_bytes() -> None:
    """By hand, after Kafka's schemas."""
    current = Current(epoch=2, previous_epoch=1, assigned=frozenset({(T1, 3)}))
    record = consumer_record(ConsumerKey(kinds.CURRENT, "g", "m"), current)
    assert record.key == b"\0\x08\0\x01g\0\x01m"
    share = b"\x02" + T1 + b"\x02\0\0\0\x03\0"
    assert (
        record.value == b"\0\0" + b"\0\0\0\x02" + b"\0\0\0\x01" + b"\x01" + share + b"\x01" + b"\0"
    )


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_each_partition_has_one_reader_and_loads_are_even(name: str) -> None:
    rng = random.Random(5)
    for _ in range(200):
        topics = {
            f"t{n}": TopicSize(TopicId(Uuid(bytes([n]) * 16)), rng.randrange(9)) for n in (1, 2)
        }
        same = rng.random() < 0.5
        had: dict[str, Reader] = {}
        for size in (rng.randrange(1, 6), rng.randrange(1, 6)):
            readers = {}
            for n in range(size):
                read = frozenset(topics if same else rng.sample(sorted(topics), rng.randrange(3)))
                before = had.get(f"m{n}")
                readers[f"m{n}"] = Reader(topics=read, had=before.had if before else frozenset())
            shares = ASSIGNORS[name](readers, topics)
            given = sorted(each for share in shares.values() for each in share)
            assert given == sorted(
                (topic_id, index)
                for topic, (topic_id, count) in topics.items()
                for index in range(count)
                if any(topic in each.topics for each in readers.values())
            )
            loads = [len(share) for share in shares.values()]
            if same and name == "uniform":
                assert max(loads) - min(loads) <= 1
            had = {each: Reader(topics=frozenset(), had=shares[each]) for each in readers}


def test_uniform_moves_no_more_than_it_must() -> None:
    topics = {"t": TopicSize(T1, 12)}
    reader = Reader(topics=frozenset({"t"}))
    first = ASSIGNORS["uniform"]({"a": reader, "b": reader, "c": reader}, topics)
    readers = {each: Reader(topics=frozenset({"t"}), had=had) for each, had in first.items()}
    second = ASSIGNORS["uniform"]({**readers, "d": reader}, topics)
    assert sum(len(first[each] & second[each]) for each in first) == 9
    assert ASSIGNORS["uniform"](readers, topics) == first


def test_patterns_match_as_others_say() -> None:
    """Python's own agree where both know the syntax."""
    rng = random.Random(7)
    atoms = ["a", "b", "-", r"\.", ".", r"\d", r"\w", "[a-c]", "[^ab]", r"\b", "^", "$", "(a|b-)"]
    more = ["", "", "*", "+", "?", "{0,2}", "{2}"]
    for _ in range(1500):
        text = "".join(f"(?:{rng.choice(atoms)}){rng.choice(more)}" for _ in range(3))
        pattern, known = TopicPattern(text), re.compile(text.replace("$", r"\Z"))
        for _ in range(5):
            name = "".join(rng.choice("abc.-1") for _ in range(rng.randrange(1, 6)))
            assert pattern.matches(name) == bool(known.fullmatch(name)), (text, name)


def test_a_pattern_takes_no_longer_than_its_name() -> None:
    assert not TopicPattern("(a+)+(a+)+(a|aa)+b").matches("a" * 249)
    assert TopicPattern("(?i)ORDERS[[:digit:]]+").matches("orders12")


@pytest.mark.parametrize(
    "text", ["(", ")", "[a", "a**", "*", "a{2,1}", "(?=a)", r"\1", "a{1001}", "((a{99}){99}){99}"]
)
def test_what_re2_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(PatternError):
        TopicPattern(text)
