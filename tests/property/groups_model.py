"""A group, the clients that are in it, and a coordinator that may die at any time: for the machine.

The model is the shell around a GroupShard: it fires timers by its own clock, commits what the group
stores, in order, or lets it fail, and answers requests. Beside it stands what clients were told,
from which alone the rules below are judged. `Violation` says which one is broken.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import classic_requests as ask
from kraftpy.broker.groups.classic_group import ClassicGroup, Emptied
from kraftpy.broker.groups.classic_states import State
from kraftpy.broker.groups.config import GroupConfig
from kraftpy.broker.groups.effects import (
    Answer,
    JoinAnswer,
    StartTimer,
    StopTimer,
    Store,
    SyncAnswer,
)
from kraftpy.broker.groups.records import (
    GroupRecord,
    LogRecord,
    OffsetRecord,
    offset_key,
    offset_value,
)
from kraftpy.broker.groups.shard import GroupShard
from tests.property.groups_clients import Client, Token, Violation

GROUP = "g"
PARTITIONS = 6
SESSION_MS = 10_000
REBALANCE_MS = 30_000
CONFIG = GroupConfig(initial_rebalance_delay_ms=3000, size_max=6, offsets_retention_ms=10**9)

# As Kafka has it: who may come before whom.
BEFORE = {
    State.EMPTY: {State.PREPARING_REBALANCE},
    State.PREPARING_REBALANCE: {State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY},
    State.COMPLETING_REBALANCE: {State.PREPARING_REBALANCE},
    State.STABLE: {State.COMPLETING_REBALANCE},
    State.DEAD: set(State),
}


@dataclass
class Model:
    shard: GroupShard = field(default_factory=lambda: GroupShard(CONFIG))
    now_ms: int = 1_000_000
    rng: Random = field(default_factory=lambda: Random(1))
    timers: dict[Any, int] = field(default_factory=dict)
    stores: deque[tuple[tuple[LogRecord, ...], Any]] = field(default_factory=deque)
    log: list[LogRecord] = field(default_factory=list)
    clients: dict[str, Client] = field(default_factory=dict)
    # What clients were told: by generation, who owns a partition.
    owners: dict[int, dict[int, str]] = field(default_factory=dict)
    newest: int = -1  # The newest generation that anybody was told.
    left: set[str] = field(default_factory=set)  # Member ids that said goodbye or were replaced.
    acked: dict[int, int] = field(default_factory=dict)
    attempted: dict[int, set[int]] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)
    crashed_ms: int = 0
    hits: set[str] = field(default_factory=set)
    told: dict[int, set[str]] = field(default_factory=dict)  # Who was told of a generation.
    lags: bool = False  # The log refused what nobody waited for, and stands behind the machine.

    # -- the shell ----------------------------------------------------------------------------

    @property
    def group(self) -> ClassicGroup | None:
        return self.shard.find(GROUP)

    def _made(self) -> ClassicGroup:
        group = self.shard.find_or_make(GROUP, self.now_ms)
        self._spy(group)
        return group

    def _spy(self, group: ClassicGroup) -> None:
        if "transition_to" in vars(group):
            return
        original = group.transition_to

        def spied(state: State, now_ms: int) -> None:
            if group.state not in BEFORE[state]:
                raise Violation(f"transition: {group.state} to {state}")
            self.hits.add(f"{group.state.value}-{state.value}")
            original(state, now_ms)

        group.transition_to = spied  # type: ignore[method-assign]

    def carry_out(self, group: ClassicGroup) -> None:
        while effects := group.drain():
            for effect in effects:
                match effect:
                    case Answer(token, JoinAnswer() | SyncAnswer() as answer):
                        self._answered(token, answer)
                    case StartTimer(key, delay_ms):
                        self.timers[key] = self.now_ms + delay_ms
                    case StopTimer(key):
                        self.timers.pop(key, None)
                    case Store(records, reason):
                        self.stores.append((tuple(records), reason))

    def advance(self, by_ms: int) -> None:
        end_ms = self.now_ms + by_ms
        while self.timers:
            key, at_ms = min(self.timers.items(), key=lambda each: (each[1], each[0]))
            if at_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, at_ms)
            del self.timers[key]
            group = self.group
            assert group is not None
            group.timer_fired(key, self.now_ms)
            self.carry_out(group)
        self.now_ms = end_ms

    def settle(self, outcome: str = "commit") -> None:
        """The oldest store is committed, refused, or takes too long and is committed later."""
        if not self.stores:
            return
        records, reason = self.stores.popleft()
        if outcome == "late":
            self._told(reason, ErrorCode.coordinator_not_available)
        if isinstance(reason, Emptied):
            self.lags = outcome == "refuse"
        elif not _offsets([(records, reason)]) and outcome != "refuse":
            self.lags = False
        if outcome != "refuse":
            for record in records:
                self.log.append(record)
                self.shard.replay(*record)
        if outcome != "late":
            error = ErrorCode.none if outcome == "commit" else ErrorCode.not_coordinator
            self._told(reason, error)

    def _told(self, reason: Any, error: ErrorCode) -> None:
        if isinstance(reason, tuple) and reason and reason[0] == "offset":
            self._offset_told(reason, error)
            return
        group = self.group
        if group is not None:
            group.stored(reason, error, self.now_ms)
            self.carry_out(group)

    def crash(self) -> None:
        """Another coordinator loads what was committed; of the rest nobody knows."""
        for token in self.tokens:
            if token.answer is None:
                error = ErrorCode.not_coordinator
                self._answered(
                    token, JoinAnswer(error) if token.kind == "join" else SyncAnswer(error)
                )
        in_doubt = self.rng.randrange(len(self.stores) + 1)
        for records, _ in list(self.stores)[:in_doubt]:
            self.log += records
        self.stores.clear()
        self.timers.clear()
        self.lags = False
        self.crashed_ms = self.now_ms
        self.shard = GroupShard(CONFIG)
        for record in self.log:
            self.shard.replay(*record)
        self.shard.loaded(self.now_ms)
        group = self.group
        # A generation of which no assignment was given out may be forgotten, and given out again.
        self.newest = -1 if group is None else group.generation
        if max(self.owners, default=-1) > self.newest:
            raise Violation(f"assignments of {max(self.owners)} are lost, {self.newest} is left")
        if group is not None:
            self._spy(group)
            self.carry_out(group)
            for client in self.clients.values():
                client.heard_ms = self.now_ms

    # -- clients ------------------------------------------------------------------------------

    def client(self, name: str, *, static: bool) -> Client:
        return self.clients.setdefault(
            name, Client(name, instance_id=f"i-{name}" if static else None)
        )

    def join(self, client: Client, *, needs_id: bool = True, skip: bool = True) -> None:
        token = client.waiting = Token(client, "join")
        self.tokens.append(token)
        group = self._made()
        asked = ask.JoinRequest(
            member_id=client.member_id,
            instance_id=client.instance_id,
            client_id=client.name,
            client_host="/h",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=client.protocols,
            needs_member_id=needs_id,
            can_skip_assignment=skip,
        )
        ask.join(group, asked, token, self.rng, self.now_ms)
        self.carry_out(group)
        token.has_waited = True
        self.shard.forget_if_unused(group)

    def sync(self, client: Client, generation: int | None = None) -> None:
        generation = client.generation if generation is None else generation
        token = client.waiting = Token(client, "sync", generation)
        self.tokens.append(token)
        group = self.group
        if group is None:
            self._answered(token, SyncAnswer(ErrorCode.unknown_member_id))
            return
        ids = sorted(each.member_id for each in client.members)
        shares: dict[str, list[int]] = {each: [] for each in ids}
        for partition in range(PARTITIONS if ids else 0):
            shares[ids[partition % len(ids)]].append(partition)
        assignments = {member_id: bytes(share) for member_id, share in shares.items()}
        asked = ask.SyncRequest(
            client.member_id, client.instance_id, generation, None, None, assignments
        )
        ask.sync(group, asked, token)
        self.carry_out(group)
        token.has_waited = True

    def heartbeat(self, client: Client, generation: int | None = None) -> ErrorCode:
        generation = client.generation if generation is None else generation
        group = self.group
        if group is None:
            return ErrorCode.unknown_member_id
        error = ask.heartbeat(group, client.member_id, client.instance_id, generation)
        self.carry_out(group)
        self._accepted(client, generation, error, "heartbeat")
        if error is ErrorCode.unknown_member_id:
            self._forgotten(client)
        elif error in (ErrorCode.none, ErrorCode.rebalance_in_progress):
            client.heard_ms = self.now_ms
        return error

    def leave(self, client: Client) -> None:
        group = self.group
        if group is None:
            return
        (error,) = ask.leave(
            group, [ask.LeavingMember(client.member_id, client.instance_id)], self.now_ms
        )
        self.carry_out(group)
        if error is ErrorCode.none:
            self.left.add(client.member_id)
        self.restart(client)

    def restart(self, client: Client) -> None:
        """The process dies and comes back with nothing but its instance id."""
        client.waiting = None
        if client.instance_id is None:
            client.name += "'"
        client.member_id, client.generation, client.members = "", -1, ()
        client.is_synced = False

    def commit(self, client: Client, partition: int, offset: int, generation: int) -> None:
        group = self._made()
        error = ask.check_commit(group, client.member_id, client.instance_id, generation)
        self.carry_out(group)
        if error is None:
            if generation >= 0:
                self._accepted(client, generation, ErrorCode.none, "commit")
                client.heard_ms = self.now_ms
            record = OffsetRecord(offset, -1, "", self.now_ms)
            stored = LogRecord(offset_key(GROUP, "t", partition), offset_value(record))
            self.attempted.setdefault(partition, set()).add(offset)
            self.stores.append(((stored,), ("offset", partition, offset)))
        self.shard.forget_if_unused(group)

    def _offset_told(self, reason: Any, error: ErrorCode) -> None:
        _, partition, offset = reason
        if error is ErrorCode.none:
            self.acked[partition] = offset
            self.attempted[partition] = {
                each for _, (kind, *rest) in _offsets(self.stores) for each in rest[1:] if kind
            } & self.attempted[partition] | {offset}

    # -- what clients are told ----------------------------------------------------------------

    def _answered(self, token: Token, answer: JoinAnswer | SyncAnswer) -> None:
        if token.answer is not None:
            raise Violation("a request is answered twice")
        token.answer = answer
        client = token.client
        if isinstance(answer, JoinAnswer) and answer.error is ErrorCode.none:
            self.told.setdefault(answer.generation, set()).add(answer.member_id)
        if client.waiting is not token:
            return  # It has given up on it.
        client.waiting = None
        if token.has_waited or answer.error is ErrorCode.none:
            client.heard_ms = self.now_ms
        if isinstance(answer, JoinAnswer):
            self._joined(client, answer)
        else:
            self._synced(client, token.generation, answer)

    def _joined(self, client: Client, answer: JoinAnswer) -> None:
        match answer.error:
            case ErrorCode.none:
                client.member_id, client.generation = answer.member_id, answer.generation
                client.members, client.is_synced = answer.members, False
                client.rejoined_ms = self.now_ms
                self.newest = max(self.newest, answer.generation)
                if answer.generation < self.newest and not answer.skip_assignment:
                    raise Violation(f"joined generation {answer.generation} after {self.newest}")
            case ErrorCode.member_id_required:
                client.member_id = answer.member_id
            case ErrorCode.unknown_member_id | ErrorCode.fenced_instance_id:
                self.restart(client)

    def _synced(self, client: Client, generation: int, answer: SyncAnswer) -> None:
        if answer.error is ErrorCode.unknown_member_id:
            self.restart(client)
        if answer.error is not ErrorCode.none:
            return
        self._accepted(client, generation, ErrorCode.none, "sync")
        client.is_synced = True
        owners = self.owners.setdefault(generation, {})
        owner = client.instance_id or client.member_id
        for partition in answer.assignment:
            if owners.setdefault(partition, owner) != owner:
                raise Violation(
                    f"partition {partition} belongs to {owners[partition]} and {owner} in "
                    f"generation {generation}"
                )

    def _accepted(self, client: Client, generation: int, error: ErrorCode, what: str) -> None:
        if error not in (ErrorCode.none, ErrorCode.rebalance_in_progress):
            return
        if generation < self.newest:
            raise Violation(f"{what} of generation {generation} accepted after {self.newest}")
        if client.member_id in self.left:
            raise Violation(f"{what} accepted from one that has left")

    def _forgotten(self, client: Client) -> None:
        """A member that did all it should is told that it is none."""
        silent_ms = self.now_ms - client.heard_ms
        rejoining_ms = self.now_ms - max(client.rejoined_ms, 0)
        is_excused = (
            not client.member_id
            or client.generation < 0
            or client.member_id in self.left
            or silent_ms >= SESSION_MS
            or rejoining_ms >= REBALANCE_MS
            or self.crashed_ms >= client.rejoined_ms
        )
        if not is_excused:
            raise Violation(f"{client.member_id} is forgotten after {silent_ms} ms")

    # -- rules that hold after every step -----------------------------------------------------

    def check(self) -> None:
        self._check_replay()
        group = self.group
        if group is None:
            return
        for member in group.members.values():
            if ("session", member.member_id) not in self.timers:
                raise Violation(f"nobody watches the session of {member.member_id}")
        for member_id in group.pending:
            if ("session", member_id) not in self.timers:
                raise Violation(f"nobody waits for {member_id} to come back")
        if group.state is State.PREPARING_REBALANCE and ("join", "") not in self.timers:
            raise Violation("a rebalance that need not end")
        self._check_waiting(group)
        if (
            group.state is State.COMPLETING_REBALANCE
            and group.leader not in self.told[group.generation]
        ):
            raise Violation(f"{group.leader} is to assign, and does not know of it")
        if len(group.members) > CONFIG.size_max and group.state is not State.PREPARING_REBALANCE:
            raise Violation(f"{len(group.members)} members")

    def _check_waiting(self, group: ClassicGroup) -> None:
        held = {
            id(token)
            for each in group.members.values()
            for token in (each.join_token, each.sync_token)
            if token is not None
        }
        for token in self.tokens:
            if token.answer is None and id(token) not in held:
                raise Violation(f"a {token.kind} of {token.client.name} is never answered")
        self.tokens = [token for token in self.tokens if token.answer is None]

    def _check_replay(self) -> None:
        again = GroupShard(CONFIG)
        for record in self.log:
            again.replay(*record)
        if again.stored != self.shard.stored:
            raise Violation("replayed groups differ from the live ones")
        if again.offsets.of(GROUP) != self.shard.offsets.of(GROUP):
            raise Violation("replayed offsets differ from the live ones")
        for partition, offset in self.acked.items():
            found = again.offsets.of(GROUP).get(("t", partition))
            later = self.attempted.get(partition, set())
            if found is None or (found.offset != offset and found.offset not in later):
                raise Violation(f"offset {offset} of partition {partition} is lost: {found}")
        group = self.group
        stored = self.shard.stored.get(GROUP)
        if group is None or self.stores or group.state not in (State.STABLE, State.EMPTY):
            return
        if stored is None:
            if group.generation and not self.lags:
                raise Violation("a group that no log knows")
            return
        if _normal(stored) != _normal(group.record()) and not self.lags:
            raise Violation(f"the log has {_normal(stored)}, the machine {_normal(group.record())}")

    # -- and in the end -----------------------------------------------------------------------

    def heal(self) -> None:
        """All faults are over: whoever is there arrives at one generation, with all partitions."""
        alive = sorted(self.clients)[: CONFIG.size_max]
        for name in list(self.clients):
            if name not in alive:
                del self.clients[name]
        for _ in range(400):
            while self.stores:
                self.settle()
            for client in self.clients.values():
                self._do_next(client)
                self.check()
            if self._is_settled():
                return
            self.advance(500)
        raise Violation(f"no end: {self.group and self.group.state}, {self.clients}")

    def _do_next(self, client: Client) -> None:
        if client.waiting is not None:
            return
        if not client.member_id or client.generation < 0:
            self.join(client)
        elif not client.is_synced:
            self.sync(client)
            if client.waiting is None and not client.is_synced and client.member_id:
                self.join(client)
        else:
            error = self.heartbeat(client)
            if error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
                self.restart(client)
            elif error is not ErrorCode.none:
                self.join(client)

    def _is_settled(self) -> bool:
        group = self.group
        if group is None or group.state is not State.STABLE or group.pending:
            return not self.clients
        ids = {client.member_id for client in self.clients.values()}
        is_whole = set(self.owners.get(group.generation, {})) == set(range(PARTITIONS))
        return ids == set(group.members) and is_whole and not self.stores


def _offsets(stores: Any) -> list[tuple[Any, Any]]:
    return [
        (records, reason)
        for records, reason in stores
        if isinstance(reason, tuple) and reason and reason[0] == "offset"
    ]


def _normal(record: GroupRecord) -> GroupRecord:
    """Whenever it became so, and in whichever order."""
    members = tuple(sorted(record.members, key=lambda each: each.member_id))
    return replace(record, state_ms=0, members=members)
