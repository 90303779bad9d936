"""The active controller: decides, replays, writes, and answers once what it decided is committed.

One thread owns a Controller and nothing here waits: every event is one call that does all it has to
do and returns. So no decision sees the image change under it, and a test or a simulation drives it
without an event loop. `watch` brings outcomes of the engine's thread into this one.

The order for each request: decide on the speculative image; replay, so that a record which cannot
be replayed never reaches the log; propose; answer when it is committed. Nothing waits for an
earlier commit to be decided: all that comes in while one flush is under way shares the next.

States: standby -> active (`lead`: its epoch's first batch is committed and replayed) -> standby
(`resign`, or a proposal is refused or its outcome unknown, whichever is noticed first). Without
leadership every request is refused with a hint of who leads. A failed replay ends the node.

The garbage collector is paused while a decision is made: one that moves 100,000 partitions takes
half the time then, as all that it makes is kept.
"""

import random
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeAlias

from kio.schema.errors import ErrorCode

from kraftpy.clock import Clock
from kraftpy.errors import (
    FatalFault,
    IllegalDecision,
    InvalidBatch,
    NotController,
    ReplayError,
)
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.loading import collector_paused
from kraftpy.metadata_log.records import AbortTransactionRecord
from kraftpy.quorum.consensus import Consensus
from kraftpy.quorum.control.broker_heartbeat import decide_heartbeat
from kraftpy.quorum.control.configs import enables_unclean_election
from kraftpy.quorum.control.controllers import decide_controller_registration
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation
from kraftpy.quorum.control.features import bootstrap_records
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.quorum.controller_events import events_of
from kraftpy.quorum.duties import Duties
from kraftpy.quorum.proposal import make_proposal
from kraftpy.quorum.tenure import Answer, Asked, Read, Tenure, Write
from kraftpy.types import NO_EPOCH, BrokerId

log = get_logger(__name__)

Settled: TypeAlias = Callable[[Future[int]], None]
# Calls the second argument with the first once that is settled, in the controller's thread.
Watch: TypeAlias = Callable[[Future[int], Settled], None]

_NOTHING: Final = Decision(records=(), response={}, own=True)


def watch_at_once(future: Future[int], settled: Settled) -> None:
    """For an engine that is ticked by the controller's own thread."""
    future.add_done_callback(settled)


class Controller:
    """One node's controller through all its epochs, active or not."""

    def __init__(
        self,
        *,
        node_id: int,
        consensus: Consensus,
        settings: ControllerSettings,
        clock: Clock,
        rng: random.Random,
        on_fault: Callable[[FatalFault], None],
        watch: Watch = watch_at_once,
        registration: Any = None,
    ) -> None:
        """`registration` is this node's own ControllerRegistration, written when it leads."""
        self._node_id = node_id
        self._consensus = consensus
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._on_fault = on_fault
        self._watch = watch
        self._registration = registration
        self._leader_id: int | None = None
        self._tenure: Tenure | None = None
        self._duties = Duties(settings)
        self._has_failed = False

    @property
    def is_active(self) -> bool:
        return self._tenure is not None

    @property
    def image(self) -> ClusterImage | None:
        """All that was decided, committed or not; None on a standby."""
        return None if self._tenure is None else self._tenure.image

    # -- leadership ---------------------------------------------------------------------------

    def lead(self, epoch: int, image: ClusterImage, index: PartitionIndex | None = None) -> None:
        """This node is the active controller; the image is all that is committed, up to and with
        the batch that began the epoch. Its index, if there is one, is the controller's from now on.
        """
        if self._has_failed:
            return
        self._end(epoch)
        now_ms = self._clock.monotonic_ms()
        self._leader_id = self._node_id
        self._tenure = tenure = Tenure.of(epoch, image, index or PartitionIndex(image), now_ms)
        self._duties.begin(now_ms)
        log.info(
            "controller_active",
            node=self._node_id,
            epoch=epoch,
            end_offset=image.end_offset,
            brokers=len(image.brokers),
            topics=len(image.topics),
        )
        if image.transaction is not None:
            self._abort_transaction(image.transaction.begin_offset)
        self._act(tenure, self._bootstrap)
        self._act(tenure, self._register)

    def resign(self, leader_id: int | None, epoch: int) -> None:
        """Another node, or none, leads in this epoch; NO_EPOCH: this one stops by itself."""
        self._leader_id = leader_id
        self._end(epoch)

    def _end(self, new_epoch: int) -> None:
        tenure, self._tenure = self._tenure, None
        if tenure is None:
            return
        log.info(
            "controller_resigned",
            node=self._node_id,
            epoch=tenure.epoch,
            new_epoch=None if new_epoch == NO_EPOCH else new_epoch,
            committed=tenure.committed_end_offset,
            in_flight=len(tenure.writes),
        )
        tenure.refuse_reads(self._hint())

    def _abort_transaction(self, begin_offset: int) -> None:
        """What a controller that is gone left half written must not wait for its end."""
        assert self._tenure is not None
        log.info("transaction_aborted", node=self._node_id, begin_offset=begin_offset)
        record = AbortTransactionRecord(reason="the controller that began it is not active")
        self._carry_out(self._tenure, Decision(records=(record,), response={}, own=True), None)

    def _bootstrap(self, situation: Situation) -> Decision:
        records = bootstrap_records(situation.image, situation.settings)
        return Decision(records=records, response={}, own=True)

    def _register(self, situation: Situation) -> Decision:
        if self._registration is None:
            return _NOTHING
        try:
            return decide_controller_registration(situation, self._registration)
        except Refused as refused:
            log.warning("registration_refused", node=self._node_id, why=str(refused))
            return _NOTHING

    # -- requests -----------------------------------------------------------------------------

    def submit(self, api: ControlApi, message: Any, answer: Answer) -> None:
        """Decide a request. It is answered exactly once, now or later."""
        asked, tenure = Asked(api, message, answer), self._tenure
        if tenure is None:
            asked.refuse(ErrorCode.not_controller, self._hint())
            return
        if api.decide is decide_heartbeat:
            self._note_contact(tenure, message)
        if tenure.is_full(current=api.current):
            why = "too many requests are under way: try again"
            asked.refuse(ErrorCode.throttling_quota_exceeded, why)
            return
        try:
            with collector_paused():
                decision = api.decide(self._situation(tenure), message)
                if decision.records:
                    self._carry_out(tenure, decision, asked)
                    return
            values = decision.response
        except Refused as refused:
            # A refusal speaks of the image as any other answer does.
            values = api.refuse(message, refused.error_code, str(refused))
        self._read(tenure, Read(asked, values, tenure.image.end_offset))

    def _note_contact(self, tenure: Tenure, message: Any) -> None:
        """Before all else: a broker whose heartbeat waits, or is refused, is alive."""
        tenure.heartbeats.contact(
            BrokerId(message.broker_id),
            message.broker_epoch,
            message.current_metadata_offset,
            self._clock.monotonic_ms(),
        )

    def _situation(self, tenure: Tenure) -> Situation:
        return Situation(
            image=tenure.image,
            index=tenure.index,
            heartbeats=tenure.heartbeats,
            settings=self._settings,
            now_ms=self._clock.monotonic_ms(),
            rng=self._rng,
        )

    def _hint(self) -> str:
        if self._leader_id is None or self._leader_id == self._node_id:
            return "no controller is active at the moment"
        return f"the active controller is node {self._leader_id}"

    def _read(self, tenure: Tenure, read: Read) -> None:
        read.is_proven = not read.asked.api.current
        tenure.add_read(read)
        if not read.is_proven:
            barrier = self._consensus.read_barrier(epoch=tenure.epoch)
            self._watch(barrier, partial(self._proven, tenure, read))

    # -- writes -------------------------------------------------------------------------------

    def _carry_out(self, tenure: Tenure, decision: Decision, asked: Asked | None) -> None:
        try:
            proposal = make_proposal(
                tenure.image,
                decision,
                epoch=tenure.epoch,
                timestamp_ms=self._clock.now_ms(),
            )
        except (IllegalDecision, ReplayError) as error:
            self._fail(error)
            if asked is not None:
                asked.refuse(ErrorCode.unknown_server_error, "the controller has failed")
            return
        events = events_of(tenure.image, proposal.image, proposal.changes)
        size = sum(len(batch) for _, batch in proposal.batches)
        write = Write(asked, decision.response, events, size)
        now_ms = self._clock.monotonic_ms()
        tenure.adopt(proposal, write, now_ms)
        self._duties.appended(now_ms)
        if enables_unclean_election(decision.records):
            self._duties.unclean_elections_allowed(now_ms)
        last_offset = proposal.batches[-1][0]
        for base_offset, batch in proposal.batches:
            # Even when the one before is refused at once: this one then is too, and says so.
            future = self._consensus.propose(batch, epoch=tenure.epoch, base_offset=base_offset)
            is_last = base_offset == last_offset
            self._watch(future, partial(self._settled, tenure, write if is_last else None))

    def _settled(self, tenure: Tenure, write: Write | None, future: Future[int]) -> None:
        """The outcome of a batch; `write` is the one that it is the last of."""
        error = future.exception()
        if write is not None:
            tenure.settle(write)
        if error is None:
            if write is not None:
                self._succeed(write)
            tenure.committed(future.result())
            return
        self._lost(tenure, error)  # First: it finds out who leads, which the answer says.
        if write is not None and write.asked is not None:
            self._refuse_lost(write.asked, error)

    def _succeed(self, write: Write) -> None:
        for event in write.events:
            log.info(event.name, node=self._node_id, **event.fields)
        if write.asked is not None:
            write.asked.answer(write.values)

    def _refuse_lost(self, asked: Asked, error: BaseException) -> None:
        match error:
            case NotController():
                asked.refuse(ErrorCode.not_controller, self._hint())
            case InvalidBatch():
                asked.refuse(ErrorCode.unknown_server_error, str(error))
            case _:  # OutcomeUnknown, or the engine failed: another leader may yet commit it.
                why = "leadership was lost before it was committed: it may yet be"
                asked.refuse(ErrorCode.request_timed_out, why)

    def _proven(self, tenure: Tenure, read: Read, future: Future[int]) -> None:
        error = future.exception()
        if error is None:
            tenure.proven(read)
        else:
            self._lost(tenure, error)

    # -- the end of an epoch ------------------------------------------------------------------

    def _lost(self, tenure: Tenure, error: BaseException) -> None:
        """The engine does not take this for the leader of that epoch, or its log ends elsewhere:
        what was decided here is built on sand."""
        if isinstance(error, InvalidBatch):
            self._fail(FatalFault(f"the engine refuses a batch of the controller: {error}"))
            return
        if tenure is not self._tenure:
            return
        state = self._consensus.state()
        self._leader_id = None if state.leader_id == self._node_id else state.leader_id
        self._end(state.epoch)
        if state.leader_id == self._node_id and state.epoch == tenure.epoch:
            # It leads, but not from where this controller decided: the next epoch begins anew.
            log.warning("controller_gives_up", node=self._node_id, epoch=tenure.epoch, why=error)
            self._consensus.resign()

    def _fail(self, fault: FatalFault) -> None:
        self._has_failed = True
        tenure = self._tenure
        if tenure is not None:
            self._end(tenure.epoch)
        log.critical("controller_failed", node=self._node_id, why=str(fault))
        self._on_fault(fault)

    # -- what the controller does by itself ---------------------------------------------------

    def next_due_ms(self) -> int | None:
        """When to call `tick`, on the monotonic clock; None: not before the next event."""
        return None if self._tenure is None else self._duties.next_due_ms(self._tenure.heartbeats)

    def tick(self, now_ms: int) -> None:
        """Do what is due. More may be due at once: `next_due_ms` tells."""
        tenure = self._tenure
        if tenure is None:
            return
        for duty in self._duties.due(now_ms, is_idle=not tenure.writes):
            if self._act(tenure, duty.decide):
                self._duties.did(duty, now_ms)

    def _act(self, tenure: Tenure, decide: Callable[[Situation], Decision | None]) -> bool:
        """Whether there was something to do."""
        if tenure is not self._tenure:
            return False
        with collector_paused():
            decision = decide(self._situation(tenure))
            if decision is None or not decision.records:
                return False
            self._carry_out(tenure, decision, None)
        return True
