"""How a supervised cluster looks on a terminal: nodes, partitions, what happened, which keys."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kraftpy.cli.cluster_view import NO_LEADER, NodeRow, PartitionName, PartitionSight

KEYS: Final = (
    ("↑↓", "choose"),
    ("k", "kill"),
    ("p", "pause"),
    ("c", "resume"),
    ("r", "restart"),
    ("s", "stop"),
    ("x", "cut off"),
    ("h", "heal"),
    ("q", "quit"),
)
_STATE_STYLES: Final = {
    "active": "bold green",
    "running": "green",
    "starting": "yellow",
    "fenced": "yellow",
    "paused": "magenta",
    "stopped": "dim",
    "killed": "bold red",
}


def cluster_table(
    head: str,
    rows: Sequence[NodeRow],
    addresses: dict[int, tuple[str, int | None]],
    cut_off: frozenset[int],
    chosen: int,
    partitions: Sequence[tuple[PartitionName, PartitionSight]],
    partitions_left_out: int,
    happened: Sequence[str],
) -> Group:
    """All of it, from top to bottom."""
    parts: list[Text | Table] = [Text(head), _nodes(rows, addresses, cut_off, chosen)]
    if partitions:
        parts.append(_partition_table(partitions))
    if partitions_left_out:
        parts.append(Text(f"  and {partitions_left_out} more", style="dim"))
    parts += [Text(f"  {line}", style="dim") for line in happened]
    keys = Text()
    for key, meaning in KEYS:
        keys.append(f" {key} ", style="reverse")
        keys.append(f" {meaning}  ")
    parts.append(keys)
    return Group(*parts)


def _nodes(
    rows: Sequence[NodeRow],
    addresses: dict[int, tuple[str, int | None]],
    cut_off: frozenset[int],
    chosen: int,
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("node", justify="right")
    for name in ("role", "state", "address"):
        table.add_column(name)
    for name in ("pid", "lag", "leads", "replicas", "under-repl.", "records/s"):
        table.add_column(name, justify="right")
    for row in rows:
        address, pid = addresses[row.node]
        state = Text(row.state, style=_STATE_STYLES.get(row.state, ""))
        if row.node in cut_off:
            state.append(" cut off", style="bold magenta")
        table.add_row(
            "▶" if row.node == chosen else " ",
            str(row.node),
            row.role,
            state,
            address,
            _number(pid),
            _number(row.lag),
            _number(row.led),
            _number(row.replicas),
            Text(_number(row.under_replicated), style="bold red" if row.under_replicated else ""),
            "" if row.records_per_s is None else f"{row.records_per_s:,.0f}",
            style="bold" if row.node == chosen else "",
        )
    return table


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _partition_table(partitions: Sequence[tuple[PartitionName, PartitionSight]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("partition", min_width=24)
    table.add_column("leader", justify="right")
    table.add_column("replicas, in sync in green")
    for (topic, index), partition in partitions:
        replicas = Text()
        for replica in partition.replicas:
            style = "green" if replica in partition.isr else "red strike"
            bold = " bold" if replica == partition.leader else ""
            replicas.append(str(replica), style=f"{style}{bold}").append(" ")
        leader = Text("none", style="bold red")
        if partition.leader != NO_LEADER:
            leader = Text(str(partition.leader), style="bold")
        table.add_row(f"{topic}-{index}", leader, replicas)
    return table
