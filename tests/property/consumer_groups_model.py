"""A group of the new protocol, its clients, and a coordinator that may die: for the machine.

The model is the shell around a GroupShard: it fires timers by its own clock, commits what the group
stores or lets it fail, and answers. Beside it stand the clients with what they were told and what
they really read, from which alone the rules are judged. `Violation` says which one is broken.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups.config import GroupConfig
from kraftpy.broker.groups.consumer_group import REBALANCE, ConsumerGroup
from kraftpy.broker.groups.consumer_records import Partition, TopicSize
from kraftpy.broker.groups.consumer_requests import (
    JOIN,
    LEAVE,
    LEAVE_FOR_NOW,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from kraftpy.broker.groups.consumer_state import ConsumerState
from kraftpy.broker.groups.effects import Answer, StartTimer, StopTimer
from kraftpy.broker.groups.records import LogRecord
from kraftpy.broker.groups.shard import GroupShard
from kraftpy.broker.groups.topic_patterns import TopicPattern
from kraftpy.types import TopicId, Uuid

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 15_000
SIZE_MAX = 5
CONFIG = GroupConfig(consumer_session_timeout_ms=SESSION_MS, consumer_size_max=SIZE_MAX)
_START_AGAIN = (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch)


class Violation(AssertionError):
    """A rule is broken."""


@dataclass
class Cluster:
    """Topics that come, grow and go."""

    sizes: dict[str, TopicSize] = field(default_factory=dict)
    made: int = 0

    def size(self, name: str) -> TopicSize | None:
        return self.sizes.get(name)

    def matching(self, regex: str) -> frozenset[str]:
        return frozenset(filter(TopicPattern(regex).matches, self.sizes))

    def create(self, name: str, partitions: int) -> None:
        self.made += 1
        topic_id = TopicId(Uuid(self.made.to_bytes(16, "big")))
        self.sizes[name] = TopicSize(topic_id, partitions)


class Token:
    """One request that waits; answered once."""

    def __init__(self, client: "Client", request: HeartbeatRequest) -> None:
        self.client = client
        self.request = request
        self.answer: HeartbeatAnswer | None = None


@dataclass
class Client:
    """A consumer as it sees itself."""

    name: str
    instance_id: str | None = None
    topics: tuple[str, ...] = ("a",)
    regex: str | None = None
    assignor: str | None = None
    lives: int = 0
    epoch: int = JOIN
    epochs: list[int] = field(default_factory=list)  # All that it was told, in this life.
    owned: frozenset[Partition] = frozenset()  # What it reads.
    target: frozenset[Partition] = frozenset()  # What it was last told to read.
    said: frozenset[Partition] | None = None  # What it last said it reads, in an answered request.
    is_full: bool = True  # Its next heartbeat says everything.
    is_unsure: bool = False  # It does not know what became of its last heartbeat.
    is_stuck: bool = False  # It does not give up anything.
    is_away: bool = False
    waiting: Token | None = None
    heard_ms: int = 0

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.lives}"

    @property
    def is_in(self) -> bool:
        return self.epoch > 0 and not self.is_away

    def lets_go(self) -> None:
        self.owned = self.target = frozenset()
        self.epoch, self.is_full, self.is_stuck = JOIN, True, False
        self.is_unsure, self.said = False, None

    def reconcile(self) -> None:
        """Give up and take over, as it was told; nothing new while it may have been told more.

        A coordinator cannot know whether an answer was heard, so the protocol leaves this to
        clients.
        """
        if self.is_in:
            given = self.target & self.owned if self.is_unsure else self.target
            self.owned = given | (self.owned if self.is_stuck else frozenset())

    def is_lost(self) -> None:
        """It says everything again."""
        self.is_full, self.is_unsure, self.said = True, True, None


class Model:
    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.create("a", 4)
        self.cluster.create("b", 3)
        self.shard = GroupShard(CONFIG, self.cluster)
        self.log: list[LogRecord] = []
        self.now_ms = 1_000_000
        self.timers: dict[Any, int] = {}
        self.stores: list[tuple[tuple[LogRecord, ...], Any]] = []
        self.late: list[tuple[LogRecord, ...]] = []
        self.clients: dict[str, Client] = {}
        self.tokens: list[Token] = []
        self.expelled: set[str] = set()  # By their rebalance timer.
        self.rng = Random(1)
        self.epoch = 0
        self.hits: set[str] = set()

    # -- the shell ----------------------------------------------------------------------------

    @property
    def group(self) -> ConsumerGroup:
        return self.shard.consumers.find_or_make(GROUP)

    def carry_out(self, group: ConsumerGroup) -> None:
        while effects := group.drain():
            for effect in effects:
                match effect:
                    case Answer(token, answer):
                        assert isinstance(answer, HeartbeatAnswer)
                        self._answered(token, answer)
                    case StartTimer(key, delay_ms):
                        self.timers[key] = self.now_ms + delay_ms
                    case StopTimer(key):
                        self.timers.pop(key, None)
                    case store:
                        self.stores.append((tuple(store.records), store.reason))

    def advance(self, by_ms: int) -> None:
        end_ms = self.now_ms + by_ms
        while self.timers:
            key, at_ms = min(self.timers.items(), key=lambda each: (each[1], each[0]))
            if at_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, at_ms)
            del self.timers[key]
            if key[0] == REBALANCE:
                self.expelled.add(key[1])
            self.hits.add(key[0])
            self.group.timer_fired(key, self.now_ms)
            self.carry_out(self.group)
        self.now_ms = end_ms

    def settle(self, outcome: str = "commit") -> None:
        """The store is committed, refused, or takes too long and is committed or lost later."""
        if self.late:
            self._write(self.late.pop(0) if outcome != "refuse" else ())
            self.late.clear()
            self._end()
            return
        if not self.stores:
            return
        records, reason = self.stores.pop(0)
        error = ErrorCode.none if outcome == "commit" else ErrorCode.coordinator_not_available
        self.hits.add(outcome)
        if outcome == "late":
            self.late.append(records)
        else:
            self._write(records if outcome == "commit" else ())
            self._end()
        self.group.stored(reason, error, self.now_ms)
        self.carry_out(self.group)
        self.check()

    def _write(self, records: Iterable[LogRecord]) -> None:
        for record in records:
            self.log.append(record)
            self.shard.replay(*record)

    def _end(self) -> None:
        self.group.ended()
        self.carry_out(self.group)

    def crash(self, cut: int) -> None:
        """Another coordinator loads what was committed, and perhaps a part of what was not yet."""
        in_doubt = [*self.late, *(records for records, _ in self.stores)]
        tail = in_doubt[0] if in_doubt else ()
        self.log += tail[: cut % (len(tail) + 1)]
        for token in self.tokens:
            if token.answer is None:
                self._answered(token, HeartbeatAnswer(ErrorCode.not_coordinator))
        self.stores.clear()
        self.late.clear()
        self.timers.clear()
        self.shard = GroupShard(CONFIG, self.cluster)
        for record in self.log:
            self.shard.replay(*record)
        self.shard.loaded(self.now_ms)
        for client in self.clients.values():
            if client.member_id in self.group.state.profiles:  # Sessions begin anew.
                client.heard_ms = self.now_ms
        self.carry_out(self.group)
        self.check()

    def topics_changed(self) -> None:
        self.group.topics_changed()

    # -- clients ------------------------------------------------------------------------------

    def client(self, name: str, instance_id: str | None = None) -> Client:
        return self.clients.setdefault(name, Client(name, instance_id))

    def send(self, client: Client, epoch: int | None = None) -> Token:
        is_full = client.is_full or client.epoch == JOIN
        request = HeartbeatRequest(
            member_id=client.member_id,
            epoch=client.epoch if epoch is None else epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            topics=client.topics if is_full else None,
            regex=client.regex if is_full else None,
            assignor=client.assignor if is_full else None,
            owned=None if client.owned == client.said and not is_full else client.owned,
        )
        token = Token(client, request)
        self.tokens.append(token)
        if epoch is None or epoch < 0:
            client.waiting = token
        self.group.heartbeat(request, token)
        self.carry_out(self.group)
        self.check()
        return token

    def heartbeat(self, client: Client) -> None:
        if not client.is_away and (client.waiting is None or client.waiting.answer is not None):
            self.send(client)

    def gives_up_waiting(self, client: Client) -> None:
        client.waiting = None
        client.is_lost()

    def leave(self, client: Client, *, for_now: bool) -> None:
        """It closes what it reads before it says so."""
        if not client.is_in:
            return
        client.owned = client.target = frozenset()
        self.send(client, LEAVE_FOR_NOW if for_now and client.instance_id else LEAVE)
        client.is_away = True

    def restart(self, client: Client) -> None:
        """The process has died, and begins with another member id."""
        client.lets_go()
        client.lives += 1
        client.epochs.clear()
        client.waiting, client.is_away = None, False

    def wrong_epoch(self, client: Client, step: int) -> None:
        """With an epoch that it was told long ago, or never."""
        older = [each for each in client.epochs[:-1] if each < client.epoch - 1]
        previous = client.epochs[-2] if len(client.epochs) > 1 else 0
        older = [each for each in older if each != previous]
        epoch = older[-1] if older and step < 0 else client.epoch + 1000
        if not client.is_in or client.waiting is not None:
            return
        token = self.send(client, epoch)
        if token.answer is not None and token.answer.error is ErrorCode.none:
            raise Violation(f"epoch {epoch} of {client.member_id} was taken for {client.epoch}")
        token.client = Client("nobody")

    def commit(self, client: Client, back: int) -> None:
        if not client.is_in:
            return
        error = self.group.check_commit(client.member_id, client.epoch - back, 9)
        if error is None and back:
            raise Violation(f"offsets of epoch {client.epoch - back} taken in {client.epoch}")
        fetched = self.group.check_fetch(client.member_id, client.epoch - back)
        if fetched is None and back:
            raise Violation(f"offsets told to epoch {client.epoch - back} in {client.epoch}")

    # -- what clients are told ----------------------------------------------------------------

    def _answered(self, token: Token, answer: HeartbeatAnswer) -> None:
        if token.answer is not None:
            raise Violation("a request is answered twice")
        token.answer = answer
        client = token.client
        if client.waiting is not token:
            return  # It has given up on it, or died.
        client.waiting = None
        self.hits.add(answer.error.name)
        if token.request.epoch < 0:
            return
        if answer.error is ErrorCode.none:
            self._accepted(client, token.request, answer)
        elif answer.error in _START_AGAIN:
            client.lets_go()
            client.epochs.clear()
        elif answer.error is ErrorCode.fenced_instance_id:
            self.restart(client)
        else:
            client.is_lost()

    def _accepted(self, client: Client, request: HeartbeatRequest, answer: HeartbeatAnswer) -> None:
        if not client.is_in and client.instance_id is not None:
            self._takes_over(client)
        client.heard_ms = self.now_ms
        if answer.epoch <= 0:
            raise Violation(f"{client.member_id} has joined in epoch {answer.epoch}")
        if not client.epochs or client.epochs[-1] != answer.epoch:
            client.epochs.append(answer.epoch)
        if answer.epoch < client.epoch:
            raise Violation(f"{client.member_id} goes back to epoch {answer.epoch}")
        client.epoch, client.is_full, client.is_unsure = answer.epoch, False, False
        client.said = client.said if request.owned is None else request.owned
        if answer.assigned is not None:
            client.target = answer.assigned

    def _takes_over(self, client: Client) -> None:
        for other in self.clients.values():
            if (
                other is not client
                and other.instance_id == client.instance_id
                and other.is_in
                and self.now_ms - other.heard_ms < SESSION_MS
                and other.member_id not in self.expelled
            ):
                raise Violation(f"{client.name} takes over from {other.name}, which is there")

    # -- rules --------------------------------------------------------------------------------

    def check(self) -> None:
        state = self.group.state
        self._nobody_shares(state)
        self._nobody_is_forgotten(state)
        # An instance may be there twice, if a coordinator died while it was replaced.
        members = {each.instance_id or name for name, each in state.profiles.items()}
        if len(members) > SIZE_MAX:
            raise Violation(f"{len(members)} members")
        if state.epoch < self.epoch or state.target_epoch > state.epoch:
            raise Violation(f"the group goes from epoch {self.epoch} to {state.epoch}")
        self.epoch = state.epoch
        self.hits.add(state.state_name())

    def _nobody_shares(self, state: ConsumerState) -> None:
        owners: dict[Partition, str] = {}
        for client in self.clients.values():
            if client.is_in and self._has_a_say(client, state):
                for each in client.owned:
                    if owners.setdefault(each, client.name) != client.name:
                        raise Violation(f"{client.name} and {owners[each]} both read {each}")

    def _has_a_say(self, client: Client, state: ConsumerState) -> bool:
        """One that is half taken out, by a coordinator that died over it, is refused as others."""
        return client.member_id in state.profiles and client.member_id in state.currents

    def _nobody_is_forgotten(self, state: ConsumerState) -> None:
        for client in self.clients.values():
            if (
                client.is_in
                and client.member_id not in state.profiles
                and self.now_ms - client.heard_ms < SESSION_MS
                and client.member_id not in self.expelled
            ):
                raise Violation(f"{client.member_id} was taken out, and is there")

    def replayed(self) -> ConsumerState:
        shard = GroupShard(CONFIG, self.cluster)
        for record in self.log:
            shard.replay(*record)
        return shard.consumers.find_or_make(GROUP).state

    def converge(self) -> None:
        """All goes well from now on: then everybody has its share, and nobody else is there."""
        self._all_goes_well(2)
        self._all_is_settled()
        for name, size in self.cluster.sizes.items():
            self.cluster.sizes[name] = size._replace(partitions=size.partitions + 1)
        self.topics_changed()
        self._all_goes_well(1)
        self._all_is_settled()
        # By themselves: among other changes, one that has no effect is not seen.
        members = [client for client in self.clients.values() if client.is_in]
        for client in members[:1]:
            client.topics, client.regex = ("a",) if client.topics == ("b",) else ("b",), ""
            client.is_full = True
            self._all_goes_well(1)
            self._all_is_settled()
            self.leave(client, for_now=False)
            self._all_goes_well(1)
            self._all_is_settled()

    def _all_goes_well(self, timeouts: int) -> None:
        # Those that do not let go may be found out one after the other.
        timeouts += sum(client.is_stuck for client in self.clients.values())
        for _ in range(timeouts * (SESSION_MS + REBALANCE_MS) // 1000):
            for client in self.clients.values():
                client.reconcile()
                self.heartbeat(client)
            for _ in range(3):
                self.settle()
            self.advance(1000)

    def _all_is_settled(self) -> None:
        self.check()
        state = self.group.state
        if self.replayed() != state:
            raise Violation("what the log gives is not what is there")
        if any(token.answer is None for token in self.tokens):
            raise Violation("a request was never answered")
        members = {each.member_id: each for each in self.clients.values() if each.is_in}
        if set(members) != set(state.profiles):
            raise Violation(f"members {sorted(state.profiles)}, clients {sorted(members)}")
        self._all_is_read(state, members)

    def _all_is_read(self, state: ConsumerState, members: dict[str, Client]) -> None:
        read = [each for client in members.values() for each in client.owned]
        wanted = set()
        for client in members.values():
            names = set(client.topics)
            names |= self.cluster.matching(client.regex) if client.regex else set()
            for name in names & self.cluster.sizes.keys():
                topic_id, count = self.cluster.sizes[name]
                wanted |= {(topic_id, index) for index in range(count)}
        if sorted(read) != sorted(wanted):
            raise Violation(f"{sorted(read)} are read, not {sorted(wanted)}")
        for member_id, client in members.items():
            if client.owned != state.target(member_id) or client.epoch != state.target_epoch:
                raise Violation(f"{member_id} is not at its target")
        if members and state.state_name() != "Stable":
            raise Violation(state.state_name())
