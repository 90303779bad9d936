"""Where two logs part ways, and who may read what: decisions that need no state of their own.

A log is described by its leader epochs and where each begins. Two logs that agree on the last
epoch that both know are equal up to the smaller end of that epoch (KIP-101, KIP-279): that is how
a leader finds that a follower or consumer has seen other records (KIP-320, KIP-595), and how a
follower finds where to cut.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from kio.schema.errors import ErrorCode

from kraftpy.broker.isr import Follower
from kraftpy.metadata_log.image import Broker
from kraftpy.types import NO_EPOCH, BrokerId


class EpochsView(Protocol):
    """What kraftpy.storage.epochs.LeaderEpochs shows of itself."""

    @property
    def entries(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def latest(self) -> int: ...
    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]: ...


class LogView(Protocol):
    """What kraftpy.storage.log.Log shows of itself: the facts that a replica decides by."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def epochs(self) -> EpochsView: ...


class EpochEnd(NamedTuple):
    """Where an epoch ends: -1, -1 if the log has no epoch at all."""

    epoch: int
    end_offset: int


class FollowerFetch(NamedTuple):
    """One partition of a Fetch request that another broker sent."""

    replica_id: BrokerId
    broker_epoch: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FetchPosition(NamedTuple):
    """What a follower asks its leader for."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Diverging:
    """The reader has seen records that are not in this log; none are sent."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Serve:
    """Send records before `end_offset`; the rest is what the answer tells about the log."""

    end_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


FetchPlan: TypeAlias = Refused | Diverging | Serve


def epoch_end(log: LogView, epoch: int) -> EpochEnd:
    """The largest epoch of the log at or below `epoch`, and where it ends.

    If the log begins with a later one, that one's start ends everything before it.
    """
    found, end_offset = log.epochs.end_offset_for(epoch, log.end_offset)
    if found != NO_EPOCH:
        return EpochEnd(found, end_offset)
    entries = log.epochs.entries
    return EpochEnd(epoch, entries[0][1]) if entries else EpochEnd(NO_EPOCH, -1)


def check_position(
    log: LogView, offset: int, last_fetched_epoch: int
) -> Refused | Diverging | None:
    """None if a reader that got as far as `offset` has seen nothing but what is in the log."""
    if last_fetched_epoch != NO_EPOCH:
        end = epoch_end(log, last_fetched_epoch)
        if end.epoch == NO_EPOCH or offset < log.start_offset:
            return Refused(ErrorCode.offset_out_of_range)
        if end.epoch < last_fetched_epoch or end.end_offset < offset:
            return Diverging(end.epoch, end.end_offset)
    if not log.start_offset <= offset <= log.end_offset:
        return Refused(ErrorCode.offset_out_of_range)
    return None


def truncation_offset(log: LogView, leader: EpochEnd) -> int:
    """Where a log must be cut whose leader says that an epoch ends there.

    Where this log does not know that epoch, it is cut to the end of its largest smaller one; the
    next fetch then names that one, and the leader judges again. If all its epochs are later, none
    of it stays.
    """
    own = epoch_end(log, leader.epoch)
    ends = [log.end_offset]
    if own.epoch != NO_EPOCH:
        ends.append(own.end_offset)
    if own.epoch in (NO_EPOCH, leader.epoch):
        ends.append(leader.end_offset)
    return min(ends)


def preferred_read_replica(
    rack: str | None,
    offset: int,
    *,
    leader: BrokerId,
    high_watermark: int,
    isr: Iterable[BrokerId],
    followers: Mapping[BrokerId, Follower],
    brokers: Mapping[BrokerId, Broker],
) -> BrokerId | None:
    """The replica in the consumer's rack that it should read from (KIP-392); None: the leader.

    Only replicas in sync, which have or soon get what the consumer wants next; of several the one
    that is furthest, the smaller id first, so that the answer does not wander.
    """
    if not rack or offset > high_watermark:
        return None
    local = brokers.get(leader)
    if local is not None and local.rack == rack:
        return None
    candidates = [
        (-followers[each].log_end, each)
        for each in isr
        if each != leader
        and each in followers
        and followers[each].log_start <= offset <= followers[each].log_end
        and (broker := brokers.get(each)) is not None
        and not broker.fenced
        and broker.rack == rack
    ]
    return min(candidates)[1] if candidates else None
