"""Plans of reassignments: even, whole, and moving little."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.cli.reassign_plan import from_text, plan, to_text
from kraftpy.errors import ConfigError


@given(
    assigned=st.lists(
        st.permutations([1, 2, 3, 4]).map(lambda found: tuple(found[:2])), min_size=1, max_size=20
    ),
    brokers=st.lists(st.integers(1, 6), min_size=2, max_size=6, unique=True),
)
def test_no_broker_has_more_than_its_share(
    assigned: list[tuple[int, ...]], brokers: list[int]
) -> None:
    current = {("t", index): replicas for index, replicas in enumerate(assigned)}
    planned = plan(current, brokers, None)
    assert planned.keys() == current.keys()
    for replicas in planned.values():
        assert len(set(replicas)) == len(replicas) == 2
        assert set(replicas) <= set(brokers)
    load = Counter(each for replicas in planned.values() for each in replicas)
    assert max(load.values()) - min(load[each] for each in brokers) <= 1
    assert from_text(to_text(planned), "itself") == planned


def test_what_is_even_stays() -> None:
    current = {("t", 0): (1, 2), ("t", 1): (2, 3), ("t", 2): (3, 1)}
    assert plan(current, [1, 2, 3], None) == current


def test_a_new_broker_gets_its_share_and_no_more_moves() -> None:
    current = {("t", index): (1, 2) for index in range(3)}
    planned = plan(current, [1, 2, 3], None)
    load = Counter(each for replicas in planned.values() for each in replicas)
    assert load == {1: 2, 2: 2, 3: 2}
    assert len({replicas[0] for replicas in planned.values()}) == 3
    assert sum(len(set(planned[name]) - set(current[name])) for name in planned) == 2


def test_more_replicas_than_brokers_cannot_be() -> None:
    with pytest.raises(ConfigError, match="3 replicas need as many brokers"):
        plan({("t", 0): (1,)}, [1, 2], 3)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}']
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a plan"):
        from_text(text, "file")
