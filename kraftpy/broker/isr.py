"""Who is in sync with a leader: what it knows of each follower, and the change that it proposes.

A follower is caught up at the moment of a fetch that asks for the leader's end; and, where records
come so fast that no fetch ever does, at the moment of the fetch before, if this one asks for what
was the end then. What a follower said counts for one leader epoch only.

The controller alone changes an ISR. A proposal that is on its way may have been accepted or not,
so until that is known the leader counts both sets: the maximal ISR (KIP-497).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.image import Broker
from kraftpy.types import BrokerId

UNKNOWN_OFFSET: Final = -1
NO_BROKER_EPOCH: Final = -1


class Moment(NamedTuple):
    """What a decision may look at beside the replica's own state."""

    now_ms: int
    broker_epoch: int  # This broker's own, as its registration was answered.
    brokers: Mapping[BrokerId, Broker]


class IsrMember(NamedTuple):
    broker_id: BrokerId
    broker_epoch: int  # Of its last fetch; -1 if there was none in this leader epoch.


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """An ISR that a leader asks for, with everything that fences the request if it is late."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    leader_recovery_state: int

    @property
    def ids(self) -> frozenset[BrokerId]:
        return frozenset(member.broker_id for member in self.isr)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionAnswer:
    """What the controller said. All but the error count only where the error is none."""

    error: ErrorCode
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[BrokerId, ...] = ()
    leader_recovery_state: int = 0


class Verdict(Enum):
    """What an answer to AlterPartition means for the proposal."""

    COMMITTED = auto()
    NOT_APPLIED = auto()  # Neither now nor later: the last committed ISR stands.
    UNCERTAIN = auto()  # Metadata will tell; until then both sets count.
    RETRY = auto()


# NOT_APPLIED is safe for these two alone: the controller says with them that the partition epoch
# was right and that it refused, so no older or newer controller can have accepted the request.
_NOT_APPLIED: Final = frozenset({ErrorCode.operation_not_attempted, ErrorCode.ineligible_replica})
_UNCERTAIN: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    }
)


def verdict(error: ErrorCode) -> Verdict:
    if error is ErrorCode.none:
        return Verdict.COMMITTED
    if error in _NOT_APPLIED:
        return Verdict.NOT_APPLIED
    return Verdict.UNCERTAIN if error in _UNCERTAIN else Verdict.RETRY


@dataclass(slots=True)
class Follower:
    """What a leader knows of one follower, from the fetches of its own leader epoch."""

    last_caught_up_ms: int = 0
    log_start: int = UNKNOWN_OFFSET
    log_end: int = UNKNOWN_OFFSET
    last_fetch_ms: int = 0
    last_fetch_leader_end: int = UNKNOWN_OFFSET
    broker_epoch: int | None = None

    def fetched(
        self, offset: int, log_start: int, broker_epoch: int, leader_end: int, now_ms: int
    ) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_start = log_start
        self.log_end = offset
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_end = max(leader_end, self.last_fetch_leader_end)
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end: int, now_ms: int, lag_ms_max: int) -> bool:
        return self.log_end == leader_end or now_ms - self.last_caught_up_ms <= lag_ms_max


def is_eligible(broker_id: BrokerId, follower: Follower, moment: Moment) -> bool:
    """Whether a broker may join an ISR: unfenced, staying, and still the one that fetched.

    A broker that restarted may have lost records that an earlier fetch of its told of (KIP-903).
    -1 comes from fetches that carry no broker epoch; the controller then has the last word.
    """
    broker = moment.brokers.get(broker_id)
    if broker is None or broker.fenced or broker.in_controlled_shutdown:
        return False
    return follower.broker_epoch in (NO_BROKER_EPOCH, broker.broker_epoch)


def is_stale(broker_id: BrokerId, broker_epoch: int, moment: Moment) -> bool:
    """Whether a fetch comes from an incarnation that the metadata knows to be gone."""
    broker = moment.brokers.get(broker_id)
    return broker is not None and NO_BROKER_EPOCH != broker_epoch < broker.broker_epoch


def members(
    ids: Iterable[BrokerId],
    broker_id: BrokerId,
    followers: Mapping[BrokerId, Follower],
    moment: Moment,
) -> tuple[IsrMember, ...]:
    """A proposed ISR with the broker epochs that this leader vouches for.

    A member that has not fetched in this epoch goes with -1: should it have restarted since, the
    controller has taken it out of the ISR, and with that fenced this proposal.
    """
    found = []
    for each in ids:
        known = moment.broker_epoch if each == broker_id else followers[each].broker_epoch
        found.append(IsrMember(each, NO_BROKER_EPOCH if known is None else known))
    return tuple(found)
