"""`kraftpy quorum status`: ask a quorum how it is, whichever of its controllers answers.

Only the leader knows how far everybody is. A controller that does not lead says who does, and where
all of them listen; so one reachable address is enough.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import click
from kio.schema.errors import ErrorCode
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kraftpy.errors import ConfigError, KraftError, Unreachable, WireError
from kraftpy.network.client import WireClient
from kraftpy.wire.apis import DESCRIBE_QUORUM

_TOPIC: Final = "__cluster_metadata"
_NEWEST_VERSION: Final = 2
_PLACE: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_PORT_MAX: Final = 65535
_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS


class Place(NamedTuple):
    """Where a controller listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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


@click.command()
@click.option(
    "--bootstrap-controller",
    "bootstrap",
    metavar="HOST:PORT",
    default="localhost:9093",
    show_default=True,
    help="Any controller, or several with commas between them.",
)
@click.option("--watch", "-w", is_flag=True, help="Keep it live, until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs; with --watch by line.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1, 600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long one controller may take to answer.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often --watch looks.",
)
def status(bootstrap: str, watch: bool, as_json: bool, timeout_s: float, interval_s: float) -> None:
    """Show leader, epoch, high watermark, voters and observers."""
    places = parse_places(bootstrap)
    if not watch:
        found = asyncio.run(find_status(places, timeout_s))
        if as_json:
            click.echo(json.dumps(asdict(found)))
        else:
            Console().print(shown(found))
        return
    try:
        asyncio.run(_watch(places, timeout_s, interval_s, as_json=as_json))
    except KeyboardInterrupt:
        return  # It is how a watch ends.


def parse_places(text: str) -> list[Place]:
    """The controllers to ask; ConfigError if one is not HOST:PORT."""
    places = []
    for part in text.split(","):
        match = _PLACE.fullmatch(part.strip())
        if match is None or not 0 < int(match[2]) <= _PORT_MAX:
            raise ConfigError(
                f"--bootstrap-controller: expected HOST:PORT, such as localhost:9093, "
                f"not {part.strip()!r}"
            )
        places.append(Place(match[1].strip("[]"), int(match[2])))
    return places


async def _watch(
    places: list[Place], timeout_s: float, interval_s: float, *, as_json: bool
) -> None:
    if as_json:
        while True:
            click.echo(json.dumps(await _status_or_error(places, timeout_s)))
            await asyncio.sleep(interval_s)
    with Live(Text("asking ..."), auto_refresh=False, transient=False) as live:
        while True:
            try:
                live.update(shown(await find_status(places, timeout_s)), refresh=True)
            except KraftError as error:  # An election, a restart: the next look may see more.
                live.update(Text(str(error)), refresh=True)
            await asyncio.sleep(interval_s)


async def _status_or_error(places: list[Place], timeout_s: float) -> dict[str, Any]:
    try:
        return asdict(await find_status(places, timeout_s))
    except KraftError as error:
        return {"error": str(error)}


# -- asking -----------------------------------------------------------------------------------


async def find_status(places: list[Place], timeout_s: float) -> Status:
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


# -- showing ----------------------------------------------------------------------------------


def shown(status: Status) -> Group:
    """As people read it. Times are told as the leader's clock has it."""
    head = Text.assemble(
        "leader ",
        (str(status.leader_id), "bold"),
        "   epoch ",
        (str(status.leader_epoch), "bold"),
        "   high watermark ",
        (str(status.high_watermark), "bold"),
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("node", justify="right")
    table.add_column("role")
    table.add_column("address")
    for name in ("log end", "lag", "last fetch", "caught up"):
        table.add_column(name, justify="right")
    leader = next((v for v in status.voters if v.replica_id == status.leader_id), None)
    now_ms = leader.last_caught_up_ms if leader else -1
    for replica in status.voters:
        role = "leader" if replica is leader else "voter"
        table.add_row(*_row(replica, role, now_ms), style="bold" if replica is leader else "")
    for replica in status.observers:
        table.add_row(*_row(replica, "observer", now_ms))
    return Group(head, table)


def _row(replica: Replica, role: str, now_ms: int) -> tuple[str, ...]:
    place = str(Place(replica.host, replica.port or 0)) if replica.host else "-"
    return (
        str(replica.replica_id),
        role,
        place,
        "-" if replica.log_end_offset < 0 else str(replica.log_end_offset),
        "-" if replica.lag is None else str(replica.lag),
        "-" if role == "leader" else _ago(replica.last_fetch_ms, now_ms),
        "-" if role == "leader" else _ago(replica.last_caught_up_ms, now_ms),
    )


def _ago(then_ms: int, now_ms: int) -> str:
    if then_ms < 0:
        return "never"
    ms = max(now_ms - then_ms, 0)
    if ms < _SECOND_MS:
        return f"{ms} ms ago"
    if ms < _MINUTE_MS:
        return f"{ms / _SECOND_MS:.1f} s ago"
    return f"{ms // _MINUTE_MS} min ago" if ms < _HOUR_MS else f"{ms // _HOUR_MS} h ago"
