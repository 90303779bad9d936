"""Who gets which partitions: the assignors that a coordinator has, by Kafka's names. Pure.

uniform   every member as many as the others, as far as subscriptions allow, and as much as possible
          of what it had before
range     topic by topic, each member one run of partitions next to each other, in the order of
          instance or member ids; so topics with equal counts are shared in the same way

What always holds: each partition of a topic that somebody reads has one member, that reads it; the
same members and topics give the same assignment, whatever order they come in.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kraftpy.broker.groups.consumer_records import Partition, Partitions, TopicSize

UNIFORM: Final = "uniform"
RANGE: Final = "range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A member as assignors see it."""

    topics: frozenset[str]
    had: Partitions = frozenset()
    instance_id: str | None = None


Readers = Mapping[str, Reader]
Topics = Mapping[str, TopicSize]
Assignor = Callable[[Readers, Topics], dict[str, Partitions]]


# -- range --------------------------------------------------------------------------------------


def by_range(readers: Readers, topics: Topics) -> dict[str, Partitions]:
    shares: dict[str, list[Partition]] = {member_id: [] for member_id in readers}
    order = sorted(readers, key=lambda each: (_rank(readers[each].instance_id), each))
    for name, (topic_id, count) in sorted(topics.items()):
        members = [each for each in order if name in readers[each].topics]
        if not members:
            continue
        least, more = divmod(count, len(members))
        start = 0
        for at, member_id in enumerate(members):
            end = start + least + (at < more)
            shares[member_id] += ((topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _rank(instance_id: str | None) -> tuple[bool, str]:
    """Static members come first, by instance ids, which outlive their member ids."""
    return instance_id is None, instance_id or ""


# -- uniform ------------------------------------------------------------------------------------


def by_uniform(readers: Readers, topics: Topics) -> dict[str, Partitions]:
    everything = {
        (topic_id, index): name
        for name, (topic_id, count) in sorted(topics.items())
        for index in range(count)
    }
    if len({reader.topics.intersection(topics) for reader in readers.values()}) == 1:
        return _equal_readers(readers, everything)
    return _different_readers(readers, everything)


def _equal_readers(readers: Readers, everything: Mapping[Partition, str]) -> dict[str, Partitions]:
    """All read the same: quotas say who keeps what, and who is given more."""
    some = next(iter(readers.values())).topics
    open_ones = {each for each, name in everything.items() if name in some}
    least, more = divmod(len(open_ones), len(readers))
    shares: dict[str, list[Partition]] = {}
    # Those that had most are the first to keep one more than the others.
    for member_id in sorted(readers, key=lambda each: (-len(readers[each].had), each)):
        had = sorted(readers[member_id].had & open_ones)
        quota = least + (len(had) > least and more > 0)
        more -= quota > least
        shares[member_id] = had[:quota]
        open_ones.difference_update(shares[member_id])
    left = iter(sorted(open_ones))
    for member_id in sorted(shares):
        share = shares[member_id]
        wanted = least - len(share)
        if wanted >= 0 and more:
            wanted, more = wanted + 1, more - 1
        share += (each for _, each in zip(range(wanted), left, strict=False))
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _different_readers(
    readers: Readers, everything: Mapping[Partition, str]
) -> dict[str, Partitions]:
    """Keep what may be kept, give the rest to who has least, then even out by single moves."""
    by_name: dict[str, list[str]] = {}
    for member_id in sorted(readers):
        for name in readers[member_id].topics:
            by_name.setdefault(name, []).append(member_id)
    shares: dict[str, set[Partition]] = {
        member_id: {
            each for each in readers[member_id].had if everything.get(each) in reader.topics
        }
        for member_id, reader in sorted(readers.items())
    }
    kept: set[Partition] = set()
    for share in shares.values():
        share.difference_update(kept)
        kept |= share

    def load(member_id: str) -> int:
        return len(shares[member_id])

    left = [each for each, name in everything.items() if each not in kept and name in by_name]
    for each in sorted(left, key=lambda each: (len(by_name[everything[each]]), each)):
        shares[min(by_name[everything[each]], key=load)].add(each)
    # Each move brings two loads nearer to each other, so there is an end to it.
    moved = True
    while moved:
        moved = False
        for giver in sorted(shares, key=load, reverse=True):
            for each in sorted(shares[giver]):
                taker = min(by_name[everything[each]], key=load)
                if load(giver) - load(taker) > 1:
                    shares[giver].discard(each)
                    shares[taker].add(each)
                    moved = True
    return {member_id: frozenset(share) for member_id, share in shares.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: by_uniform, RANGE: by_range}
