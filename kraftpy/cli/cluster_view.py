"""What `kraftpy dev` shows of a cluster, put together from what its nodes said. Pure.

A `Sight` is what one look has found. Two of them give rates and the lines that say what changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftpy.metadata_log.topic_names import is_internal

NO_LEADER = -1


class PartitionSight(NamedTuple):
    """One partition, as the brokers tell their clients."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


PartitionName = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One look; what could not be learned is empty."""

    at_ms: int
    processes: Mapping[int, str]  # Node to running, paused, killed, ...
    active_controller: int | None = None
    epoch: int | None = None
    voter_lags: Mapping[int, int | None] = field(default_factory=dict)
    brokers: tuple[int, ...] = ()  # Those that are not fenced.
    partitions: Mapping[PartitionName, PartitionSight] = field(default_factory=dict)
    end_offsets: Mapping[PartitionName, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One line of the table; None where a column says nothing of such a node."""

    node: int
    role: str
    state: str
    lag: int | None = None
    led: int | None = None
    replicas: int | None = None
    under_replicated: int | None = None
    records_per_s: float | None = None


def node_rows(
    controllers: tuple[int, ...], brokers: tuple[int, ...], before: Sight | None, now: Sight
) -> list[NodeRow]:
    """The table: controllers, then brokers."""
    rates = _rates(before, now)
    return [
        *(_controller_row(node, now) for node in controllers),
        *(_broker_row(node, now, rates) for node in brokers),
    ]


def _controller_row(node: int, now: Sight) -> NodeRow:
    is_active = node == now.active_controller
    return NodeRow(
        node=node,
        role="controller",
        state="active" if is_active and now.processes[node] == "running" else now.processes[node],
        lag=now.voter_lags.get(node),
    )


def _broker_row(node: int, now: Sight, rates: Mapping[int, float]) -> NodeRow:
    state = now.processes[node]
    if state == "running" and node not in now.brokers:
        state = "fenced"
    led = [each for each in now.partitions.values() if each.leader == node]
    return NodeRow(
        node=node,
        role="broker",
        state=state,
        led=len(led),
        replicas=sum(node in each.replicas for each in now.partitions.values()),
        under_replicated=sum(each.is_under_replicated for each in led),
        records_per_s=rates.get(node, 0.0),
    )


def _rates(before: Sight | None, now: Sight) -> dict[int, float]:
    """Records per second that each leader has taken since the look before."""
    if before is None or now.at_ms <= before.at_ms:
        return {}
    found: dict[int, float] = {}
    for name, end_offset in now.end_offsets.items():
        partition = now.partitions.get(name)
        if partition is None or name not in before.end_offsets:
            continue
        grown = max(end_offset - before.end_offsets[name], 0)
        rate = 1000 * grown / (now.at_ms - before.at_ms)
        found[partition.leader] = found.get(partition.leader, 0.0) + rate
    return found


def changes(before: Sight | None, now: Sight) -> Iterator[str]:
    """What a person would want to hear of, in words."""
    if before is None:
        return
    for node, state in now.processes.items():
        if before.processes.get(node) != state:
            yield f"node {node} is {state}"
    if now.active_controller is not None and now.active_controller != before.active_controller:
        yield f"controller {now.active_controller} is active in epoch {now.epoch}"
    if now.brokers and before.brokers:
        for broker in sorted(set(before.brokers) - set(now.brokers)):
            yield f"broker {broker} is fenced"
        for broker in sorted(set(now.brokers) - set(before.brokers)):
            yield f"broker {broker} is unfenced"
    for name, partition in sorted(now.partitions.items()):
        was = before.partitions.get(name)
        if was is not None and was != partition:
            yield from _partition_changes(name, was, partition)


def _partition_changes(
    name: PartitionName, was: PartitionSight, now: PartitionSight
) -> Iterator[str]:
    topic, index = name
    if was.leader != now.leader:
        to = "nobody" if now.leader == NO_LEADER else str(now.leader)
        of = "nobody" if was.leader == NO_LEADER else str(was.leader)
        yield f"{topic}-{index}: leader {of} -> {to}"
    if set(was.isr) != set(now.isr):
        yield f"{topic}-{index}: in sync {_listed(was.isr)} -> {_listed(now.isr)}"


def _listed(nodes: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, sorted(nodes))) + "]"


def most_worrying(
    partitions: Mapping[PartitionName, PartitionSight], count: int
) -> list[tuple[PartitionName, PartitionSight]]:
    """Partitions without a leader first, then those that lack replicas, then by name.

    Among equals, those of the user's topics come before those of the cluster's own.
    """

    def worry(item: tuple[PartitionName, PartitionSight]) -> tuple[bool, bool, bool, PartitionName]:
        name, partition = item
        led = partition.leader != NO_LEADER
        return led, not partition.is_under_replicated, is_internal(name[0]), name

    return sorted(partitions.items(), key=worry)[:count]
