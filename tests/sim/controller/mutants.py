"""Planted bugs of the controller: each takes one protection away, and the simulation must notice.

`make sim-mutants` plants them beside those of the quorum.
"""

from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.quorum.control import broker_heartbeat, brokers, fencing, isr
from kraftpy.quorum.control.decision import Situation
from kraftpy.quorum.control.heartbeats import Heartbeats
from kraftpy.quorum.control.partition_index import PartitionIndex
from kraftpy.quorum.control.producer_ids import decide_allocate_producer_ids
from kraftpy.quorum.controller import Controller
from kraftpy.quorum.image_keeper import ImageKeeper
from kraftpy.quorum.tenure import Tenure
from tests.sim.controller.plan import (
    draw_controller_plan,
    draw_stale_leader_plan,
    draw_torn_decision_plan,
)
from tests.sim.mutants import Mutant, Patch

_LONG_MS = 1_000_000


# -- answers -----------------------------------------------------------------------------------


def _answer_before_commit() -> list[Patch]:
    original = Controller._carry_out

    def carry_out(self: Any, tenure: Any, decision: Any, asked: Any) -> None:
        original(self, tenure, decision, None)
        if asked is not None:
            asked.answer(decision.response)

    return [(Controller, "_carry_out", carry_out)]


def _lost_leadership_is_refused() -> list[Patch]:
    def refuse_lost(self: Any, asked: Any, _error: Any) -> None:
        asked.refuse(ErrorCode.not_controller, self._hint())

    return [(Controller, "_refuse_lost", refuse_lost)]


def _read_without_barrier() -> list[Patch]:
    def read(_self: Any, tenure: Any, found: Any) -> None:
        found.is_proven = True
        tenure.add_read(found)

    return [(Controller, "_read", read)]


def _read_of_what_is_not_committed() -> list[Patch]:
    original = Tenure.add_read

    def add_read(self: Any, read: Any) -> None:
        read.end_offset = -1
        original(self, read)

    return [(Tenure, "add_read", add_read)]


# -- epochs of the controller ------------------------------------------------------------------


def _speculative_image_kept() -> list[Patch]:
    original_end, original_lead = Controller._end, Controller.lead

    def end(self: Any, new_epoch: int) -> None:
        if self._tenure is not None:
            self.kept = self._tenure.image
        original_end(self, new_epoch)

    def lead(self: Any, epoch: int, image: Any, index: Any = None) -> None:
        kept = getattr(self, "kept", None)
        if kept is not None:
            image = replace(
                kept,
                end_offset=image.end_offset,
                epoch=image.epoch,
                timestamp_ms=image.timestamp_ms,
            )
            index = PartitionIndex(image)
        original_lead(self, epoch, image, index)

    return [(Controller, "_end", end), (Controller, "lead", lead)]


def _leads_before_all_is_replayed() -> list[Patch]:
    def hand_over(self: Any, take: Any) -> None:
        self._take(take)

    return [(ImageKeeper, "hand_over", hand_over)]


def _sessions_not_restarted() -> list[Patch]:
    original = Heartbeats.of.__func__  # type: ignore[attr-defined]

    def of(cls: Any, image: Any, now_ms: int) -> Any:
        return original(cls, image, now_ms - _LONG_MS)

    return [(Heartbeats, "of", classmethod(of))]


def _transaction_not_aborted() -> list[Patch]:
    return [(Controller, "_abort_transaction", lambda _self, _begin_offset: None)]


def _producer_ids_of_the_committed_image() -> list[Patch]:
    lead, succeed, submit = Controller.lead, Controller._succeed, Controller.submit

    def leads(self: Any, epoch: int, image: Any, index: Any = None) -> None:
        self.first = image.next_producer_id
        lead(self, epoch, image, index)

    def succeeds(self: Any, write: Any) -> None:
        if "producer_id_start" in write.values:
            self.first = write.values["producer_id_start"] + write.values["producer_id_len"]
        succeed(self, write)

    def submits(self: Any, api: Any, message: Any, answer: Any) -> None:
        def decide(situation: Situation, asked: Any) -> Any:
            image = replace(situation.image, next_producer_id=self.first)
            return decide_allocate_producer_ids(replace(situation, image=image), asked)

        if api.decide is decide_allocate_producer_ids:
            api = api._replace(decide=decide)
        submit(self, api, message, answer)

    return [
        (Controller, "lead", leads),
        (Controller, "_succeed", succeeds),
        (Controller, "submit", submits),
    ]


# -- decisions ---------------------------------------------------------------------------------


def _fence_without_isr_changes() -> list[Patch]:
    return [(fencing, "leave_isrs", lambda *_arguments, **_more: ())]


def _crash_is_taken_for_a_stop() -> list[Patch]:
    return [(brokers, "leave_for_good", fencing.leave_isrs)]


def _unfenced_before_caught_up() -> list[Patch]:
    return [(broker_heartbeat, "_registration_offset", lambda _situation, _broker: -1)]


def _alter_partition_of_an_old_life() -> list[Patch]:
    return [(isr, "_check_broker", lambda _image, _broker_id, _broker_epoch: None)]


def _alter_partition_of_an_old_state() -> list[Patch]:
    original = isr._stale

    def stale(partition: Any, broker_id: Any, proposal: Any) -> Any:
        known = replace(proposal, partition_epoch=partition.partition_epoch)
        return original(partition, broker_id, known)

    return [(isr, "_stale", stale)]


def _member_of_an_old_life() -> list[Patch]:
    original = isr._ineligible

    def ineligible(image: Any, partition: Any, proposal: Any) -> Any:
        unsaid = replace(proposal, broker_epochs=(-1,) * len(proposal.isr))
        return original(image, partition, unsaid)

    return [(isr, "_ineligible", ineligible)]


def _mutant(missing: str, patches: Any, draw: Any = draw_controller_plan) -> Mutant:
    return Mutant(missing=missing, patches=patches, draw=draw)


CONTROLLER_MUTANTS: dict[str, Mutant] = {
    "answer_before_commit": _mutant(
        "a write is answered when it is committed", _answer_before_commit
    ),
    "lost_leadership_is_refused": _mutant(
        "what may yet commit is not called refused", _lost_leadership_is_refused
    ),
    "read_without_barrier": _mutant(
        "a read waits for the proof of leadership", _read_without_barrier, draw_stale_leader_plan
    ),
    "read_of_what_is_not_committed": _mutant(
        "a read waits for what it saw", _read_of_what_is_not_committed
    ),
    "speculative_image_kept": _mutant(
        "the speculative image goes with leadership", _speculative_image_kept
    ),
    "leads_before_all_is_replayed": _mutant(
        "a controller leads with all that is committed", _leads_before_all_is_replayed
    ),
    "sessions_not_restarted": _mutant(
        "sessions begin anew with a controller", _sessions_not_restarted
    ),
    "transaction_not_aborted": _mutant(
        "a transaction that was left open is aborted",
        _transaction_not_aborted,
        draw_torn_decision_plan,
    ),
    "producer_ids_of_the_committed_image": _mutant(
        "decisions see what was decided before", _producer_ids_of_the_committed_image
    ),
    "fence_without_isr_changes": _mutant(
        "who is fenced leaves its partitions", _fence_without_isr_changes
    ),
    "crash_is_taken_for_a_stop": _mutant(
        "who crashed is not eligible any more", _crash_is_taken_for_a_stop
    ),
    "unfenced_before_caught_up": _mutant(
        "who is unfenced has replayed its registration", _unfenced_before_caught_up
    ),
    "alter_partition_of_an_old_life": _mutant(
        "AlterPartition checks the broker's epoch", _alter_partition_of_an_old_life
    ),
    "alter_partition_of_an_old_state": _mutant(
        "AlterPartition checks the partition epoch", _alter_partition_of_an_old_state
    ),
    "member_of_an_old_life": _mutant(
        "AlterPartition checks the epochs of members", _member_of_an_old_life
    ),
}
