"""A partition's replicas, a controller and a bad network, for the machine of kraftpy.broker.

`Cluster(seed).run(steps)` is one life: everything that happens is drawn from the seed. Messages are
lost, late and out of order; brokers are paused, killed and come back, some without the end of their
log; the controller fences, elects and answers ISR proposals, and its metadata reaches each broker
late, several changes at once. Unclean elections and ELR are off, so the controller never lets go of
the last replica that has everything; for the same reason a broker loses records only while another
member of the ISR has them, and is fenced at once.

After each step `check` demands what verification.md, section 2, names. An entry's `chain` stands
for all entries up to it: equal chains, equal logs.
"""

import random
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.broker import effects as fx
from kraftpy.broker.isr import AlterPartitionAnswer, IsrProposal, Moment
from kraftpy.broker.partition import ACKS_ALL, Replica, ReplicaConfig, Role
from kraftpy.broker.reads import Diverging, EpochEnd, FetchPosition, FollowerFetch, Refused, Serve
from kraftpy.types import NO_LEADER, BrokerId
from tests.property.partition_parts import (
    Controller,
    FetchAnswer,
    Message,
    ModelLog,
    Node,
    demand,
)

LAG_MS = 100


class Cluster:
    """One life. `trace` says what was done, for whoever looks into a violation."""

    def __init__(self, seed: int, machine: type[Replica] = Replica) -> None:
        self.rng = rng = random.Random(seed)
        self.machine = machine
        ids = [BrokerId(each) for each in range(1, rng.choice([2, 3, 3, 3, 4]) + 1)]
        self.config = ReplicaConfig(
            min_insync_replicas=rng.choice([1, 1, 2]), replica_lag_time_max_ms=LAG_MS
        )
        self.controller = Controller(ids, rng)
        self.now_ms = 1_000
        self.values = 0
        self.committed: list[int] = []  # The chain at each offset that was ever committed.
        self.acked: list[tuple[int, int]] = []
        self.network: list[Message] = []
        self.trace: list[str] = []
        self.hits: dict[str, int] = {}
        self.nodes: dict[BrokerId, Node] = {}
        for each in ids:
            log = ModelLog()
            node = Node(each, machine(each, log, self.config, high_watermark=0), log)
            node.broker_epoch = self.controller.brokers[each].broker_epoch
            self.nodes[each] = node
        # Each life has its own faults, and its own rates of them.
        self.weights = {
            "append": rng.choice([2, 4, 8]),
            "fetch": 14,
            "deliver": rng.choice([14, 22]),
            "lose": rng.choice([0, 1, 3]),
            "learn": rng.choice([2, 4, 8]),
            "wait": rng.choice([0, 1, 3]),
            "elect": rng.choice([0, 0.5, 1]),
            "flash": rng.choice([0, 0.5, 1]),
            "fence": rng.choice([0, 0, 1, 2]),
            "unfence": 2,
            "kill": rng.choice([0, 0, 1]),
            "lose_records": rng.choice([0, 0, 1]),
            "restart": 2,
            "save": 1,
        }
        self.batch = rng.choice([1, 2, 5])
        for node in self.nodes.values():
            self.learn(node, 0)

    # -- one step -------------------------------------------------------------------------

    def run(self, steps: int) -> "Cluster":
        names, weights = list(self.weights), list(self.weights.values())
        for name in self.rng.choices(names, weights, k=steps):
            getattr(self, f"do_{name}")()
            self.check()
        return self

    def say(self, what: str) -> None:
        self.trace.append(what)
        name = what.split()[0]
        self.hits[name] = self.hits.get(name, 0) + 1

    def some(self, *, alive: bool) -> Node | None:
        nodes = [each for each in self.nodes.values() if each.alive is alive]
        return self.rng.choice(nodes) if nodes else None

    def do_append(self) -> None:
        leaders = [n for n in self.nodes.values() if n.alive and n.replica.is_leader]
        if leaders:
            self.append(self.rng.choice(leaders))

    def do_fetch(self) -> None:
        node = self.some(alive=True)
        if node is not None:
            self.fetch(node)

    def do_deliver(self) -> None:
        if self.network:
            # Mostly in order, now and then not.
            last = len(self.network) - 1
            at = 0 if self.rng.random() < 0.6 else self.rng.randint(0, last)
            self.deliver(self.network.pop(at))

    def do_lose(self) -> None:
        if self.network:
            lost = self.network.pop(self.rng.randrange(len(self.network)))
            self.say(f"lost {type(lost.body).__name__} of {lost.source}")
            self.lose(lost)

    def do_learn(self) -> None:
        node = self.some(alive=True)
        if node is not None and node.applied < len(self.controller.history) - 1:
            self.learn(node, self.rng.randint(node.applied + 1, len(self.controller.history) - 1))

    def do_wait(self) -> None:
        self.now_ms += self.rng.choice([1, 20, LAG_MS + 1])
        for node in self.nodes.values():
            if node.alive:
                self.carry_out(node, node.replica.tick(self.moment(node)))

    def do_elect(self) -> None:
        candidates = self.controller.candidates()
        if candidates:
            leader = self.rng.choice(candidates)
            self.say(f"elect {leader}")
            self.controller.elect(leader)
            if self.rng.random() < 0.5:
                self.tell_all()

    def do_flash(self) -> None:
        """A leader that most never hear of cuts a follower's log, and is gone again.

        Random steps alone hardly ever come to it, and it is what leader epochs are for.
        """
        before = self.controller.partition.leader
        others = [each for each in self.controller.candidates() if each != before]
        nodes = [self.nodes[each] for each in others if self.nodes[each].alive]
        if before == NO_LEADER or not nodes:
            return
        leader = self.rng.choice(nodes)
        self.say(f"flash {leader.broker_id}")
        self.controller.elect(leader.broker_id)
        follower = self.some(alive=True)
        for node in (leader, follower):
            if node is not None and node.applied < len(self.controller.history) - 1:
                self.learn(node, len(self.controller.history) - 1)
        for _ in range(2):
            if follower is not None and follower is not leader:
                self.fetch_now(follower)
        if self.rng.random() < 0.5:
            self.controller.fence(leader.broker_id)
        elif not self.controller.brokers[before].fenced:
            self.controller.elect(before)
        if self.rng.random() < 0.5:
            self.tell_all()

    def fetch_now(self, node: Node) -> None:
        """A fetch and its answer, ahead of everything that is on its way."""
        under_way, self.network = self.network, []
        self.fetch(node)
        while self.network:
            self.deliver(self.network.pop(0))
        self.network = under_way

    def tell_all(self) -> None:
        for node in self.nodes.values():
            if node.alive and node.applied < len(self.controller.history) - 1:
                self.learn(node, len(self.controller.history) - 1)

    def do_fence(self) -> None:
        broker_id = self.rng.choice(list(self.nodes))
        if not self.controller.brokers[broker_id].fenced:
            self.say(f"fence {broker_id}")
            self.controller.fence(broker_id)
            if self.rng.random() < 0.5:
                self.tell_all()

    def do_unfence(self) -> None:
        node = self.some(alive=True)
        if node is not None and self.controller.brokers[node.broker_id].fenced:
            self.say(f"unfence {node.broker_id}")
            self.controller.unfence(node.broker_id)

    def do_kill(self) -> None:
        node = self.some(alive=True)
        if node is not None:
            self.say(f"kill {node.broker_id}")
            node.alive = False

    def do_lose_records(self) -> None:
        node = self.some(alive=True)
        isr = self.controller.partition.isr
        if node is None or (node.broker_id in isr and len(isr) == 1):
            return
        self.fetch(node)  # It says what it has, and that comes late (KIP-903).
        kept = self.rng.randint(0, node.log.end_offset)
        self.say(f"lose_records {node.broker_id} from {kept}")
        node.alive = False
        node.has_lost = True
        node.log.truncate(kept)
        self.controller.fence(node.broker_id)
        if self.rng.random() < 0.5:
            self.restart(node)
            self.controller.unfence(node.broker_id)
            self.tell_all()

    def do_restart(self) -> None:
        node = self.some(alive=False)
        if node is not None:
            self.restart(node)

    def do_save(self) -> None:
        for node in self.nodes.values():
            node.checkpoint = node.replica.high_watermark

    # -- what brokers do ------------------------------------------------------------------

    def moment(self, node: Node) -> Moment:
        _, brokers = self.controller.history[node.applied]
        return Moment(self.now_ms, node.broker_epoch, brokers)

    def append(self, node: Node) -> None:
        replica = node.replica
        if replica.check_append(ACKS_ALL) is not ErrorCode.none:
            return
        self.values += 1
        node.log.append(replica.leader_epoch, self.values)
        end = node.log.end_offset
        self.say(f"append {self.values} at {end - 1} on {node.broker_id}")
        node.waiting.append((end, replica.leader_epoch, node.log.chain(end)))
        self.carry_out(node, replica.appended(self.moment(node)))
        self.complete(node)

    def fetch(self, node: Node) -> None:
        replica = node.replica
        if replica.role is not Role.FOLLOWER or replica.leader == NO_LEADER:
            return
        position = replica.fetch_position()
        body = FollowerFetch(
            node.broker_id,
            node.broker_epoch,
            position.leader_epoch,
            position.offset,
            position.last_fetched_epoch,
            position.log_start_offset,
        )
        self.send(node, replica.leader, (body, position))

    def send(self, node: Node, target: BrokerId, body: Any) -> None:
        life = self.nodes[target].life if target != NO_LEADER else 0
        self.network.append(Message(node.broker_id, node.life, target, life, body))

    def restart(self, node: Node) -> None:
        self.say(f"restart {node.broker_id}")
        node.life += 1
        node.alive = True
        node.waiting = []
        node.led = {}
        node.broker_epoch = self.controller.register(node.broker_id)
        node.replica = self.machine(
            node.broker_id, node.log, self.config, high_watermark=node.checkpoint
        )
        # A broker serves nothing before it has replayed its own registration.
        self.learn(node, len(self.controller.history) - 1)

    def learn(self, node: Node, upto: int) -> None:
        node.applied = upto
        partition, _ = self.controller.history[upto]
        self.say(
            f"learn {node.broker_id}: leader {partition.leader} epoch {partition.leader_epoch} "
            f"isr {partition.isr} partition epoch {partition.partition_epoch}"
        )
        self.carry_out(node, node.replica.apply_metadata(partition, self.moment(node)))

    def deliver(self, message: Message) -> None:
        if message.target == NO_LEADER:
            self.answer_proposal(message)
            return
        node = self.nodes[message.target]
        if not node.alive or node.life != message.target_life:
            return
        match message.body:
            case (FollowerFetch() as fetch, FetchPosition() as position):
                self.answer_fetch(node, message, fetch, position)
            case FetchAnswer() as answer:
                self.take_answer(node, answer)
            case (IsrProposal() as proposal, AlterPartitionAnswer() as answer):
                self.say(f"answered {node.broker_id} {answer.error.name}")
                found = node.replica.alter_partition_answered(proposal, answer, self.moment(node))
                self.carry_out(node, found)

    def lose(self, message: Message) -> None:
        """A proposal or its answer that got lost is sent again after a while."""
        if message.target == NO_LEADER:
            node, life, proposal = self.nodes[message.source], message.source_life, message.body
        elif message.source == NO_LEADER:
            node, life, proposal = self.nodes[message.target], message.target_life, message.body[0]
        else:
            return
        if node.alive and node.life == life:
            late = AlterPartitionAnswer(error=ErrorCode.request_timed_out)
            found = node.replica.alter_partition_answered(proposal, late, self.moment(node))
            self.carry_out(node, found)

    def answer_proposal(self, message: Message) -> None:
        answer = self.controller.alter(message.source, message.body)
        self.say(f"alter {message.source} {message.body.isr}: {answer.error.name}")
        body = (message.body, answer)
        self.network.append(
            Message(NO_LEADER, message.source_life, message.source, message.source_life, body)
        )

    def answer_fetch(
        self, node: Node, message: Message, fetch: FollowerFetch, position: FetchPosition
    ) -> None:
        plan, found = node.replica.follower_fetch(fetch, self.moment(node))
        self.say(f"fetched {fetch} from {node.broker_id}: {type(plan).__name__}")
        self.carry_out(node, found)
        entries = []
        if isinstance(plan, Serve):
            plan = replace(plan, high_watermark=node.replica.high_watermark)
            count = self.rng.randint(0, self.batch)
            entries = node.log.entries[fetch.offset : min(fetch.offset + count, plan.end_offset)]
        answer = FetchAnswer(position, plan, entries, node.log.end_offset)
        self.network.append(
            Message(node.broker_id, node.life, message.source, message.source_life, answer)
        )

    def take_answer(self, node: Node, answer: FetchAnswer) -> None:
        replica = node.replica
        match answer.plan:
            case Refused(ErrorCode.offset_out_of_range):
                self.carry_out(node, replica.out_of_range(answer.position, 0, answer.log_end))
            case Diverging(epoch, end_offset):
                found = replica.diverged(answer.position, EpochEnd(epoch, end_offset))
                self.carry_out(node, found)
            case Serve() as served if replica.accepts(answer.position):
                for entry in answer.entries:
                    node.log.append(entry.epoch, entry.value)
                found = replica.replicated(
                    answer.position.leader_epoch, served.high_watermark, served.log_start_offset
                )
                self.carry_out(node, found)

    def carry_out(self, node: Node, found: fx.Effects) -> None:
        for effect in found:
            match effect:
                case fx.HighWatermarkMoved(offset):
                    self.say(f"hw {offset} on {node.broker_id}")
                    self.watermark_moved(node, offset)
                case fx.CompleteWaiting():
                    self.complete(node)
                case fx.ProposeIsr(proposal):
                    self.send(node, NO_LEADER, proposal)
                case fx.AssignEpoch(epoch, start_offset):
                    node.log.epochs.assign(epoch, start_offset, durably=False)
                case fx.TruncateTo(offset, below) | fx.StartOver(offset, below):
                    self.say(f"truncate {node.broker_id} to {offset}")
                    demand(not below, "NeverBelowHighWatermark", f"{node.broker_id} to {offset}")
                    node.log.truncate(offset)
                    node.replica.log_changed()

    # -- what must hold -------------------------------------------------------------------

    def watermark_moved(self, node: Node, offset: int) -> None:
        replica = node.replica
        if not replica.is_leader:
            return
        enough = len(replica.isr) >= min(self.config.min_insync_replicas, len(replica.replicas))
        demand(enough, "MinIsr", f"{node.broker_id} moved to {offset} with ISR {replica.isr}")
        known = min(offset, len(self.committed))
        chains = [entry.chain for entry in node.log.entries[:offset]]
        demand(
            not known or chains[known - 1] == self.committed[known - 1],
            "ConsistentRead",
            f"{node.broker_id} commits other records before {known}",
        )
        self.committed += chains[len(self.committed) :]

    def complete(self, node: Node) -> None:
        left = []
        for end, epoch, chain in node.waiting:
            outcome = node.replica.produce_outcome(end, epoch)
            if outcome is None:
                left.append((end, epoch, chain))
            elif outcome is ErrorCode.none:
                self.say(f"ack {end - 1} by {node.broker_id}")
                self.acked.append((end, chain))
                for member in self.controller.partition.isr:
                    self.demand_holds(member, end, chain, "AckedIsHeldByIsr")
        node.waiting = left

    def demand_holds(self, broker_id: BrokerId, end: int, chain: int, rule: str) -> None:
        log = self.nodes[broker_id].log
        holds = log.end_offset >= end and log.chain(end) == chain
        demand(holds, rule, f"{broker_id} lacks records before {end}")

    def check(self) -> None:
        partition = self.controller.partition
        in_isr = partition.leader == NO_LEADER or partition.leader in partition.isr
        demand(in_isr, "LeaderInIsr", f"{partition}")
        end = len(self.committed)
        if end:
            for member in partition.isr:
                # With this, StrongIsr, ValidHighWatermark and LeaderCompleteness hold as well.
                self.demand_holds(member, end, self.committed[-1], "CandidateCompleteness")
        for node in self.nodes.values():
            if node.alive:
                self.check_node(node)

    def check_node(self, node: Node) -> None:
        replica, log = node.replica, node.log
        offset = replica.high_watermark
        demand(offset <= log.end_offset, "ValidHighWatermark", f"{node.broker_id} at {offset}")
        if offset:
            demand(
                offset <= len(self.committed) and log.chain(offset) == self.committed[offset - 1],
                "LogMatching",
                f"{node.broker_id} differs before its high watermark {offset}",
            )
        if not replica.is_leader:
            return
        demand(
            offset >= node.led.get(replica.leader_epoch, 0), "MonotonicWatermark", f"now {offset}"
        )
        node.led[replica.leader_epoch] = offset
        if offset:
            for member in replica.isr:
                if not self.nodes[member].has_lost:
                    self.demand_holds(member, offset, log.chain(offset), "WeakIsr")
        partition = self.controller.partition
        if (partition.leader, partition.leader_epoch) == (node.broker_id, replica.leader_epoch):
            covered = replica.maximal_isr.issuperset(partition.isr)
            demand(covered, "QuorumSuperset", f"{replica.maximal_isr} against {partition.isr}")

    # -- and what must become true --------------------------------------------------------

    def heal(self, rounds: int = 80) -> None:
        """All faults end: every replica arrives at the same log, in sync and committed."""
        for node in self.nodes.values():
            if not node.alive:
                self.restart(node)
        for node in self.nodes.values():
            if self.controller.brokers[node.broker_id].fenced:
                self.controller.unfence(node.broker_id)
        self.batch = 5
        while rounds and not self.is_quiet():
            self.heal_once()
            rounds -= 1
        demand(self.is_quiet(), "Liveness", f"{self.controller.partition}")
        for end, chain in self.acked:
            for each in self.nodes:
                self.demand_holds(each, end, chain, "AckedIsHeldByAll")

    def heal_once(self) -> None:
        self.tell_all()
        for node in self.nodes.values():
            self.fetch(node)
        while self.network:
            self.deliver(self.network.pop(0))
            self.check()
        self.now_ms += 1

    def is_quiet(self) -> bool:
        ends = {node.log.chain(node.log.end_offset) for node in self.nodes.values()}
        marks = {node.replica.high_watermark for node in self.nodes.values()}
        one = next(iter(self.nodes.values()))
        return (
            len(ends) == 1
            and marks == {one.log.end_offset}
            and len(self.controller.partition.isr) == len(self.nodes)
            and not any(node.waiting for node in self.nodes.values())
        )
