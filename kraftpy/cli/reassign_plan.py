"""Where the replicas of partitions should be: as even as possible, moving as little as possible.

Plans are Kafka's JSON, so those of its own tools work here and the other way round. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kraftpy.errors import ConfigError

Name = tuple[str, int]
Replicas = tuple[int, ...]


def plan(
    current: Mapping[Name, Replicas], brokers: Sequence[int], replication_factor: int | None
) -> dict[Name, Replicas]:
    """The replicas of every partition, the preferred leader first; ConfigError if that cannot be.

    Replicas stay where they are; those without a place go where there is most room. Then one after
    the other moves from the fullest broker to the emptiest, until no two differ by more than one.
    """
    sizes = {name: replication_factor or len(replicas) for name, replicas in current.items()}
    if sizes and max(sizes.values()) > len(brokers):
        raise ConfigError(f"{max(sizes.values())} replicas need as many brokers")
    load = dict.fromkeys(brokers, 0)
    placed: dict[Name, list[int]] = {}
    for name, replicas in sorted(current.items()):
        placed[name] = [each for each in replicas if each in load][: sizes[name]]
        for each in placed[name]:
            load[each] += 1
    for name, chosen in placed.items():
        while len(chosen) < sizes[name]:
            free = min((b for b in brokers if b not in chosen), key=lambda b: (load[b], b))
            load[free] += 1
            chosen.append(free)
    _balance(placed, current, load)
    return _with_leaders(placed, brokers)


def _balance(
    placed: dict[Name, list[int]], current: Mapping[Name, Replicas], load: dict[int, int]
) -> None:
    """While two differ by more, some partition has the fuller one and not the emptier."""
    while True:
        full = max(load, key=lambda b: (load[b], b))
        empty = min(load, key=lambda b: (load[b], b))
        if load[full] - load[empty] <= 1:
            return
        movable = [
            name for name, chosen in placed.items() if full in chosen and empty not in chosen
        ]
        # Rather a replica that moves anyway than one that could stay.
        name = min(movable, key=lambda each: (full in current[each], each))
        placed[name][placed[name].index(full)] = empty
        load[full] -= 1
        load[empty] += 1


def _with_leaders(placed: Mapping[Name, list[int]], brokers: Sequence[int]) -> dict[Name, Replicas]:
    """Whoever is preferred least so far comes first; of several, who was first before."""
    leads = dict.fromkeys(brokers, 0)
    found: dict[Name, Replicas] = {}
    for name, replicas in placed.items():
        first = min(replicas, key=lambda each: (leads[each], replicas.index(each)))
        leads[first] += 1
        found[name] = (first, *(each for each in replicas if each != first))
    return found


def to_text(planned: Mapping[Name, Replicas]) -> str:
    """Kafka's JSON."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas)}
        for (topic, index), replicas in sorted(planned.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, indent=2)


def from_text(text: str, source: str) -> dict[Name, Replicas]:
    """A plan that somebody wrote; ConfigError says what is wrong with it."""
    try:
        found = json.loads(text)
        return dict(_partition(each) for each in found["partitions"])
    except KeyError as error:
        raise ConfigError(f"{source} is not a plan of a reassignment: no {error}") from None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{source} is not a plan of a reassignment: {error}") from None


def _partition(found: Any) -> tuple[Name, Replicas]:
    replicas = tuple(int(each) for each in found["replicas"])
    if not replicas or len(set(replicas)) != len(replicas):
        raise ValueError(f"{found['topic']}-{found['partition']}: replicas {list(replicas)}")
    return (str(found["topic"]), int(found["partition"])), replicas


def topics_of(names: Sequence[Name]) -> dict[str, list[int]]:
    """Partitions by their topic, as requests have them."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(names):
        found.setdefault(topic, []).append(index)
    return found
