"""Which partition a group's name belongs to is what Java's hashCode says."""

import pytest

from kraftpy.broker.groups.coordinator import name_hash
from kraftpy.broker.groups.subscriptions import subscribed_topics


@pytest.mark.parametrize(
    ("name", "java"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("polygenelubricants", -(2**31) & 0x7FFFFFFF),  # Integer.MIN_VALUE, made positive.
        ("\U0001f600", (0xD83D * 31 + 0xDE00) & 0x7FFFFFFF),  # Two UTF-16 units.
    ],
)
def test_the_hash_is_javas(name: str, java: int) -> None:
    assert name_hash(name) == java


def test_topics_of_a_subscription_are_found_and_garbage_says_nothing() -> None:
    metadata = b"\x00\x01\x00\x00\x00\x02\x00\x01a\x00\x02bc\xff\xff\xff\xff"
    assert subscribed_topics([metadata, metadata]) == frozenset({"a", "bc"})
    assert subscribed_topics([metadata, b"\x00"]) is None
    assert subscribed_topics([metadata[:9]]) is None
