"""Planted bugs: each takes one protection of a node away, so that a harness can be seen to notice.

Only `python -m kraftpy.testing.node --mutant NAME` plants one, and only into its own process. A
mutant is a line that says what is missing and a function that takes it away for good. Nothing here
is reached by the command `kraftpy`.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker import isr as broker_isr
from kraftpy.broker import log_manager
from kraftpy.broker import partition as partition_module
from kraftpy.broker.effects import TruncateTo
from kraftpy.broker.groups import offset_apis
from kraftpy.broker.partition import Replica
from kraftpy.broker.producer_state import ProducerStates
from kraftpy.metadata_log import snapshot_file
from kraftpy.metadata_log.records import ConfigRecord, ProducerIdsRecord
from kraftpy.metadata_log.snapshot_records import snapshot_records
from kraftpy.quorum.control import brokers, elections, isr, producer_ids
from kraftpy.quorum.control.decision import Decision
from kraftpy.quorum.controller import Controller
from kraftpy.quorum.raft.guard import GuardTransport
from kraftpy.quorum.raft.quorum_state import QuorumStateFile
from kraftpy.types import NO_EPOCH, NO_LEADER
from kraftpy.wire.apis import ALLOCATE_PRODUCER_IDS

_ROUNDS_WITHOUT_SYNC: Final = 1000
_COMMIT_DELAY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Mutant:
    """One protection less."""

    missing: str
    plant: Callable[[], None]


def plant(name: str) -> None:
    """Take the protection away from this process."""
    MUTANTS[name].plant()


# -- the quorum --------------------------------------------------------------------------------


def _ack_before_fsync() -> None:
    """A disk is synced now and then, as one does who trusts in never losing power."""

    def flush(self: Any) -> None:
        out, self._out = self._out, []
        self.round += 1
        for node_id, message in out:
            self._wire.put(node_id, message)
        self._wire.push()
        if self.round % _ROUNDS_WITHOUT_SYNC == 0:
            self._journal.sync()

    _set(GuardTransport, "flush", flush)


def _vote_not_persisted() -> None:
    _set(QuorumStateFile, "store", lambda _self, _vote: None)


def _answer_before_commit() -> None:
    original = Controller._carry_out

    def carry_out(self: Any, tenure: Any, decision: Any, asked: Any) -> None:
        original(self, tenure, decision, None)
        if asked is not None:
            asked.answer(decision.response)

    _set(Controller, "_carry_out", carry_out)


def _read_without_barrier() -> None:
    def read(_self: Any, tenure: Any, found: Any) -> None:
        found.is_proven = True
        tenure.add_read(found)

    _set(Controller, "_read", read)


def _lost_leadership_is_refused() -> None:
    def refuse_lost(self: Any, asked: Any, _error: Any) -> None:
        asked.refuse(ErrorCode.not_controller, self._hint())

    _set(Controller, "_refuse_lost", refuse_lost)


def _snapshot_off_by_one() -> None:
    original = snapshot_records

    def all_but_the_last_config(image: Any) -> Iterator[Any]:
        records = list(original(image))
        last = max((i for i, r in enumerate(records) if isinstance(r, ConfigRecord)), default=None)
        return iter(each for i, each in enumerate(records) if i != last)

    _set(snapshot_file, "snapshot_records", all_but_the_last_config)


# -- decisions ---------------------------------------------------------------------------------


def _fenced_broker_elected() -> None:
    """Whoever is registered may lead what it is a replica of, alive and in sync or not."""
    _set(elections, "is_active", lambda image, broker_id: broker_id in image.brokers)
    _set(elections, "unclean_election_enabled", lambda *_: True)


def _unclean_elections() -> None:
    _set(elections, "unclean_election_enabled", lambda *_: True)


def _no_broker_epoch_check() -> None:
    def is_eligible(broker_id: Any, _follower: Any, moment: Any) -> bool:
        return not moment.brokers[broker_id].fenced

    right = broker_isr.members

    def members(*arguments: Any) -> Any:
        return tuple(each._replace(broker_epoch=-1) for each in right(*arguments))

    _set(partition_module, "is_eligible", is_eligible)
    _set(partition_module, "is_stale", lambda *_: False)
    _set(partition_module, "members", members)
    _set(isr, "_check_broker", lambda *_: None)
    # A life that ended without a word leaves its ISRs only because its epoch is another one.
    _set(brokers, "_end_previous_life", lambda *_: ())


def _duplicate_producer_id_block() -> None:
    """Two blocks of which the second repeats the first, as after a lost update."""

    def decide(situation: Any, message: Any) -> Any:
        first = situation.image.next_producer_id
        size = producer_ids.BLOCK_SIZE
        record = ProducerIdsRecord(
            broker_id=message.broker_id,
            broker_epoch=message.broker_epoch,
            next_producer_id=first + size,
        )
        start = first - first % (2 * size)
        answer = producer_ids._answer(ErrorCode.none, start, size)
        return Decision(records=(record,), response=answer)

    known = producer_ids.APIS[ALLOCATE_PRODUCER_IDS]
    _set_api(ALLOCATE_PRODUCER_IDS, known._replace(decide=decide))


def _set_api(api_key: int, api: Any) -> None:
    from kraftpy.quorum import node
    from kraftpy.quorum.control import api_table

    for module in (api_table, node):
        _set(module, "CONTROL_APIS", {**module.CONTROL_APIS, api_key: api})


# -- replicas ----------------------------------------------------------------------------------


def _high_watermark_without_epoch_check() -> None:
    """Fetches of an older leader epoch count, and so does what was said before."""
    original_fetch, original_lead = Replica.follower_fetch, Replica._lead

    def follower_fetch(self: Any, fetch: Any, moment: Any) -> Any:
        if NO_EPOCH < fetch.leader_epoch < self.leader_epoch:
            fetch = fetch._replace(leader_epoch=self.leader_epoch)
        return original_fetch(self, fetch._replace(last_fetched_epoch=NO_EPOCH), moment)

    def lead(self: Any, partition: Any, moment: Any) -> Any:
        known = self.followers
        effects = original_lead(self, partition, moment)
        for broker_id, follower in known.items():
            if broker_id in self.followers:
                self.followers[broker_id].log_end = follower.log_end
        return (*effects, *self._advance(moment))

    _set(Replica, "follower_fetch", follower_fetch)
    _set(Replica, "_lead", lead)


def _isr_expansion_before_epoch_start() -> None:
    """A follower joins wherever it is: far before the leader's epoch begins."""
    _set(Replica, "_is_in_sync", lambda _self, follower: follower.log_end >= 0)


def _truncate_to_high_watermark() -> None:
    original = Replica._follow

    def follow(self: Any, partition: Any) -> Any:
        is_new = partition.leader_epoch > self.leader_epoch
        effects = original(self, partition)
        if not is_new or partition.leader == NO_LEADER:
            return effects
        return (TruncateTo(self.high_watermark, False), *effects)

    _set(Replica, "_follow", follow)


def _high_watermark_on_current_isr() -> None:
    """Only the committed ISR counts, and a shrink counts as soon as it is proposed."""

    def maximal(self: Any) -> Any:
        if self.pending is None:
            return frozenset(self.isr)
        return frozenset(self.isr) & self.pending.ids

    _set(Replica, "_maximal", maximal)


def _acks_all_is_one() -> None:
    original = Replica.produce_outcome

    def outcome(self: Any, end_offset: int, leader_epoch: int) -> Any:
        found = original(self, end_offset, leader_epoch)
        return ErrorCode.none if found is None else found

    _set(Replica, "produce_outcome", outcome)


def _reads_past_the_high_watermark() -> None:
    original = Replica.consumer_fetch

    def fetch(self: Any, *arguments: Any, **named: Any) -> Any:
        plan = original(self, *arguments, **named)
        if hasattr(plan, "high_watermark"):
            end_offset = self._log.end_offset
            return replace(plan, end_offset=end_offset, high_watermark=end_offset)
        return plan

    _set(Replica, "consumer_fetch", fetch)


def _idempotence_state_lost() -> None:
    def load(_files: Any, partition_log: Any) -> ProducerStates:
        return ProducerStates(partition_log.end_offset)

    _set(log_manager, "load_producers", load)


def _commit_before_written() -> None:
    """An offset is acknowledged at once, and written when there is time."""
    original = offset_apis._append
    tasks: set[asyncio.Task[Any]] = set()

    async def append(coordinator: Any, led: Any, kept: Any) -> ErrorCode:
        async def later() -> None:
            await asyncio.sleep(_COMMIT_DELAY_S)
            await original(coordinator, led, kept)

        task = asyncio.get_running_loop().create_task(later())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return ErrorCode.none

    _set(offset_apis, "_append", append)


def _set(target: Any, name: str, replacement: Any) -> None:
    assert hasattr(target, name), f"{target} has no {name} to take away"
    setattr(target, name, replacement)


MUTANTS: Final[dict[str, Mutant]] = {
    "ack_before_fsync": Mutant("acks and votes wait for the sync", _ack_before_fsync),
    "vote_not_persisted": Mutant("epoch and vote are stored", _vote_not_persisted),
    "answer_before_commit": Mutant("a write is answered when committed", _answer_before_commit),
    "read_without_barrier": Mutant(
        "a read waits for the proof of leadership", _read_without_barrier
    ),
    "lost_leadership_is_refused": Mutant(
        "what may yet commit is not called refused", _lost_leadership_is_refused
    ),
    "snapshot_off_by_one": Mutant("a snapshot has every record", _snapshot_off_by_one),
    "fenced_broker_elected": Mutant("only live brokers are elected", _fenced_broker_elected),
    "unclean_elections": Mutant("only members of the ISR are elected", _unclean_elections),
    "no_broker_epoch_check": Mutant(
        "a broker's earlier life does not count", _no_broker_epoch_check
    ),
    "duplicate_producer_id_block": Mutant(
        "no producer id is given twice", _duplicate_producer_id_block
    ),
    "high_watermark_without_epoch_check": Mutant(
        "only fetches of the current leader epoch count", _high_watermark_without_epoch_check
    ),
    "isr_expansion_before_epoch_start": Mutant(
        "who joins the ISR has all that may be committed", _isr_expansion_before_epoch_start
    ),
    "truncate_to_high_watermark": Mutant(
        "a follower cuts only where the leader's log differs", _truncate_to_high_watermark
    ),
    "high_watermark_on_current_isr": Mutant(
        "the high watermark waits for pending members", _high_watermark_on_current_isr
    ),
    "acks_all_is_one": Mutant("acks=all waits for the ISR", _acks_all_is_one),
    "reads_past_the_high_watermark": Mutant(
        "consumers see what is committed", _reads_past_the_high_watermark
    ),
    "commit_before_written": Mutant(
        "an offset commit is answered when it is written", _commit_before_written
    ),
    "idempotence_state_lost": Mutant(
        "what producers sent is known after a restart", _idempotence_state_lost
    ),
}
