"""Every rule is broken by a log of its own, and stays silent for one that only looks like it."""

import pytest

from kraftpy.audit.rules import RULES, LogAudit, Violation, check_batch, check_image
from kraftpy.errors import ReplayError
from kraftpy.metadata_log import EMPTY, ClusterImage, replay_batch
from tests.unit.audit import (
    cluster_logs,
    data_row_cases,
    partition_logs,
    placement_logs,
    row_cases,
)
from tests.unit.audit.cases import BREAKING, KEEPING, Case
from tests.unit.audit.logs import EPOCH, Log

# Loading them fills BREAKING and KEEPING.
LOADED = (partition_logs, placement_logs, cluster_logs, data_row_cases)

# What is not seen without what came before the batch: epochs and ids that the image forgot.
NEED_HISTORY = {"an_epoch_that_falls_after_unregistration", "a_topic_id_used_again"}
# What is over two batches, and so is not in either.
NEED_TWO_BATCHES = {"a_topic_without_partitions"}


def audit(log: Log) -> list[list[Violation]]:
    """What each batch broke."""
    judge = LogAudit()
    return [
        judge.batch(records, base_offset=base_offset, epoch=EPOCH, evidence=evidence)
        for base_offset, records, evidence in log.batches
    ]


def numbers(found: list[Violation]) -> set[int]:
    return {violation.rule.number for violation in found}


def named(case: Case) -> str:
    return f"A{case.rule}-{case.name}"


@pytest.mark.parametrize("number", sorted(RULES))
def test_every_rule_has_a_log_that_breaks_it_and_one_that_keeps_it(number: int) -> None:
    broken = {case.rule for case in BREAKING} | {case.rule for case in row_cases.BREAKING}
    kept = {case.rule for case in KEEPING} | {case.rule for case in row_cases.KEEPING}
    assert number in broken
    assert number in kept


def test_the_catalogue_is_whole() -> None:
    assert list(RULES) == list(range(1, 61))
    assert len({rule.name for rule in RULES.values()}) == len(RULES)
    assert all(rule.sentence.endswith(".") and rule.needs for rule in RULES.values())


@pytest.mark.parametrize("case", row_cases.BREAKING, ids=lambda case: f"A{case.rule}-{case.name}")
def test_rows_that_break_a_rule_are_named(case: row_cases.RowCase) -> None:
    found = list(case.check())
    assert numbers(found) == {case.rule}, [str(each) for each in found]


@pytest.mark.parametrize("case", row_cases.KEEPING, ids=lambda case: f"A{case.rule}-{case.name}")
def test_rows_that_only_look_like_it_are_not_flagged(case: row_cases.RowCase) -> None:
    assert [str(each) for each in case.check()] == []


@pytest.mark.parametrize("case", BREAKING, ids=named)
def test_a_broken_rule_is_named_and_nothing_else(case: Case) -> None:
    *before, last = audit(case.write())
    if case.name in NEED_TWO_BATCHES:
        last = before.pop()
    assert not [str(violation) for found in before for violation in found]
    assert numbers(last) == {case.rule, *case.also}, [str(violation) for violation in last]


@pytest.mark.parametrize("case", KEEPING, ids=named)
def test_what_only_looks_like_it_is_not_flagged(case: Case) -> None:
    assert not [str(violation) for found in audit(case.write()) for violation in found]


def images(log: Log) -> list[ClusterImage]:
    """The image after each batch, as replay makes it, until it refuses one."""
    found = [EMPTY]
    for base_offset, records, _ in log.batches:
        found.append(replay_batch(found[-1], records, base_offset, EPOCH))
    return found


@pytest.mark.parametrize("case", KEEPING, ids=named)
def test_a_batch_between_two_images_is_judged_alike(case: Case) -> None:
    log = case.write()
    seen = images(log)
    for (base, records, evidence), before, after in zip(
        log.batches, seen[:-1], seen[1:], strict=True
    ):
        found = check_batch(
            before, records, after, base_offset=base, epoch=EPOCH, evidence=evidence
        )
        assert not list(map(str, found))
        assert not list(map(str, check_image(after)))


@pytest.mark.parametrize(
    "case",
    [case for case in BREAKING if case.name not in NEED_HISTORY | NEED_TWO_BATCHES],
    ids=named,
)
def test_a_bad_batch_between_two_images_is_judged_alike(case: Case) -> None:
    log = case.write()
    *earlier, (base, records, evidence) = log.batches
    before = EMPTY
    for base_offset, good, _ in earlier:
        before = replay_batch(before, good, base_offset, EPOCH)
    try:
        after = replay_batch(before, records, base, EPOCH)
    except ReplayError:
        after = None  # Replay refuses it, too; the rule says which one it is.
    found = check_batch(before, records, after, base_offset=base, epoch=EPOCH, evidence=evidence)
    assert numbers(found) == {case.rule, *case.also}


# Rules that an image shows by itself, without what led to it.
STATE = [1, 2, 3, 4, 11, 12, 13, 15, 16, 20, 25, 33, 35, 36, 44]
BY_CHANGE = {
    "a_last_member_that_stays_though_elr_would_know_it",
    "a_replica_on_an_unknown_broker",
    "recovering_without_an_election",
    "directories_for_too_few_replicas",
}


@pytest.mark.parametrize(
    "case",
    [case for case in BREAKING if case.rule in STATE and case.name not in BY_CHANGE],
    ids=named,
)
def test_an_image_shows_what_is_wrong_with_it(case: Case) -> None:
    last = images(case.write())[-1]
    assert case.rule in numbers(check_image(last))


def test_a_witness_of_an_aborted_transaction_is_compared() -> None:
    log = next(c for c in KEEPING if c.name == "an_aborted_transaction_leaves_nothing").write()
    seen = images(log)
    base, records, _ = log.batches[-2]
    aborted = (*records, log.batches[-1][1][0])
    after = replay_batch(seen[-3], aborted, base, EPOCH)
    assert not check_batch(seen[-3], aborted, after, base_offset=base, epoch=EPOCH)


def test_a_violation_reads_as_a_sentence() -> None:
    case = next(case for case in BREAKING if case.name == "a_leader_outside_the_isr")
    (violation,) = audit(case.write())[-1]
    assert str(violation) == (
        "A3 leader_is_in_isr (offset 10, orders-0): expected a leader of the ISR [1, 3], found 2"
    )
