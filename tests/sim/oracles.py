"""What must hold, checked after every event from outside the nodes.

The ledger is the one history: batches that any node was told are committed, in order, with the
image that replaying them gives. Everything else is compared with it. Each check costs the same
however long the history is. The first violation ends a run.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from kraftpy.metadata_log.batches import metadata_records
from kraftpy.metadata_log.image import EMPTY, ClusterImage
from kraftpy.metadata_log.loading import replay_batches
from kraftpy.metadata_log.records import ConfigRecord
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.quorum.consensus import CommittedBatch
from kraftpy.storage.record_batch import BatchHeader
from tests.sim.disk import Durable, Place, batches_in


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken; a shrunk plan must break the same one."""

    rule: str
    text: str
    at_us: int = 0


class Violated(Exception):
    """Raised where a check fails outside of any node's code."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One attempt to write; its id is in the batch and is never used again."""

    id: str
    node_id: int
    epoch: int
    base_offset: int
    acked_before: int = 0  # For barriers: the largest end offset acknowledged until then.


@dataclass(slots=True)
class Entry:
    """One committed batch."""

    base: int
    end: int
    place: Place
    data: bytes
    image: ClusterImage


@dataclass(slots=True)
class NodeFacts:
    """What the others and the clients may rely on of one node, across its lives."""

    durable: Durable
    promised_end: int = 0  # It acknowledged that its log goes up to here.
    exposed_epoch: int = 0
    votes: dict[int, int] = field(default_factory=dict)  # Epoch: for whom, as others saw it.
    # Of this life only.
    epoch: int = 0
    voted_id: int | None = None
    told_end: int = 0
    high_watermark: int = 0
    listener_epoch: int = 0
    led: tuple[int, int] | None = None

    def new_life(self, epoch: int, voted_id: int | None) -> None:
        self.epoch, self.voted_id = epoch, voted_id
        self.told_end = self.high_watermark = self.listener_epoch = 0
        self.led = None


class Oracles:
    """All rules that need no look into an engine."""

    def __init__(self, facts: dict[int, NodeFacts]) -> None:
        self.facts = facts
        self.violation: Violation | None = None
        self.ledger: list[Entry] = []
        self.leaders: dict[int, int] = {}
        self.acked_end = 0
        self.acked = 0
        self.now_us = 0
        self._commit_epochs: list[int] = []
        self._by_base: dict[int, int] = {}
        self._by_end: dict[int, int] = {}
        self.committed_ids: dict[str, Entry] = {}
        self.refused_ids: set[str] = set()
        self.proposed: dict[str, Proposal] = {}

    def violate(self, rule: str, text: str) -> None:
        if self.violation is None:
            self.violation = Violation(rule, text, self.now_us)

    @property
    def end_offset(self) -> int:
        return self.ledger[-1].end if self.ledger else 0

    def entry_ending_at(self, end_offset: int) -> Entry | None:
        index = self._by_end.get(end_offset)
        return None if index is None else self.ledger[index]

    def image_at(self, end_offset: int) -> ClusterImage | None:
        index = self._by_end.get(end_offset)
        return None if index is None else self.ledger[index].image

    # -- what nodes are told --------------------------------------------------------------

    def told(self, node_id: int, batches: list[CommittedBatch], epoch: int, leads: bool) -> None:
        facts, known = self.facts[node_id], len(self.ledger)
        for batch in batches:
            header = batch.header
            if header.base_offset != facts.told_end:
                self.violate(
                    "told in order",
                    f"node {node_id} was told {header.base_offset} after {facts.told_end}",
                )
                return
            facts.told_end = header.end_offset
            index = self._by_base.get(header.base_offset)
            if index is None:
                self._commit(node_id, header, batch.data, epoch)
            elif self.ledger[index].data != batch.data:
                self.violate(
                    "committed for ever",
                    f"node {node_id} was told another batch at offset {header.base_offset}: epoch "
                    f"{header.leader_epoch}, was {self.ledger[index].place[0]}",
                )
                return
        if leads or len(self.ledger) > known:
            self._check_majority(node_id, batches[-1].header.base_offset)

    def _commit(self, node_id: int, header: BatchHeader, data: bytes, epoch: int) -> None:
        last = self.ledger[-1] if self.ledger else None
        if header.base_offset != self.end_offset:
            self.violate(
                "committed for ever",
                f"node {node_id} was told offset {header.base_offset}, the history ends at "
                f"{self.end_offset} and has no batch there",
            )
            return
        last_epoch = last.place[0] if last else 0
        if header.leader_epoch < last_epoch:
            self.violate("epochs grow", f"epoch {header.leader_epoch} behind {last_epoch}")
        if header.leader_epoch > last_epoch and not header.is_control:
            self.violate("leader change first", f"epoch {header.leader_epoch} begins without")
        place = next(batches_in(data))[2]
        found = [(header, memoryview(data))]
        image = replay_batches(last.image if last else EMPTY, found, 1 << 62)
        entry = Entry(header.base_offset, header.end_offset, place, data, image)
        self._by_base[entry.base] = self._by_end[entry.end] = len(self.ledger)
        self.ledger.append(entry)
        self._commit_epochs.append(max([epoch, *self._commit_epochs[-1:]]))
        if not header.is_control:
            self.identify(header, data, entry)

    def identify(self, header: BatchHeader, data: bytes, entry: Entry) -> None:
        """Whose write is it? One that was refused, or is there already, must not be."""
        first = metadata_records(header, memoryview(data))[0]
        assert isinstance(first, ConfigRecord)
        assert first.value is not None
        found = first.value.partition(" ")[0]
        if found in self.committed_ids:
            self.violate("each once", f"{found} is also at {self.committed_ids[found].base}")
        if found in self.refused_ids:
            self.violate("definite", f"{found} was refused and is committed at {entry.base}")
        proposal = self.proposed[found]
        if proposal.epoch != header.leader_epoch:
            self.violate(
                "decided in its epoch",
                f"{found} was decided in epoch {proposal.epoch}, is in {header.leader_epoch}",
            )
        if proposal.base_offset != entry.base:
            self.violate(
                "decided at its offset",
                f"{found} was decided for {proposal.base_offset}, is at {entry.base}",
            )
        self.committed_ids[found] = entry

    def _check_majority(self, node_id: int, base: int) -> None:
        index = self._by_base.get(base)
        if index is None:
            return
        place = self.ledger[index].place
        holders = [n for n, facts in self.facts.items() if facts.durable.holds(base, place)]
        if 2 * len(holders) <= len(self.facts):
            self.violate(
                "a majority holds it",
                f"node {node_id} calls {base} committed, durable on {holders} only",
            )

    def snapshot(self, node_id: int, snapshot_id: SnapshotId, image: ClusterImage) -> None:
        """A node goes on from a snapshot: it must be what replay gives."""
        facts = self.facts[node_id]
        if snapshot_id.end_offset < facts.told_end:
            self.violate("told in order", f"node {node_id} went back to {snapshot_id}")
        facts.told_end = snapshot_id.end_offset
        due = self.image_at(snapshot_id.end_offset)
        if due is None:
            self.violate("snapshot is replay", f"node {node_id}: {snapshot_id} is not committed")
        elif due != image:
            self.violate("snapshot is replay", f"node {node_id}: {due.diff(image)}")

    # -- what clients learn ---------------------------------------------------------------

    def acknowledged(self, proposal: Proposal, end_offset: int) -> None:
        entry = self.committed_ids.get(proposal.id)
        self.acked += 1
        if entry is None:
            self.violate("acknowledged is committed", f"{proposal.id} at {end_offset} is not")
        elif entry.end != end_offset:
            self.violate("acknowledged is committed", f"{proposal.id}: {end_offset}, {entry.end}")
        else:
            self._check_majority(proposal.node_id, entry.base)
        self.acked_end = max(self.acked_end, end_offset)

    def refused(self, proposal: Proposal) -> None:
        if proposal.id in self.committed_ids:
            self.violate("definite", f"{proposal.id} was refused and is committed")
        self.refused_ids.add(proposal.id)

    def read(self, barrier: Proposal, high_watermark: int) -> None:
        if high_watermark < barrier.acked_before:
            self.violate(
                "a barrier covers what was acknowledged",
                f"node {barrier.node_id} in epoch {barrier.epoch}: {high_watermark}, "
                f"{barrier.acked_before} was acknowledged before",
            )

    # -- leadership -----------------------------------------------------------------------

    def leads(self, node_id: int, epoch: int) -> bool:
        """A node leads in an epoch; whether that is news."""
        leader = self.leaders.setdefault(epoch, node_id)
        if leader != node_id:
            self.violate("one leader per epoch", f"epoch {epoch}: nodes {leader} and {node_id}")
        facts = self.facts[node_id]
        news = facts.led != (node_id, epoch)
        facts.led = node_id, epoch
        return news

    def check_elected(self, node_id: int, epoch: int) -> None:
        """A majority of different voters has voted for it."""
        voters = [n for n, facts in self.facts.items() if facts.votes.get(epoch) == node_id]
        if len(self.facts) > 1 and 2 * len(voters) <= len(self.facts):
            self.violate("a majority voted", f"node {node_id} leads {epoch}, voted {voters}")

    def heard_leadership(self, node_id: int, leader_id: int | None, epoch: int) -> None:
        facts = self.facts[node_id]
        if epoch < facts.listener_epoch:
            self.violate("epochs grow", f"node {node_id}: {epoch} after {facts.listener_epoch}")
        facts.listener_epoch = epoch
        if leader_id is not None and self.leaders.setdefault(epoch, leader_id) != leader_id:
            self.violate(
                "one leader per epoch",
                f"node {node_id} follows {leader_id} in epoch {epoch}, {self.leaders[epoch]} led",
            )

    def due_of_leader(self, epoch: int) -> Entry | None:
        """The last batch that a leader of this epoch must have from its first moment on."""
        index = bisect_left(self._commit_epochs, epoch)
        return self.ledger[index - 1] if index else None

    # -- durable state --------------------------------------------------------------------

    def vote(self, node_id: int, epoch: int, voted_id: int | None) -> None:
        """What a running node has as its epoch and vote."""
        facts = self.facts[node_id]
        if epoch < facts.epoch:
            self.violate("epochs grow", f"node {node_id}: {epoch} after {facts.epoch}")
        elif epoch == facts.epoch and facts.voted_id not in (None, voted_id):
            self.violate("one vote", f"node {node_id} in {epoch}: {facts.voted_id}, {voted_id}")
        facts.epoch, facts.voted_id = epoch, voted_id

    def exposed(self, node_id: int, epoch: int, voted_id: int | None) -> None:
        """A message shows that a node is in this epoch, perhaps that it voted."""
        facts = self.facts[node_id]
        facts.exposed_epoch = max(facts.exposed_epoch, epoch)
        if voted_id is not None and facts.votes.setdefault(epoch, voted_id) != voted_id:
            self.violate(
                "one vote", f"node {node_id} in {epoch}: {facts.votes[epoch]} and {voted_id}"
            )

    def restarted(self, node_id: int, epoch: int, voted_id: int | None, log_end: int) -> None:
        facts = self.facts[node_id]
        if epoch < facts.exposed_epoch:
            self.violate(
                "epochs grow", f"node {node_id} restarts in {epoch}, was in {facts.exposed_epoch}"
            )
        known = facts.votes.get(epoch)
        if known is not None and known != voted_id:
            self.violate("one vote", f"node {node_id} in {epoch}: forgot that it voted {known}")
        if log_end < facts.promised_end:
            self.violate(
                "keeps what it acknowledged",
                f"node {node_id} restarts with {log_end}, acknowledged {facts.promised_end}",
            )
        facts.new_life(epoch, voted_id)
