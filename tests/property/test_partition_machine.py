"""Replicas that follow the machine lose nothing committed, whatever the network and crashes do.

Method: lives of the model in tests/property/partition_model.py, each drawn from a seed, with every
rule checked after every step; then all faults end, and all replicas must arrive at one log. A
planted bug is a machine with one protection taken away: some life must break a rule.

PROPERTY_EXAMPLES is how many lives are tried; a violation names its seed.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.broker import isr
from kraftpy.broker import partition as module
from kraftpy.broker.effects import NO_EFFECTS, Effects, TruncateTo
from kraftpy.broker.isr import AlterPartitionAnswer, Follower, IsrProposal, Moment
from kraftpy.broker.partition import Replica
from kraftpy.broker.reads import EpochEnd, FetchPlan, FetchPosition, FollowerFetch
from kraftpy.metadata_log.image import Partition
from kraftpy.types import NO_EPOCH, BrokerId
from tests.property.partition_model import Cluster
from tests.property.partition_parts import Violation

LIVES = int(os.environ.get("PROPERTY_EXAMPLES", "2000"))
STEPS = 200
# A planted bug has this many lives to show itself in.
PLANTED_LIVES_MAX = 5_000


def live(seed: int, machine: type[Replica] = Replica, *, heal: bool = True) -> Cluster:
    cluster = Cluster(seed, machine)
    try:
        cluster.run(STEPS)
        if heal:
            cluster.heal()
    except Violation as violation:
        story = "\n".join(cluster.trace[-60:])
        violation.args = (f"seed {seed}: {violation.args[0]}\n{story}",)
        raise
    return cluster


def test_what_is_committed_stays_on_every_replica_that_may_lead() -> None:
    hits: Counter[str] = Counter()
    for seed in range(LIVES):
        hits.update(live(seed).hits)
    # Each of these must happen often, or nothing was proven.
    for event in (
        "ack",
        "truncate",
        "alter",
        "elect",
        "flash",
        "fence",
        "kill",
        "lose_records",
        "restart",
    ):
        assert hits[event] >= LIVES / 4, (event, hits)


# --- the rules themselves -------------------------------------------------------------------------


def healthy() -> Cluster:
    """A life without faults: leader 1 has committed some records that all replicas have."""
    cluster = live(0)
    leader = cluster.nodes[cluster.controller.partition.leader]
    for _ in range(3):
        cluster.append(leader)
    cluster.heal()
    cluster.check()
    assert cluster.committed
    return cluster


def elect_another(cluster: Cluster) -> None:
    partition = cluster.controller.partition
    isr = tuple(each for each in partition.isr if each != partition.leader)
    cluster.controller.partition = replace(partition, isr=isr)


def lower_the_watermark(cluster: Cluster) -> None:
    cluster.nodes[cluster.controller.partition.leader].replica.high_watermark -= 1


def invent_a_commit(cluster: Cluster) -> None:
    cluster.committed.pop()


def overwrite_a_commit(cluster: Cluster) -> None:
    leader = cluster.nodes[cluster.controller.partition.leader]
    cluster.committed[-1] += 1
    cluster.watermark_moved(leader, leader.log.end_offset)


def cut_a_follower(cluster: Cluster) -> None:
    partition = cluster.controller.partition
    *isr, last = (each for each in partition.isr if each != partition.leader)
    cluster.controller.partition = replace(partition, isr=(partition.leader, *isr))
    cluster.nodes[last].alive = cluster.nodes[last].has_lost = False
    cluster.nodes[last].log.truncate(0)


def claim_an_ack(cluster: Cluster) -> None:
    cluster.acked.append((1, 0))
    cluster.heal()


TAMPERED: list[tuple[Callable[[Cluster], None], str]] = [
    (elect_another, "LeaderInIsr"),
    (lower_the_watermark, "MonotonicWatermark"),
    (invent_a_commit, "LogMatching"),
    (overwrite_a_commit, "ConsistentRead"),
    (cut_a_follower, "WeakIsr"),
    (claim_an_ack, "AckedIsHeldByAll"),
]


@pytest.mark.parametrize(("tamper", "rule"), TAMPERED)
def test_a_rule_sees_its_violation(tamper: Callable[[Cluster], None], rule: str) -> None:
    """The rules that no planted machine below breaks first."""

    def happen() -> None:
        tamper(cluster)
        cluster.check()

    cluster = healthy()
    with pytest.raises(Violation) as caught:
        happen()
    assert caught.value.rule == rule


# --- planted bugs ---------------------------------------------------------------------------------


class CommittedIsrOnly(Replica):
    """The high watermark is counted over the committed ISR, without the pending member."""

    def _maximal(self) -> frozenset[BrokerId]:
        return frozenset(self.isr)


class ForgetfulShrink(Replica):
    """A shrink that was only proposed counts as done."""

    def _maximal(self) -> frozenset[BrokerId]:
        return frozenset(self.isr) if self.pending is None else self.pending.ids


class EarlyExpansion(Replica):
    """A follower joins at the high watermark, although the leader's epoch begins later."""

    def _is_in_sync(self, follower: Follower) -> bool:
        return follower.log_end >= self.high_watermark


class TruncatesToWatermark(Replica):
    """A new follower cuts its log to what it knows to be committed, as before KIP-101."""

    def _follow(self, partition: Partition) -> Effects:
        is_new = partition.leader_epoch > self.leader_epoch
        effects = super()._follow(partition)
        return (*effects, TruncateTo(self.high_watermark, False)) if is_new else effects


class StaleAcks(Replica):
    """A leader that came back acknowledges what it appended before it was replaced."""

    def produce_outcome(self, end_offset: int, leader_epoch: int) -> ErrorCode | None:
        if not self.is_leader:
            return None
        return super().produce_outcome(end_offset, max(leader_epoch, self.leading_since_epoch))


class OldEpochCounts(Replica):
    """A fetch of an older leader epoch counts like any other."""

    def follower_fetch(self, fetch: FollowerFetch, moment: Moment) -> tuple[FetchPlan, Effects]:
        if NO_EPOCH < fetch.leader_epoch < self.leader_epoch:
            fetch = fetch._replace(leader_epoch=self.leader_epoch)
        return super().follower_fetch(fetch, moment)


class OldEpochRemembered(Replica):
    """What followers said in an older epoch still counts if the leader stays."""

    def _lead(self, partition: Partition, moment: Moment) -> Effects:
        known = self.followers
        effects = super()._lead(partition, moment)
        for broker_id, follower in known.items():
            self.followers[broker_id].log_end = follower.log_end
        return (*effects, *self._advance(moment))


class KnownMetadataEndsProposal(Replica):
    """Metadata of a partition epoch that is known already drops the proposal built upon it."""

    def apply_metadata(self, partition: Partition, moment: Moment) -> Effects:
        if partition.partition_epoch == self.partition_epoch:
            self._commit_isr(partition.isr)
        return super().apply_metadata(partition, moment)


class UncertainIsRefused(Replica):
    """A proposal whose answer says nothing certain is taken for refused."""

    def alter_partition_answered(
        self, proposal: IsrProposal, answer: AlterPartitionAnswer, moment: Moment
    ) -> Effects:
        effects = super().alter_partition_answered(proposal, answer, moment)
        if self.pending is not None and answer.error is not ErrorCode.none:
            self._commit_isr(self.isr)
        return NO_EFFECTS if answer.error is not ErrorCode.none else effects


class SmallIsrCommits(Replica):
    """The high watermark moves although the ISR is too small (KAFKA-15583)."""

    @property
    def is_under_min_isr(self) -> bool:
        return False


class LateAnswerTruncates(Replica):
    """An answer of another epoch may still cut the log (KAFKA-18991)."""

    def accepts(self, position: FetchPosition) -> bool:
        return position.offset == self._log.end_offset


class LateAnswerOfThisEpoch(Replica):
    """An answer about other records at the same place may still cut the log."""

    def accepts(self, position: FetchPosition) -> bool:
        latest = self._log.epochs.latest
        return super().accepts(position._replace(last_fetched_epoch=latest))


class TakesTheLeadersWord(Replica):
    """Cut where the leader's epoch ends, whichever epochs this log has (before KIP-279)."""

    def diverged(self, position: FetchPosition, leader: EpochEnd) -> Effects:
        if not self.accepts(position):
            return NO_EFFECTS
        return self._cut(min(leader.end_offset, self._log.end_offset))


class WatermarkBeforeRecords(Replica):
    """A follower takes the leader's high watermark as it is."""

    def replicated(self, leader_epoch: int, high_watermark: int, start: int) -> Effects:
        effects = super().replicated(leader_epoch, high_watermark, start)
        self.high_watermark = max(self.high_watermark, high_watermark)
        return effects


class CountsItself(Replica):
    """acks=all is answered once the record is in the leader's own log."""

    def produce_outcome(self, end_offset: int, leader_epoch: int) -> ErrorCode | None:
        outcome = super().produce_outcome(end_offset, leader_epoch)
        return ErrorCode.none if outcome is None else outcome


class NeverExpands(Replica):
    """A follower that has caught up is not proposed for the ISR."""

    def _expand(self, *_: object) -> Effects:
        return NO_EFFECTS


# Which of these is seen first is a matter of the steps in between.
LOST = {"CandidateCompleteness", "AckedIsHeldByIsr", "WeakIsr", "LogMatching"}
LOST |= {"NeverBelowHighWatermark", "QuorumSuperset", "ConsistentRead"}
PLANTED: dict[type[Replica], set[str]] = {
    CommittedIsrOnly: LOST,
    ForgetfulShrink: LOST,
    EarlyExpansion: LOST,
    TruncatesToWatermark: LOST,
    StaleAcks: {"AckedIsHeldByIsr"},
    OldEpochCounts: LOST,
    OldEpochRemembered: LOST,
    KnownMetadataEndsProposal: LOST,
    UncertainIsRefused: LOST,
    SmallIsrCommits: {"MinIsr"},
    LateAnswerTruncates: LOST,
    LateAnswerOfThisEpoch: LOST,
    TakesTheLeadersWord: {"Liveness"},
    WatermarkBeforeRecords: {"ValidHighWatermark"},
    CountsItself: {"AckedIsHeldByIsr"},
    NeverExpands: {"Liveness"},
}


def first_violation(machine: type[Replica], rules: set[str]) -> tuple[int, Violation]:
    for seed in range(PLANTED_LIVES_MAX):
        try:
            live(seed, machine, heal="Liveness" in rules)
        except Violation as violation:
            return seed, violation
    pytest.fail(f"{machine.__name__} got through {PLANTED_LIVES_MAX} lives")


@pytest.mark.parametrize("machine", PLANTED, ids=lambda machine: machine.__name__)
def test_a_planted_bug_breaks_a_rule(machine: type[Replica]) -> None:
    _, violation = first_violation(machine, PLANTED[machine])
    assert violation.rule in PLANTED[machine], violation


def test_a_restarted_follower_that_is_taken_for_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broker epochs are neither compared nor told to the controller (before KIP-903)."""
    plant_no_broker_epochs(monkeypatch.setattr)
    _, violation = first_violation(Replica, set())
    assert violation.rule in LOST, violation


def plant_no_broker_epochs(setattr_: Callable[[object, str, object], None]) -> None:
    def is_eligible(broker_id: BrokerId, _: Follower, moment: Moment) -> bool:
        return not moment.brokers[broker_id].fenced

    setattr_(module, "is_eligible", is_eligible)
    setattr_(module, "is_stale", lambda *_: False)
    right = isr.members
    setattr_(
        module,
        "members",
        lambda *arguments: tuple(each._replace(broker_epoch=-1) for each in right(*arguments)),
    )
