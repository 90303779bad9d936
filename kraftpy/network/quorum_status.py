"""How a quorum is, from whichever of its controllers answers.

Only the leader knows how far everybody is. A controller that does not lead says who does, and where
all of them listen; so one reachable address is enough.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.errors import Unreachable, WireError
from kraftpy.network.client import WireClient
from kraftpy.network.places import Place
from kraftpy.wire.apis import DESCRIBE_QUORUM

_TOPIC: Final = "__cluster_metadata"
_NEWEST_VERSION: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A voter or an observer, as its leader sees it; -1 and None for what is not known."""

    replica_id: int
    host: str | None
    port: int | None
    log_end_offset: int
    lag: int | None
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What the leader says."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[Replica, ...]
    observers: tuple[Replica, ...]


async def find_status(places: Sequence[Place], timeout_s: float) -> Status:
    """Ask controllers until the leader has answered; Unreachable says what each one said."""
    waiting = list(places)
    asked: dict[Place, str] = {}
    while waiting:
        place = waiting.pop(0)
        if place in asked:
            continue
        try:
            answer = await _describe(place, timeout_s)
        except (Unreachable, WireError) as error:
            asked[place] = str(error)
            continue
        partition = _partition(answer, place)
        nodes = _nodes(answer)
        if partition.error_code is ErrorCode.none:
            return _status(partition, nodes)
        if partition.error_code is not ErrorCode.not_leader_or_follower:
            raise Unreachable(f"{place} answers {partition.error_code.name}")
        asked[place] = _says(place, partition)
        leader = nodes.get(partition.leader_id)
        waiting = [*([leader] if leader else []), *waiting, *nodes.values()]
    raise Unreachable("; ".join(asked.values()))


def _says(place: Place, partition: Any) -> str:
    if partition.leader_id < 0:
        return f"{place} knows no leader in epoch {partition.leader_epoch}"
    return f"{place} says that {partition.leader_id} leads in epoch {partition.leader_epoch}"


async def _describe(place: Place, timeout_s: float) -> Any:
    client = await WireClient.connect(place.host, place.port, timeout_s=timeout_s)
    try:
        topic = {"topic_name": _TOPIC, "partitions": [{"partition_index": 0}]}
        values = {"topics": [topic]}
        return await client.ask(DESCRIBE_QUORUM, values, version_max=_NEWEST_VERSION)
    finally:
        await client.close()


def _partition(answer: Any, place: Place) -> Any:
    if answer.error_code is not ErrorCode.none:
        raise Unreachable(f"{place} answers {answer.error_code.name}")
    if not answer.topics or not answer.topics[0].partitions:
        raise Unreachable(f"{place} says nothing of {_TOPIC}")
    return answer.topics[0].partitions[0]


def _nodes(answer: Any) -> dict[int, Place]:
    return {
        node.node_id: Place(node.listeners[0].host, node.listeners[0].port)
        for node in getattr(answer, "nodes", ())
        if node.listeners
    }


def _status(partition: Any, nodes: dict[int, Place]) -> Status:
    ends = {voter.replica_id: voter.log_end_offset for voter in partition.current_voters}
    end = ends.get(partition.leader_id, partition.high_watermark)

    def replicas(found: Any) -> Iterator[Replica]:
        for each in found:
            place = nodes.get(each.replica_id)
            known = each.log_end_offset >= 0
            yield Replica(
                replica_id=each.replica_id,
                host=place.host if place else None,
                port=place.port if place else None,
                log_end_offset=each.log_end_offset,
                lag=max(end - each.log_end_offset, 0) if known else None,
                last_fetch_ms=getattr(each, "last_fetch_timestamp", -1),
                last_caught_up_ms=getattr(each, "last_caught_up_timestamp", -1),
            )

    return Status(
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=tuple(replicas(partition.current_voters)),
        observers=tuple(replicas(partition.observers)),
    )
