"""Finding a name that collides gives what a walk over all names would give, at every step."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.quorum.control.topic_names import TopicNames
from kraftpy.quorum.control.topics import APIS
from kraftpy.wire.apis import DELETE_TOPICS
from tests.unit.control.cluster import Cluster
from tests.unit.control.topic_requests import TIMEOUT, creatable, create, three_brokers

NAMES = ["a", "a.b", "a_b", "a.b.c", "a_b.c", "a.b_c", "ab", "x.y", "x_y"]


def alike(cluster: Cluster, name: str) -> list[str]:
    """By walking."""
    look = name.replace(".", "_")
    return sorted(
        each
        for each in cluster.image.topic_ids
        if each != name and each.replace(".", "_") == look and look != each.replace("_", "")
    )


def wrong(cluster: Cluster, index: PartitionIndex) -> list[str]:
    return [name for name in NAMES if index.colliding(name) != alike(cluster, name)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(NAMES)), max_size=20))
def test_the_index_follows_creations_and_deletions(steps: list[tuple[bool, str]]) -> None:
    cluster = three_brokers()
    for is_creation, name in steps:
        if is_creation:
            create(cluster, creatable(name, 1, 1))
        else:
            asked = {"topic_names": [name], "timeout": TIMEOUT}
            cluster.ask(APIS, DELETE_TOPICS, 5, **asked)
        assert wrong(cluster, cluster.index) == []
        assert wrong(cluster, PartitionIndex(cluster.image)) == []


@pytest.mark.parametrize("forgotten", ["add", "remove"])
def test_an_index_that_forgets_is_seen(forgotten: str, monkeypatch: Any) -> None:
    cluster = three_brokers()
    cluster.index.colliding("a")  # From now on it follows.
    create(cluster, creatable("a.b", 1, 1))
    monkeypatch.setattr(TopicNames, forgotten, lambda _self, _name: None)
    if forgotten == "add":
        create(cluster, creatable("x.y", 1, 1))
    else:
        cluster.ask(APIS, DELETE_TOPICS, 5, topic_names=["a.b"], timeout=TIMEOUT)
    assert wrong(cluster, cluster.index)
