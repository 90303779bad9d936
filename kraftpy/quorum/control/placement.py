"""Where the replicas of new partitions go: spread over racks, even over brokers. Pure.

Brokers stand in one circle in which racks alternate. Partition after partition, the next broker of
the circle leads, so leaders differ by one at most over all that one placer places. Followers are
the next in the circle, from a distance that changes with every round, so that when a broker dies
its leaderships go to many others. A replica goes to a rack with as few of the partition's replicas
as any, as long as that rack has a broker to spare.

Where racks are equally large the circle looks the same from each of its brokers. Then a round also
gives every broker the same number of replicas, exactly. With unequal racks the brokers of a small
rack hold more: being spread over racks comes first, as in Kafka.

What always holds: no broker twice; the first replica is active; a broker that is fenced or shutting
down is chosen only where too few others are left, and never counts as in sync (KAFKA-13083).
Where a placer begins is a matter of chance, so that many small topics spread evenly as well. It
begins anew at every topic that starts a round: else the first partitions of all topics of a request
would be led by the same broker.
"""

from collections import Counter, defaultdict
from itertools import chain, zip_longest
from typing import Final, TypeAlias

from kraftpy.metadata_log.image import Broker, ClusterImage
from kraftpy.metadata_log.records import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from kraftpy.quorum.control.activity import is_active
from kraftpy.types import BrokerId, Rng, Uuid

Replicas: TypeAlias = tuple[BrokerId, ...]

_NO_RACK: Final = ""


class Unplaceable(Exception):
    """There are not enough brokers; the message says how many there are."""


class ReplicaPlacer:
    """Places partitions of one or more topics. It sees the brokers of one image."""

    def __init__(self, image: ClusterImage, rng: Rng) -> None:
        self._rng = rng
        usable = [broker for _, broker in sorted(image.brokers.items()) if not _is_cordoned(broker)]
        active = [broker for broker in usable if is_active(image, broker.broker_id)]
        others = [broker for broker in usable if not is_active(image, broker.broker_id)]
        self._racks = {broker.broker_id: broker.rack or _NO_RACK for broker in usable}
        self._nothing_used = dict.fromkeys(self._racks.values(), 0)
        self._circle = _alternating(active)
        self._last_resort = _alternating(others)
        sizes = Counter(self._racks[broker_id] for broker_id in self._circle)
        self._stride = len(sizes)
        self._distances = _distances(list(sizes.values()))
        self._placed = 0  # Since the start was last chosen.
        self._start = 0
        self._distance = 0  # As an index of `_distances`.
        self._known: dict[tuple[int, int, int], Replicas] = {}

    def place(
        self, count: int, replication_factor: int, after: BrokerId | None = None
    ) -> list[Replicas]:
        """The replicas of `count` new partitions of a topic, each partition's leader first.

        `after` leads the last partition that the topic already has: the circle goes on from there.
        """
        self._check(replication_factor)
        size = len(self._circle)
        if after is not None and after in self._circle:
            self._begin(self._circle.index(after) + 1)
        elif self._placed % size == 0:
            self._begin(self._rng.randrange(size))
        placements = []
        for position in range(self._placed, self._placed + count):
            round_number, step = divmod(position, size)
            distance = self._distances[(self._distance + round_number) % len(self._distances)]
            leader = (self._start + step) % size
            placements.append(self._replicas(leader, distance, replication_factor))
        self._placed += count
        return placements

    def _begin(self, start: int) -> None:
        self._placed = 0
        self._start = start
        self._distance = self._rng.randrange(len(self._distances))

    def _check(self, replication_factor: int) -> None:
        usable = len(self._racks)
        if replication_factor > usable:
            raise Unplaceable(
                f"{replication_factor} replicas need as many brokers, and {usable} "
                f"{'is' if usable == 1 else 'are'} registered"
            )
        if not self._circle:
            raise Unplaceable("all brokers are fenced or shutting down")

    def _replicas(self, leader: int, distance: int, replication_factor: int) -> Replicas:
        key = (leader, distance, replication_factor)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._choose(*key)
        return found

    def _choose(self, leader: int, distance: int, replication_factor: int) -> Replicas:
        circle = self._circle
        chosen = [circle[leader]]
        first = leader + distance
        self._add(chosen, circle, first, min(replication_factor, len(circle)))
        if replication_factor > len(circle):
            self._add(chosen, self._last_resort, 0, replication_factor)
        return tuple(chosen)

    def _add(self, chosen: list[BrokerId], circle: list[BrokerId], first: int, wanted: int) -> None:
        """Go round the circle, taking from racks with `level` replicas at most, until enough."""
        racks, size = self._racks, len(circle)
        used = self._nothing_used.copy()
        for broker_id in chosen:
            used[racks[broker_id]] += 1
        level, step, misses = 0, first, 0
        while len(chosen) < wanted:
            # All racks have as many as this level allows: a round in vain is saved.
            level = max(level, len(chosen) // self._stride)
            candidate = circle[step % size]
            step += 1
            if used[racks[candidate]] <= level and candidate not in chosen:
                used[racks[candidate]] += 1
                chosen.append(candidate)
                misses = 0
            elif (misses := misses + 1) == size:  # What is left is in fuller racks.
                level, misses = level + 1, 0


def _alternating(brokers: list[Broker]) -> list[BrokerId]:
    """One broker of each rack, then the next of each: a1 b1 c1 a2 b2 c2 a3."""
    racks: defaultdict[str, list[BrokerId]] = defaultdict(list)
    for broker in brokers:
        racks[broker.rack or _NO_RACK].append(broker.broker_id)
    rows = zip_longest(*(racks[name] for name in sorted(racks)))
    return [broker_id for broker_id in chain.from_iterable(rows) if broker_id is not None]


def _distances(racks: list[int]) -> list[int]:
    """How far from its leader a follower may be looked for first, for racks of these sizes.

    In equal racks not where one of the leader's own rack is: whoever stands behind that one would
    follow twice as often as others.
    """
    period = len(racks) if len(racks) > 1 and len(set(racks)) == 1 else sum(racks) + 1
    return [each for each in range(1, sum(racks)) if each % period] or [1]


def _is_cordoned(broker: Broker) -> bool:
    """None of its directories takes new replicas (KIP-1066)."""
    return bool(broker.log_dirs) and set(broker.log_dirs) <= set(broker.cordoned_log_dirs)


def directory_for(broker: Broker) -> Uuid:
    """Where a new replica goes, as far as that is known: the broker decides between several."""
    if not broker.log_dirs:
        return MIGRATING_DIRECTORY
    open_dirs = [each for each in broker.log_dirs if each not in broker.cordoned_log_dirs]
    return open_dirs[0] if len(open_dirs) == 1 else UNASSIGNED_DIRECTORY
