"""Replicas are spread over racks and even over brokers, whatever is created in whatever order.

Method: random clusters of racks of any size, random requests of many topics. What must hold for
each partition is checked for each; evenness is checked per topic and over everything placed. A
placer with a planted bug fails each check.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.metadata_log import EMPTY, ClusterImage, replay_batch
from kraftpy.metadata_log.records import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    RegisterBrokerRecord,
)
from kraftpy.quorum.control.placement import ReplicaPlacer, Replicas, Unplaceable, directory_for
from kraftpy.types import BrokerId
from tests.unit.control.cluster import broker, directory

Place = Callable[[ReplicaPlacer, int, int], list[Replicas]]


def image_of(*brokers: RegisterBrokerRecord) -> ClusterImage:
    return replay_batch(EMPTY, brokers, 0, 1)


def racked(*sizes: int) -> ClusterImage:
    """Racks of these sizes; ids are dealt out so that neighbours are in different racks or not."""
    numbers = iter(range(1000))
    return image_of(
        *(
            broker(next(numbers), rack=f"rack-{rack}")
            for rack, size in enumerate(sizes)
            for _ in range(size)
        )
    )


def rack_of(image: ClusterImage, broker_id: BrokerId) -> str:
    return image.brokers[broker_id].rack or ""


def leaders(placed: list[Replicas]) -> Counter[BrokerId]:
    return Counter(replicas[0] for replicas in placed)


def spread(image: ClusterImage, counts: Counter[BrokerId]) -> int:
    """How far the busiest broker is from the idlest."""
    each = [counts[broker_id] for broker_id in image.brokers]
    return max(each) - min(each)


def check_partition(image: ClusterImage, replicas: Replicas, replication_factor: int) -> None:
    assert len(replicas) == len(set(replicas)) == replication_factor
    assert not image.brokers[replicas[0]].fenced
    sizes = Counter(rack_of(image, broker_id) for broker_id in image.brokers)
    used = Counter(rack_of(image, broker_id) for broker_id in replicas)
    for rack, size in sizes.items():
        if used[rack] < size:  # A rack with brokers to spare has at most one replica less.
            assert max(used.values()) - used[rack] <= 1, f"{replicas} crowd a rack: {used}"


def check_even(image: ClusterImage, topics: list[list[Replicas]], *, equal_racks: bool) -> None:
    for placed in topics:
        assert spread(image, leaders(placed)) <= 1, "leaders of a topic"
    everything = [replicas for placed in topics for replicas in placed]
    assert spread(image, leaders(everything)) <= 1, "leaders of a request"
    if equal_racks:
        replicas = Counter(broker_id for each in everything for broker_id in each)
        assert spread(image, replicas) <= 2 * len(everything[0]), "replicas of a request"


def place(placer: ReplicaPlacer, count: int, replication_factor: int) -> list[Replicas]:
    return placer.place(count, replication_factor)


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[int], list[int], int, int]:
    equal = draw(st.booleans())
    racks = draw(st.integers(1, 5))
    sizes = (
        [draw(st.integers(1, 5))] * racks
        if equal
        else draw(st.lists(st.integers(1, 5), min_size=racks, max_size=racks))
    )
    counts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=30))
    return sizes, counts, draw(st.integers(1, min(6, sum(sizes)))), draw(st.integers(0, 2**32))


def check_request(
    sizes: list[int], counts: list[int], replication_factor: int, seed: int, how: Place = place
) -> None:
    image = racked(*sizes)
    placer = ReplicaPlacer(image, random.Random(seed))
    topics = [how(placer, count, replication_factor) for count in counts]
    for placed in topics:
        for replicas in placed:
            check_partition(image, replicas, replication_factor)
    check_even(image, topics, equal_racks=len(set(sizes)) == 1)


@settings(max_examples=150)
@given(requests())
def test_one_request_is_even_and_spread_over_racks(
    request: tuple[list[int], list[int], int, int],
) -> None:
    check_request(*request)


def always_first(placer: ReplicaPlacer, count: int, factor: int) -> list[Replicas]:
    placer._begin(0)
    return [placer._replicas(0, 0, factor)] * count


def begins_at_the_same_broker(placer: ReplicaPlacer, count: int, factor: int) -> list[Replicas]:
    placer._begin(0)
    placer._placed = 1  # So that `place` does not begin anew.
    return placer.place(count, factor)


def racks_forgotten(placer: ReplicaPlacer, count: int, factor: int) -> list[Replicas]:
    placer._circle.sort()
    placer._racks = dict.fromkeys(placer._racks, "rack-0")
    placer._known.clear()
    return placer.place(count, factor)


@pytest.mark.parametrize("bug", [always_first, begins_at_the_same_broker, racks_forgotten])
def test_the_checks_see_a_planted_bug(bug: Place) -> None:
    with pytest.raises(AssertionError):
        check_request([3, 3, 3], [7] * 20, 3, 1, bug)


@pytest.mark.parametrize(("racks", "factor"), [((2, 2, 2), 3), ((3, 3), 2), ((6,), 3), ((1, 5), 2)])
def test_many_small_topics_in_requests_of_their_own_spread_evenly(
    racks: tuple[int, ...], factor: int
) -> None:
    image, rng = racked(*racks), random.Random(7)
    placed = [ReplicaPlacer(image, rng).place(1, factor)[0] for _ in range(6000)]
    assert all(900 < count < 1100 for count in leaders(placed).values())
    # When a broker dies, what it led goes to several others.
    heirs = Counter(replicas[1] for replicas in placed if replicas[0] == BrokerId(0))
    others = [each for each in image.brokers if rack_of(image, each) != "rack-0"]
    assert len(heirs) == (len(others) or 5)


def test_a_round_gives_every_broker_of_equal_racks_the_same_number_of_replicas() -> None:
    image = racked(3, 3, 3)
    placed = ReplicaPlacer(image, random.Random(3)).place(18, 3)
    assert set(Counter(b for replicas in placed for b in replicas).values()) == {6}
    assert set(leaders(placed).values()) == {2}
    assert len(set(placed)) == 18  # The second round is not the first again.


def test_partitions_that_are_added_one_by_one_go_on_round_the_circle() -> None:
    image, rng = racked(2, 2, 2), random.Random(5)
    placed = ReplicaPlacer(image, rng).place(1, 3)
    for _ in range(11):
        placed += ReplicaPlacer(image, rng).place(1, 3, after=placed[-1][0])
    assert set(leaders(placed).values()) == {2}


def test_first_partitions_of_many_topics_have_different_leaders() -> None:
    placer = ReplicaPlacer(racked(2, 2, 2), random.Random(9))
    firsts = [placer.place(6, 3)[0][0] for _ in range(100)]
    assert len(set(firsts)) == 6


@pytest.mark.parametrize("inactive", [{"fenced": True}, {"in_controlled_shutdown": True}])
def test_a_broker_that_is_not_active_is_a_last_resort_and_never_first(
    inactive: dict[str, bool],
) -> None:
    image = image_of(broker(1, rack="a"), broker(2, rack="a"), broker(3, rack="b", **inactive))
    two = ReplicaPlacer(image, random.Random(1)).place(50, 2)
    assert {broker_id for replicas in two for broker_id in replicas} == {1, 2}
    three = ReplicaPlacer(image, random.Random(1)).place(50, 3)
    assert {replicas[2] for replicas in three} == {3}


def test_too_few_brokers_are_named() -> None:
    with pytest.raises(Unplaceable, match="3 replicas need as many brokers, and 1 is registered"):
        ReplicaPlacer(racked(1), random.Random(1)).place(1, 3)
    fenced = image_of(broker(1, fenced=True), broker(2, in_controlled_shutdown=True))
    with pytest.raises(Unplaceable, match="all brokers are fenced or shutting down"):
        ReplicaPlacer(fenced, random.Random(1)).place(1, 2)
    with pytest.raises(Unplaceable):
        ReplicaPlacer(EMPTY, random.Random(1)).place(1, 1)


def test_a_broker_whose_directories_are_all_cordoned_gets_no_new_replicas() -> None:
    image = image_of(broker(1), broker(2, cordoned_log_dirs=(directory(2),)))
    assert ReplicaPlacer(image, random.Random(1)).place(2, 1) == [(1,), (1,)]
    with pytest.raises(Unplaceable):
        ReplicaPlacer(image, random.Random(1)).place(1, 2)


def test_the_directory_of_a_new_replica_is_named_where_there_is_no_choice() -> None:
    one, two = directory(1, 0), directory(1, 1)
    assert directory_for(broker(1, log_dirs=(one,))) == one
    assert directory_for(broker(1, log_dirs=(one, two))) == UNASSIGNED_DIRECTORY
    assert directory_for(broker(1, log_dirs=(one, two), cordoned_log_dirs=(one,))) == two
    assert directory_for(broker(1, log_dirs=())) == MIGRATING_DIRECTORY


def test_the_same_seed_places_the_same() -> None:
    image = racked(2, 3, 1)
    first, second = (ReplicaPlacer(image, random.Random(4)).place(20, 3) for _ in range(2))
    assert first == second
