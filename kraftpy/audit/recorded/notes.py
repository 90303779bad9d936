"""Notes that nodes took (`audit-notes.jsonl`) as rows for the rules, and what the rules say.

A line that is not understood is counted and passed over: a newer node may note more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kraftpy.audit.rules import node_logs, node_records
from kraftpy.audit.rules.rows import (
    AckRow,
    AppliedRow,
    LeaderRow,
    ReplicaRow,
    TruncationRow,
    VoteRow,
    WatermarkRow,
)
from kraftpy.audit.rules.rule import PartitionKey, Violation
from kraftpy.storage.audit_notes import read_notes
from kraftpy.storage.file_layer import FileLayer
from kraftpy.types import TopicId, parse_uuid


@dataclass(frozen=True, slots=True)
class UncleanRequest:
    """Somebody asked a controller for unclean elections; no partitions: for all of them."""

    principal: str
    offset: int
    partitions: frozenset[PartitionKey]
    is_for_all: bool
    time_ms: int


@dataclass(slots=True)
class NodeNotes:
    """All that one node noted."""

    node: int = -1
    role: str = ""
    votes: list[VoteRow] = field(default_factory=list)
    leaders: list[LeaderRow] = field(default_factory=list)
    truncations: list[TruncationRow] = field(default_factory=list)
    watermarks: list[WatermarkRow] = field(default_factory=list)
    applied: list[AppliedRow] = field(default_factory=list)
    replicas: list[ReplicaRow] = field(default_factory=list)
    acks: list[AckRow] = field(default_factory=list)
    requests: list[UncleanRequest] = field(default_factory=list)
    topics: dict[bytes, str] = field(default_factory=dict)
    not_understood: int = 0

    def __bool__(self) -> bool:
        return self.node >= 0


def read_node_notes(files: FileLayer, data_directory: str) -> NodeNotes:
    """The notes in a data directory; falsy if there are none."""
    found = NodeNotes()
    lines = list(read_notes(files, data_directory))
    for line in lines:
        if line["kind"] == "start" and isinstance(line.get("node"), int):
            found.node, found.role = line["node"], str(line.get("role", ""))
    for line in lines:
        try:
            _take(found, line)
        except (KeyError, TypeError, ValueError):
            found.not_understood += 1
    return found


def _take(out: NodeNotes, line: dict[str, Any]) -> None:
    place = out.node, int(line["life"]), int(line["at"])
    match line["kind"]:
        case "vote":
            voted = line["voted"]
            out.votes.append(VoteRow(*place, line["epoch"], None if voted is None else int(voted)))
        case "leader":
            out.leaders.append(LeaderRow(out.node, -1, line["epoch"], line["leader"]))
        case "truncation":
            out.truncations.append(TruncationRow(*place, line["offset"], line["high_watermark"]))
        case "high_watermark":
            out.watermarks.append(WatermarkRow(*place, line["epoch"], line["offset"]))
        case "applied":
            out.applied.append(AppliedRow(*place, line["offset"], line["digest"]))
        case "replica":
            _take_replica(out, place, line)
        case "unclean_election_request":
            out.requests.append(_request(line))
        case "start" | "failed":
            pass
        case _:
            out.not_understood += 1


def _take_replica(out: NodeNotes, place: tuple[int, int, int], line: dict[str, Any]) -> None:
    topic_id = TopicId(parse_uuid(line["topic_id"]))
    out.topics[topic_id] = str(line["topic"])
    names = ReplicaRow._fields[4:]
    out.replicas.append(ReplicaRow(*place, topic_id, *(int(line[name]) for name in names)))
    acked = int(line.get("acked_offset", -1))
    if acked >= 0:
        epoch = int(line["acked_epoch"])
        out.acks.append(AckRow(out.node, topic_id, int(line["partition"]), acked, epoch))


def _request(line: dict[str, Any]) -> UncleanRequest:
    partitions = frozenset(
        (TopicId(parse_uuid(topic_id)), int(number))
        for _, topic_id, number in line["partitions"]
        if topic_id is not None
    )
    is_for_all = bool(line["all"]) or bool(line.get("left_out"))
    return UncleanRequest(
        str(line["principal"]), int(line["offset"]), partitions, is_for_all, int(line["time_ms"])
    )


@dataclass(slots=True)
class Recorded:
    """What rules found in what lies beside the logs, and how much of it each looked at."""

    violations: list[Violation] = field(default_factory=list)
    looked_at: dict[str, int] = field(default_factory=dict)

    def look(self, number: int, rows: int, found: Iterable[Violation]) -> None:
        if rows:
            code = f"A{number}"
            self.looked_at[code] = self.looked_at.get(code, 0) + rows
            self.violations += found


def check_notes(
    nodes: Sequence[NodeNotes],
    ends: Sequence[tuple[int, int]] = (),
    unclean: Mapping[PartitionKey, set[int]] | None = None,
) -> Recorded:
    """A40, A41, A48, A52, A53 and A59, as far as nodes noted what they need. `ends`: where the
    log of each node ends; `unclean`: epochs that began with an unclean election, if known."""
    out = Recorded()
    votes = [row for each in nodes for row in each.votes]
    leaders = [row for each in nodes for row in each.leaders]
    cuts = [row for each in nodes for row in each.truncations]
    marks = [row for each in nodes for row in each.watermarks]
    applied = [row for each in nodes for row in each.applied]
    replicas = [row for each in nodes for row in each.replicas]
    out.look(40, len(leaders), node_logs.one_leader_per_epoch(leaders))
    out.look(41, len(votes), node_records.votes_are_kept(votes))
    out.look(48, len(cuts), node_records.truncations_spare_what_is_committed(cuts))
    out.look(48, len(marks), node_records.logs_keep_what_was_committed(marks, ends))
    out.look(52, len(applied), node_records.images_agree(applied))
    out.look(53, len(replicas), node_records.watermarks_of_leaders_grow(replicas, unclean))
    out.look(59, len(replicas), node_records.watermarks_wait_for_enough(replicas))
    return out
