"""`kraftpy quorum status`: ask a quorum how it is, and show it."""

import asyncio
import json
from dataclasses import asdict
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kraftpy.errors import KraftError
from kraftpy.network.places import Place, parse_place
from kraftpy.network.quorum_status import Replica, Status, find_status

_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS


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
    return [
        parse_place(part, "--bootstrap-controller", "localhost:9093") for part in text.split(",")
    ]


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
