"""One replica of one partition: who leads it, what is committed, who is in sync. No IO.

Metadata, fetches, appends, answers and time come in as calls; effects come out, to be carried out
in order. The log is only looked at. Roles and what changes them:

  FOLLOWER -> LEADER    metadata names this broker, always with a new leader epoch
  LEADER -> FOLLOWER    metadata names another one, or none
  any -> OFFLINE        the log's directory failed; there is no way back in this process

What always holds:
- The high watermark is at most what every member of the maximal ISR has said, in the current leader
  epoch, that it holds. It never falls while one epoch is led, nor on a follower but by truncation.
- It does not move while the ISR is smaller than min.insync.replicas (KAFKA-15583).
- At most one ISR proposal is in flight; metadata of a newer partition epoch ends it. Metadata of a
  known partition epoch says nothing new and must not end it: it may be late, and the proposal that
  it would forget is built upon it.
- Only fetches and answers of exactly the current leader epoch count. What followers said in an
  older epoch is forgotten even if the leader stays: they may have been cut by a leader in between
  that this broker never heard of.
- A follower joins the ISR only at or past both the high watermark and the start of the leader's
  epoch: records between the two may be committed, and only a log that reaches the start has them.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.effects import (
    COMPLETE_WAITING,
    NO_EFFECTS,
    STOP_FETCHING,
    AssignEpoch,
    Effect,
    Effects,
    FetchFrom,
    HighWatermarkMoved,
    MoveLogStart,
    ProposeIsr,
    StartOver,
    TruncateTo,
)
from kraftpy.broker.isr import (
    AlterPartitionAnswer,
    Follower,
    IsrProposal,
    Moment,
    Verdict,
    is_eligible,
    is_stale,
    members,
    verdict,
)
from kraftpy.broker.reads import (
    EpochEnd,
    FetchPlan,
    FetchPosition,
    FollowerFetch,
    LogView,
    Refused,
    Serve,
    check_position,
    epoch_end,
    truncation_offset,
)
from kraftpy.metadata_log.image import Partition
from kraftpy.metadata_log.records import RECOVERED
from kraftpy.types import NO_EPOCH, NO_LEADER, BrokerId

ACKS_ALL: Final = -1


class Role(Enum):
    FOLLOWER = auto()
    LEADER = auto()
    OFFLINE = auto()


@dataclass(slots=True, kw_only=True)
class ReplicaConfig:
    """Settings that may change while the replica lives."""

    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000


class Replica:
    """The machine. One task owns it, and carries out its effects before it calls again."""

    def __init__(
        self, broker_id: BrokerId, log: LogView, config: ReplicaConfig, *, high_watermark: int
    ) -> None:
        """`high_watermark` is the checkpointed one; 0 if there is none."""
        self.broker_id = broker_id
        self.config = config
        self._log = log
        self.role = Role.FOLLOWER
        self.leader = NO_LEADER
        self.leader_epoch: int = NO_EPOCH
        self.partition_epoch = -1
        self.leader_recovery_state = RECOVERED
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: tuple[BrokerId, ...] = ()  # As committed by the controller.
        self.pending: IsrProposal | None = None
        self.maximal_isr: frozenset[BrokerId] = frozenset()
        self.followers: dict[BrokerId, Follower] = {}
        self.epoch_start_offset = -1  # Of the current epoch, while leading.
        self.leading_since_epoch: int = NO_EPOCH  # The first epoch of this leadership.
        self.high_watermark = max(log.start_offset, min(high_watermark, log.end_offset))
        # Where the oldest undecided transaction begins; whoever tracks producers sets it.
        self.first_unstable_offset: int | None = None

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def last_stable_offset(self) -> int:
        """What read_committed consumers may see ends here."""
        if self.first_unstable_offset is None:
            return self.high_watermark
        return min(self.first_unstable_offset, self.high_watermark)

    @property
    def effective_min_isr(self) -> int:
        """A partition with fewer replicas than min.insync.replicas needs all that it has."""
        return min(self.config.min_insync_replicas, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.effective_min_isr

    # -- metadata -------------------------------------------------------------------------

    def apply_metadata(self, partition: Partition, moment: Moment) -> Effects:
        """The partition as the metadata log has it now; this broker is one of its replicas."""
        if self.role is Role.OFFLINE or partition.partition_epoch <= self.partition_epoch:
            return NO_EFFECTS
        self.partition_epoch = partition.partition_epoch
        self.replicas = partition.replicas
        self.leader_recovery_state = partition.leader_recovery_state
        self._commit_isr(partition.isr)
        if partition.leader == self.broker_id:
            return self._lead(partition, moment)
        return self._follow(partition)

    def _lead(self, partition: Partition, moment: Moment) -> Effects:
        others = [each for each in partition.replicas if each != self.broker_id]
        effects: list[Effect] = []
        if partition.leader_epoch > self.leader_epoch:
            if not self.is_leader:
                self.leading_since_epoch = partition.leader_epoch
                effects.append(STOP_FETCHING)
            self.role = Role.LEADER
            self.leader = self.broker_id
            self.leader_epoch = partition.leader_epoch
            self.epoch_start_offset = self._log.end_offset
            effects.append(AssignEpoch(self.leader_epoch, self.epoch_start_offset))
            # Members of the ISR get the full time to show themselves; others hold nothing up.
            self.followers = {
                each: Follower(moment.now_ms if each in partition.isr else 0) for each in others
            }
        else:
            assert self.is_leader, "a leader is named with a new epoch only"
            self.followers = {each: self.followers.get(each) or Follower() for each in others}
        return (*effects, *self._advance(moment))

    def _follow(self, partition: Partition) -> Effects:
        was_leader = self.is_leader
        is_new = was_leader or partition.leader_epoch > self.leader_epoch
        self.role = Role.FOLLOWER
        self.leader = partition.leader
        self.leader_epoch = partition.leader_epoch
        self.followers = {}
        self.epoch_start_offset = -1
        effects: list[Effect] = []
        if is_new and self.leader == NO_LEADER:
            effects.append(STOP_FETCHING)
        elif is_new:
            effects.append(FetchFrom(self.leader, self.leader_epoch))
        if was_leader:
            effects.append(COMPLETE_WAITING)
        return tuple(effects)

    def log_failed(self) -> Effects:
        """The log's directory is gone: nothing is served from here any more."""
        self.role = Role.OFFLINE
        self.followers = {}
        self.pending = None
        return (STOP_FETCHING, COMPLETE_WAITING)

    def _commit_isr(self, isr: tuple[BrokerId, ...]) -> None:
        self.isr = isr
        self.pending = None
        self.maximal_isr = self._maximal()

    def _maximal(self) -> frozenset[BrokerId]:
        if self.pending is None:
            return frozenset(self.isr)
        return self.pending.ids.union(self.isr)

    # -- leading: what is committed -------------------------------------------------------

    def check_append(self, acks: int) -> ErrorCode:
        """Whether a Produce may append here now."""
        if not self.is_leader:
            return self._not_leader()
        if acks == ACKS_ALL and self.is_under_min_isr:
            return ErrorCode.not_enough_replicas
        return ErrorCode.none

    def appended(self, moment: Moment) -> Effects:
        """The log has grown by this leader's own append."""
        assert self.is_leader
        return self._advance(moment)

    def produce_outcome(self, end_offset: int, leader_epoch: int) -> ErrorCode | None:
        """What acks=all gets for records that end there, appended in that epoch; None: wait."""
        if not self.is_leader:
            return self._not_leader()
        if leader_epoch < self.leading_since_epoch:
            # Another one led since then: what is at those offsets now may be its records.
            return ErrorCode.not_leader_or_follower
        if self.high_watermark < end_offset:
            return None
        if len(self.maximal_isr) < self.effective_min_isr:
            return ErrorCode.not_enough_replicas_after_append
        return ErrorCode.none

    def _advance(self, moment: Moment) -> Effects:
        if self.is_under_min_isr:
            return NO_EFFECTS
        log_end = offset = self._log.end_offset
        for broker_id, follower in self.followers.items():
            if follower.log_end < offset and (
                broker_id in self.maximal_isr
                or self._is_about_to_join(broker_id, follower, log_end, moment)
            ):
                offset = follower.log_end
        if offset <= self.high_watermark:
            return NO_EFFECTS
        self.high_watermark = offset
        return (HighWatermarkMoved(offset), COMPLETE_WAITING)

    def _is_about_to_join(
        self, broker_id: BrokerId, follower: Follower, log_end: int, moment: Moment
    ) -> bool:
        """Such a follower is waited for: a leader alone could run away from it for ever."""
        return follower.is_caught_up(
            log_end, moment.now_ms, self.config.replica_lag_time_max_ms
        ) and is_eligible(broker_id, follower, moment)

    def low_watermark(self, moment: Moment) -> int:
        """Records before it are deleted on every live replica; -1 while one has not told."""
        starts = [self._log.start_offset]
        for broker_id, follower in self.followers.items():
            broker = moment.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                starts.append(follower.log_start)
        return min(starts)

    # -- leading: followers and the ISR ---------------------------------------------------

    def follower_fetch(self, fetch: FollowerFetch, moment: Moment) -> tuple[FetchPlan, Effects]:
        """A follower asks for records, and says with that what it holds."""
        error = self._fetch_error(fetch.leader_epoch, leader_only=True)
        if fetch.leader_epoch == NO_EPOCH:
            error = ErrorCode.fenced_leader_epoch  # Nobody knows whom it took for the leader.
        if error is not ErrorCode.none:
            return Refused(error), NO_EFFECTS
        follower = self.followers.get(fetch.replica_id)
        if follower is None:
            # The metadata that makes it a replica may not be here yet.
            return Refused(ErrorCode.unknown_leader_epoch), NO_EFFECTS
        if is_stale(fetch.replica_id, fetch.broker_epoch, moment):
            return Refused(ErrorCode.not_leader_or_follower), NO_EFFECTS
        wrong = check_position(self._log, fetch.offset, fetch.last_fetched_epoch)
        if wrong is not None:
            return wrong, NO_EFFECTS
        follower.fetched(
            fetch.offset,
            fetch.log_start_offset,
            fetch.broker_epoch,
            self._log.end_offset,
            moment.now_ms,
        )
        effects = self._expand(fetch.replica_id, follower, moment) + self._advance(moment)
        return self._serve(self._log.end_offset), effects

    def tick(self, moment: Moment) -> Effects:
        """Now and then, at least twice per replica.lag.time.max.ms: who has fallen behind?"""
        if not self.is_leader:
            return NO_EFFECTS
        return self._shrink(moment) + self._advance(moment)

    def _expand(self, broker_id: BrokerId, follower: Follower, moment: Moment) -> Effects:
        if self.pending is not None or broker_id in self.isr:
            return NO_EFFECTS
        if not (self._is_in_sync(follower) and is_eligible(broker_id, follower, moment)):
            return NO_EFFECTS
        return self._propose({*self.isr, broker_id}, moment)

    def _is_in_sync(self, follower: Follower) -> bool:
        return follower.log_end >= max(self.high_watermark, self.epoch_start_offset)

    def _shrink(self, moment: Moment) -> Effects:
        if self.pending is not None:
            return NO_EFFECTS
        log_end, lag_ms_max = self._log.end_offset, self.config.replica_lag_time_max_ms
        behind = {
            each
            for each in self.isr
            if each in self.followers
            and not self.followers[each].is_caught_up(log_end, moment.now_ms, lag_ms_max)
        }
        if not behind:
            return NO_EFFECTS
        return self._propose(set(self.isr) - behind, moment)

    def _propose(self, isr: set[BrokerId], moment: Moment) -> Effects:
        ids = [each for each in self.replicas if each in isr]
        self.pending = IsrProposal(
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr=members(ids, self.broker_id, self.followers, moment),
            # A leader has nothing to recover beyond its log, which is open: so Kafka says, too.
            leader_recovery_state=RECOVERED,
        )
        self.maximal_isr = self._maximal()
        return (ProposeIsr(self.pending),)

    def alter_partition_answered(
        self, proposal: IsrProposal, answer: AlterPartitionAnswer, moment: Moment
    ) -> Effects:
        """The controller's answer to a proposal; late ones change nothing."""
        if not self.is_leader or proposal != self.pending:
            return NO_EFFECTS
        match verdict(answer.error):
            case Verdict.RETRY:
                return (ProposeIsr(proposal, again=True),)
            case Verdict.NOT_APPLIED:
                self._commit_isr(self.isr)
                return self._advance(moment)
            case Verdict.COMMITTED:
                return self._committed(answer, moment)
            case Verdict.UNCERTAIN:
                return NO_EFFECTS

    def _committed(self, answer: AlterPartitionAnswer, moment: Moment) -> Effects:
        if answer.leader_epoch != self.leader_epoch:
            return NO_EFFECTS  # Metadata of another leadership is on its way.
        if answer.partition_epoch < self.partition_epoch:
            return NO_EFFECTS
        self.partition_epoch = answer.partition_epoch
        self.leader_recovery_state = answer.leader_recovery_state
        self._commit_isr(answer.isr)
        return self._advance(moment)

    # -- following ------------------------------------------------------------------------

    def fetch_position(self) -> FetchPosition:
        log = self._log
        return FetchPosition(self.leader_epoch, log.end_offset, log.epochs.latest, log.start_offset)

    def accepts(self, position: FetchPosition) -> bool:
        """Whether the answer to a fetch from there still speaks of this leader and this log.

        A late one could cut committed records (KAFKA-18991): one of another leader epoch, or one
        about records at the same place that were replaced since.
        """
        return (
            self.role is Role.FOLLOWER
            and position.leader_epoch == self.leader_epoch
            and position.offset == self._log.end_offset
            and position.last_fetched_epoch == self._log.epochs.latest
        )

    def diverged(self, position: FetchPosition, leader: EpochEnd) -> Effects:
        """The leader has other records: so it said in Fetch or in OffsetForLeaderEpoch."""
        if not self.accepts(position):
            return NO_EFFECTS
        return self._cut(truncation_offset(self._log, leader))

    def out_of_range(
        self, position: FetchPosition, leader_start_offset: int, leader_end_offset: int
    ) -> Effects:
        """The leader has no such offset; it was asked, by ListOffsets, which ones it has."""
        if not self.accepts(position):
            return NO_EFFECTS
        if leader_end_offset < self._log.end_offset:
            return self._cut(leader_end_offset)
        if leader_start_offset <= self._log.end_offset:
            return NO_EFFECTS  # It has become valid meanwhile: fetch again.
        self.high_watermark = leader_start_offset
        return (StartOver(leader_start_offset, below_high_watermark=False),)

    def _cut(self, offset: int) -> Effects:
        below = offset < self.high_watermark
        self.high_watermark = min(self.high_watermark, offset)
        if offset < self._log.start_offset:
            return (StartOver(offset, below),)
        return (TruncateTo(offset, below),)

    def log_changed(self) -> None:
        """After the log was cut: it may have lost a whole batch, or have moved its start."""
        log = self._log
        self.high_watermark = max(log.start_offset, min(self.high_watermark, log.end_offset))

    def replicated(
        self, leader_epoch: int, high_watermark: int, leader_log_start_offset: int
    ) -> Effects:
        """What the leader sent, if anything, is in the log; the rest of its answer comes here.

        Not before: the high watermark must not cover records that are still to be replaced
        (KAFKA-14704).
        """
        if self.role is not Role.FOLLOWER or leader_epoch != self.leader_epoch:
            return NO_EFFECTS
        effects: list[Effect] = []
        offset = min(high_watermark, self._log.end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            effects += (HighWatermarkMoved(offset), COMPLETE_WAITING)
        start = min(leader_log_start_offset, self.high_watermark)
        if start > self._log.start_offset:
            effects.append(MoveLogStart(start))
        return tuple(effects)

    # -- reading --------------------------------------------------------------------------

    def consumer_fetch(
        self,
        offset: int,
        *,
        leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        read_committed: bool = False,
        leader_only: bool = True,
    ) -> FetchPlan:
        """A consumer asks for records; from a follower only where the caller lets it (KIP-392)."""
        error = self._fetch_error(leader_epoch, leader_only=leader_only)
        if error is not ErrorCode.none:
            return Refused(error)
        wrong = check_position(self._log, offset, last_fetched_epoch)
        if wrong is not None:
            return wrong
        return self._serve(self.last_stable_offset if read_committed else self.high_watermark)

    def latest_offset(
        self, *, leader_epoch: int = NO_EPOCH, read_committed: bool = False
    ) -> int | ErrorCode:
        """The end of what consumers see, for ListOffsets.

        A new leader does not know yet which of its records are committed: until it does, an answer
        could fall behind an earlier one. Before version 5 the error is LEADER_NOT_AVAILABLE.
        """
        error = self._fetch_error(leader_epoch, leader_only=True)
        if error is not ErrorCode.none:
            return error
        if self.high_watermark < self.epoch_start_offset:
            return ErrorCode.offset_not_available
        return self.last_stable_offset if read_committed else self.high_watermark

    def offset_for_leader_epoch(self, leader_epoch: int, epoch: int) -> EpochEnd | ErrorCode:
        """OffsetForLeaderEpoch: where `epoch` ends in this leader's log."""
        error = self._fetch_error(leader_epoch, leader_only=True)
        return epoch_end(self._log, epoch) if error is ErrorCode.none else error

    def _serve(self, end_offset: int) -> Serve:
        return Serve(
            end_offset, self.high_watermark, self.last_stable_offset, self._log.start_offset
        )

    def _fetch_error(self, leader_epoch: int, *, leader_only: bool) -> ErrorCode:
        if self.role is Role.OFFLINE:
            return ErrorCode.kafka_storage_error
        if leader_epoch != NO_EPOCH and leader_epoch != self.leader_epoch:
            is_older = leader_epoch < self.leader_epoch
            return ErrorCode.fenced_leader_epoch if is_older else ErrorCode.unknown_leader_epoch
        if leader_only and not self.is_leader:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.none

    def _not_leader(self) -> ErrorCode:
        if self.role is Role.OFFLINE:
            return ErrorCode.kafka_storage_error
        return ErrorCode.not_leader_or_follower
