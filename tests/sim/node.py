"""One simulated node: the real engine and the real log on a simulated disk, clock and wire.

A node runs when a message has come or its tick is due: it takes what has arrived, then ticks. Disk
effects cost time: what leaves after an fsync leaves later, and the node is busy until then. A node
dies at the effect it was told to die at, in the middle of whatever it does.
"""

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kraftpy.errors import FatalFault, KraftError, StorageError, WireError
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.metadata_log.snapshotter import SnapshotPolicy, Snapshotter, Writing
from kraftpy.quorum.consensus import Listener
from kraftpy.quorum.raft import messages
from kraftpy.quorum.raft.engine import RaftEngine, RaftTiming
from kraftpy.quorum.raft.guard import Message
from kraftpy.storage import LogConfig
from kraftpy.testing.simulated_files import PowerLoss
from tests.sim.disk import Durable, SimDisk
from tests.sim.oracles import Entry, NodeFacts
from tests.sim.plan import MS
from tests.sim.surroundings import LaterWriting, SimClock, SimListener, SimWorld

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation


class GroupSyncConfig(MetadataLogConfig):
    """A log that syncs when the journal says so, once for many batches."""

    @property
    def log(self) -> LogConfig:
        return replace(super().log, flush_interval_messages=None)


class SimNode:
    """A voter, through all its lives."""

    def __init__(self, sim: "Simulation", node_id: int, facts: NodeFacts) -> None:
        self.sim = sim
        self.id = node_id
        self.facts = facts
        self.engine: RaftEngine | None = None
        self.life = 0
        self.cost_us = 0
        self.queued_records = 0
        self.disk_is_bad = False
        self.sync_cost_us = sim.knobs.fsync_us
        self.paused_until_us = 0
        self.dies_by_power = True
        self.restart_after_us = 0
        seed = sim.plan.seed
        self.rng_disk = random.Random(f"{seed}/disk/{node_id}")
        drift = random.Random(f"{seed}/clock/{node_id}")
        drift_ppm = drift.randint(-sim.knobs.drift_ppm, sim.knobs.drift_ppm)
        self.clock = SimClock(self, drift_ppm, drift.randint(0, 10**9))
        self.disk = SimDisk(self.rng_disk, hard=sim.knobs.torn_subsets)
        self.directory = facts.durable.directory
        self.heard_us: dict[int, int] = {}
        self._inbox: deque[tuple[int, bytes | bool]] = deque()
        self._busy_until_us = 0
        self._next_run_us = -1
        self._led_since_us = 0
        self._ledger_checked = 0

    @staticmethod
    def directory_of(node_id: int) -> str:
        return f"/node-{node_id}/__cluster_metadata-0"

    # -- lives ----------------------------------------------------------------------------

    def start(self) -> None:
        if self.engine is not None:
            return
        self._inbox.clear()
        self.heard_us.clear()
        self._busy_until_us = self.sim.now_us
        self._next_run_us = -1
        self.paused_until_us = 0
        self.disk.watcher = self
        self._guarded(self._open)
        if self.engine is not None:
            self.disk_is_bad = self.disk.has_faults
            self.sim.trace("start", self.id, self.life, self.log_end)
            self._run_at(self.sim.now_us + self.cost_us)

    def _open(self) -> None:
        knobs = self.sim.knobs
        config = (GroupSyncConfig if knobs.group_fsync else MetadataLogConfig)(
            segment_bytes=knobs.segment_bytes,
            retention_bytes=knobs.retention_bytes,
            retention_ms=None,
        )
        log = MetadataLog(self.disk, self.directory, config, self.clock)
        engine = RaftEngine(
            node_id=self.id,
            voters=range(1, knobs.nodes + 1),
            files=self.disk,
            metadata_log=log,
            state_path=f"/node-{self.id}/quorum-state",
            world=SimWorld(self),
            clock=self.clock,
            rng=random.Random(f"{self.sim.plan.seed}/node/{self.id}/{self.life}"),
            timing=RaftTiming(
                election_timeout_ms=knobs.election_timeout_ms,
                heartbeat_ms=knobs.heartbeat_ms,
                check_quorum_ms=knobs.check_quorum_ms,
            ),
            snapshotter=Snapshotter(
                log,
                SnapshotPolicy(bytes_between=knobs.snapshot_bytes, interval_ms=None),
                self.clock,
                self._begin_snapshot,
            ),
        )
        if knobs.append_bytes:
            engine.core.conf.appendEntriesBatchSizeBytes = knobs.append_bytes
        self._watch_journal(engine.journal)
        vote = engine.journal._vote
        self.sim.oracles.restarted(self.id, vote.epoch, vote.voted_id, log.log.end_offset)
        self.engine = engine
        engine.start(self.listener())
        # What no snapshot stands for is told again from the log's start.
        self.facts.told_end = self.facts.high_watermark = engine.high_watermark

    def listener(self) -> Listener:
        """Who hears what the engine tells."""
        return SimListener(self)

    def _begin_snapshot(self, write: Callable[[], None]) -> Writing:
        return LaterWriting(self, write, self.sim.knobs.snapshot_delay_ms * MS)

    def die(self, *, power: bool) -> None:
        """As kill -9, or as if the plug was pulled."""
        if self.engine is not None:
            self.sim.counts["power" if power else "kill"] += 1
        self.sim.clients.take_outcomes()  # What it answered before it died was answered.
        self.sim.trace("die", self.id, self.life, power)
        self.engine = None
        self.life += 1
        self.cost_us = 0
        self.disk.watcher = None
        self.disk = self.disk.after_power_loss(self.rng_disk) if power else self.disk.after_kill()
        self.facts.durable.rebuild(self.disk)
        self.sim.clients.lost(self.id)
        self.sim.network.went_down(
            self.id, noticed_at_once=not power or self.rng_disk.random() < 0.5
        )
        after_us = self.restart_after_us or 200 * MS
        self.restart_after_us = 0
        life = self.life
        self.sim.at(self.sim.now_us + after_us, lambda: self._restart(life))

    def _restart(self, life: int) -> None:
        if life == self.life:
            self.start()

    def stop(self) -> None:
        """In good order."""
        engine = self.engine
        if engine is None or self.paused_until_us > self.sim.now_us:
            return
        self._guarded(engine.close)
        if self.engine is not None:
            self.sim.counts["stop"] += 1
            self.die(power=False)

    # -- running --------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self.engine is not None

    @property
    def log_end(self) -> int:
        """With what the journal has added and not written yet."""
        assert self.engine is not None
        journal = self.engine.journal
        return journal.end_offset_of(journal.last()[0])

    def wake(self) -> None:
        self._run_at(self.sim.now_us)

    def arrived(self, sender: int, item: bytes | bool) -> None:
        """A message, or the news that a connection is there or gone."""
        self._inbox.append((sender, item))
        self._run_at(self.sim.now_us)

    def _run_at(self, time_us: int) -> None:
        time_us = max(time_us, self._busy_until_us, self.paused_until_us)
        if 0 <= self._next_run_us <= time_us:
            return
        self._next_run_us = time_us
        life = self.life
        self.sim.at(time_us, lambda: self._run(life, time_us))

    def _run(self, life: int, due_us: int) -> None:
        if self.engine is None or life != self.life or due_us != self._next_run_us:
            return
        self._next_run_us = -1
        if max(self.paused_until_us, self._busy_until_us) > self.sim.now_us:
            self._run_at(self.sim.now_us)
            return
        self.sim.trace("run", self.id, len(self._inbox), self.life)
        self.cost_us = 0
        self._guarded(self._work)
        if self.engine is not None:
            self._busy_until_us = self.sim.now_us + self.cost_us
            self._run_at(self._busy_until_us + self.sim.knobs.tick_ms * MS)
        self.cost_us = 0

    def _work(self) -> None:
        assert self.engine is not None
        inbox, self._inbox = self._inbox, deque()
        for sender, item in inbox:
            self._take(sender, item)
        self.observe()
        self.queued_records = 0
        self.engine.tick(0)
        self.observe()
        self._check_quorum()

    def _take(self, sender: int, item: bytes | bool) -> None:
        assert self.engine is not None
        if item is True:
            self.engine.connected(sender)
        elif item is False:
            self.engine.disconnected(sender)
        else:
            self.heard_us[sender] = self.sim.now_us
            self.engine.receive(sender, messages.decode(item))

    def aside(self, life: int, action: Callable[[], None]) -> None:
        """What another thread of the node does."""
        if self.engine is not None and life == self.life:
            cost_us = self.cost_us
            self._guarded(action)
            self.cost_us = cost_us

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run the node's code and find out what became of the node."""
        try:
            action()
        except PowerLoss:
            pass
        except WireError as error:
            self.sim.oracles.violate("peers make sense", f"node {self.id}: {error}")
        except (FatalFault, StorageError) as error:
            self._failed(error)
            return
        except (KraftError, ArithmeticError, LookupError, TypeError, ValueError, OSError) as error:
            self.sim.oracles.violate("no surprises", f"node {self.id}: {error!r}")
        if self.disk.dead:
            self.die(power=self.dies_by_power)

    def _failed(self, error: KraftError) -> None:
        """The node stopped itself. Only a broken disk is a reason for that."""
        if not self.disk_is_bad:
            self.sim.oracles.violate("no node stops", f"node {self.id}: {error}")
        self.sim.counts["disk_stop"] += 1
        self.die(power=False)

    # -- what the world sees --------------------------------------------------------------

    def send(self, node_id: int, data: bytes) -> None:
        self.sim.network.send(self.id, node_id, data, self.sim.now_us + self.cost_us)

    def exposes(self, node_id: int, message: Message) -> None:
        """What a message promises to others must survive."""
        kind, oracles = message["type"], self.sim.oracles
        if kind == "response_vote":
            oracles.exposed(self.id, message["term"], node_id)
        elif kind == "request_vote":
            oracles.exposed(self.id, message["term"], self.id)
        elif kind == "pre_vote_response":
            oracles.exposed(self.id, message["epoch"], None)
        elif kind not in ("pre_vote", "snapshot_response"):
            oracles.exposed(self.id, message["term"], None)
        if kind == "next_node_idx" and message["success"]:
            self.facts.promised_end = max(self.facts.promised_end, message["end_offset"])

    # -- hooks ----------------------------------------------------------------------------

    def effect(self, kind: str, path: str) -> None:
        """The disk is about to do this."""
        if kind in ("sync", "sync_directory"):
            self.cost_us += int(self.sync_cost_us * (0.5 + self.rng_disk.random()))
        elif kind == "write" and path.endswith(".log"):
            self.sim.hook(self, "wrote_not_synced")
        elif kind == "write" and "quorum-state" in path:
            self.sim.hook(self, "voted")
        elif kind in ("truncate", "remove"):
            if path.endswith(".log"):
                self.facts.durable.forget(path)
            elif path.endswith(".checkpoint"):
                self.sim.hook(self, "shortens_log")
        elif kind == "rename" and path.endswith(".checkpoint"):
            self._snapshot_stored(int(path.rpartition("/")[2][:20]))

    def _snapshot_stored(self, end_offset: int) -> None:
        """From here on it counts, and a log that contradicts it does not."""
        entry = self.sim.oracles.entry_ending_at(end_offset)
        if entry is not None and self.engine is not None and not self.holds(entry):
            self.facts.promised_end = min(self.facts.promised_end, end_offset)

    def synced(self, path: str) -> None:
        if path.endswith(".log"):
            self.facts.durable.file_synced(path, self.disk.durable_bytes(path))
        elif path == self.directory:
            found = self.disk.directory_node(path)
            assert found is not None
            self.facts.durable.names_synced(set(found.durable))

    def _watch_journal(self, journal: Any) -> None:
        sim, facts = self.sim, self.facts
        move, cut, install = (
            journal.setRaftCommitIndex,
            journal.deleteEntriesFrom,
            journal.install,
        )

        def moves(index: int) -> None:
            if index > journal.commit_index:
                sim.hook(self, "high_watermark_moves")
                self._check_counted(journal, index)
            move(index)

        def cuts(position: int) -> None:
            sim.hook(self, "truncates")
            if 0 < position <= len(journal._offsets):
                offset = journal._offsets[position - 1]
                facts.promised_end = min(facts.promised_end, offset)
            sim.counts["truncations"] += 1
            cut(position)
            sim.trace("truncate", self.id, self.log_end, 0)

        def installs(end_offset: int, index: int, term: int) -> None:
            sim.hook(self, "installs_snapshot")
            sim.counts["installs"] += 1
            self._check_install(end_offset)
            install(end_offset, index, term)

        journal.setRaftCommitIndex = moves
        journal.deleteEntriesFrom = cuts
        journal.install = installs

    def _check_counted(self, journal: Any, index: int) -> None:
        """Raft, 5.4.2: a leader counts copies of its own epoch's entries only."""
        if self.engine is None or not journal.is_leader():
            return
        epoch, found = self.engine.core.raftCurrentTerm, journal.term_at(index)
        if found != epoch:
            self.sim.oracles.violate(
                "its own epoch counts",
                f"node {self.id} leads in epoch {epoch} and commits entry {index} of {found}",
            )

    def _check_install(self, end_offset: int) -> None:
        """A snapshot may not take away what follows it in a log that agrees with it."""
        entry = self.sim.oracles.entry_ending_at(end_offset)
        if entry is not None and self.facts.promised_end > end_offset and self.holds(entry):
            self.sim.oracles.violate(
                "keeps what it acknowledged",
                f"node {self.id} acknowledged {self.facts.promised_end}, and a snapshot of "
                f"{end_offset} takes its place",
            )

    # -- checks ---------------------------------------------------------------------------

    def holds(self, entry: Entry) -> bool:
        """Whether the log, or what it begins after, has a committed batch."""
        assert self.engine is not None
        journal = self.engine.journal
        if entry.base < journal.metadata_log.log.start_offset:
            return True
        position = bisect_left(journal._offsets, entry.base)
        if position == len(journal._offsets) or journal._offsets[position] != entry.base:
            return False
        after_index = journal.first_index + position
        return journal.batches(after_index, after_index + 1)[0].data == entry.data

    def observe(self) -> None:
        """The rules that need a look into the engine; after each step of it."""
        engine, oracles, facts = self.engine, self.sim.oracles, self.facts
        assert engine is not None
        vote, high_watermark = engine.journal._vote, engine.high_watermark
        oracles.vote(self.id, vote.epoch, vote.voted_id)
        if high_watermark < facts.high_watermark:
            oracles.violate(
                "high watermark grows",
                f"node {self.id}: {high_watermark} after {facts.high_watermark}",
            )
        facts.high_watermark = high_watermark
        if self.log_end < high_watermark:
            oracles.violate(
                "nothing committed is cut",
                f"node {self.id}: the log ends at {self.log_end}, below {high_watermark}",
            )
        if engine.core._isLeader():
            self._observe_leader(engine.core.raftCurrentTerm)

    def _observe_leader(self, epoch: int) -> None:
        oracles = self.sim.oracles
        news = oracles.leads(self.id, epoch)
        if news:
            oracles.check_elected(self.id, epoch)
            self._led_since_us = self.sim.now_us
            self.sim.counts["elections"] += 1
            self.sim.trace("leads", self.id, epoch, self.log_end)
        if news or len(oracles.ledger) != self._ledger_checked:
            self._ledger_checked = len(oracles.ledger)
            due = oracles.due_of_leader(epoch)
            if due is not None and not self.holds(due):
                oracles.violate(
                    "a leader has what is committed",
                    f"node {self.id} leads in epoch {epoch} without offset {due.base}",
                )
        if news:
            self.sim.hook(self, "became_leader")

    def _check_quorum(self) -> None:
        """Whoever is not heard by a majority for long does not lead, right after its tick."""
        engine, knobs = self.engine, self.sim.knobs
        assert engine is not None
        if not engine.core._isLeader():
            return
        patience_us = knobs.check_quorum_ms * MS * 12 // 10 + self.cost_us
        since_us = self.sim.now_us - patience_us
        if self._led_since_us > since_us:
            return
        heard = sum(time_us >= since_us for time_us in self.heard_us.values())
        if 2 * (heard + 1) <= knobs.nodes:
            self.sim.oracles.violate(
                "a leader alone steps down",
                f"node {self.id} leads in epoch {engine.core.raftCurrentTerm}, heard {heard}",
            )


def make_facts(nodes: int) -> dict[int, NodeFacts]:
    return {
        node_id: NodeFacts(Durable(SimNode.directory_of(node_id)))
        for node_id in range(1, nodes + 1)
    }
