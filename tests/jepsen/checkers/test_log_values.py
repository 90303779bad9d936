"""Values of a log: each anomaly is flagged where it is, and not where it only looks like one."""

from jepsen_like.checkers import log_values
from jepsen_like.verdict import CheckResult, Verdict

from tests.jepsen.checkers.script import Script


def judged(script: Script) -> CheckResult:
    return log_values.check(script.trace())


def clean(**options: object) -> Script:
    """Three records, sent by two and read by one."""
    script = Script(**options)  # type: ignore[arg-type]
    script.send(0, 10, 0)
    script.send(1, 11, 1)
    script.send(0, 12, 2)
    script.poll(2, 0, (0, 10), (1, 11), (2, 12))
    return script


def test_a_clean_history_is_valid() -> None:
    result = judged(clean())
    assert result.verdict is Verdict.VALID
    assert result.examined == 4


def test_two_values_at_one_offset() -> None:
    script = clean()
    script.send(1, 13, 1)
    script.poll(2, 0, (0, 10), (1, 11), (2, 12))
    result = judged(script)
    assert result.verdict is Verdict.INVALID
    assert result.counts["inconsistent-offsets"] == 1
    assert "hold 11, 13" in result.anomalies[0].message


def test_two_readers_that_disagree_about_an_offset() -> None:
    script = clean()
    script.send(1, 13, 3)
    script.poll(3, 0, (0, 10), (1, 13), (2, 12), (3, 13))
    assert judged(script).counts == {"inconsistent-offsets": 1, "duplicate": 1}


def test_a_duplicate_is_fatal_with_idempotence_only() -> None:
    for idempotent, verdict in ((True, Verdict.INVALID), (False, Verdict.VALID)):
        script = clean(idempotent=idempotent)
        script.poll(3, 0, (0, 10), (1, 11), (2, 12), (3, 11))
        result = judged(script)
        assert result.verdict is verdict
        assert result.counts == {"duplicate": 1}


def test_an_unknown_send_that_was_appended_twice_is_a_duplicate() -> None:
    script = clean(idempotent=True)
    script.send(1, 13, type_="info")
    script.poll(3, 0, (0, 10), (1, 11), (2, 12), (3, 13), (4, 13))
    assert judged(script).counts == {"duplicate": 1}


def test_a_write_that_a_poll_went_over_is_lost() -> None:
    script = Script()
    lost = script.send(0, 10, 0)
    script.send(0, 11, 1)
    passed = script.poll(2, 0, (1, 11))
    result = judged(script)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"lost-write": 1}
    assert result.anomalies[0].ops == (lost.i, passed.i)


def test_a_write_that_another_record_replaced_is_lost() -> None:
    script = Script()
    script.send(0, 10, 0)
    script.send(1, 11, 0)
    script.poll(2, 0, (0, 11))
    assert judged(script).counts == {"inconsistent-offsets": 1, "lost-write": 1}


def test_a_consumer_that_began_behind_a_write_did_not_go_over_it() -> None:
    script = Script()
    script.send(0, 10, 0)
    script.send(0, 11, 1)
    script.poll(2, 1, (1, 11))
    result = judged(script)
    assert result.verdict is Verdict.UNKNOWN  # Nobody looked: not lost, and not fine either.
    assert result.counts == {"unseen": 1}


def test_a_poll_that_came_before_the_write_says_nothing_about_it() -> None:
    script = Script()
    script.poll(2, 0)
    script.send(0, 10, 0)
    assert judged(script).verdict is Verdict.UNKNOWN
    script.poll(2, 0, (0, 10))
    assert judged(script).verdict is Verdict.VALID


def test_unseen_after_final_polls_to_the_end_is_fatal() -> None:
    script = clean()
    script.send(0, 13, 3)
    script.phase("final")
    script.poll(2, 0, (0, 10), (1, 11), (2, 12))
    assert judged(script).verdict is Verdict.UNKNOWN  # It was still reading.
    script.poll(2, 3)
    result = judged(script)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"unseen": 1}


def test_an_acknowledgement_without_an_offset_still_counts() -> None:
    script = clean()
    script.send(0, 13, -1)
    script.phase("final")
    script.poll(2, 3)
    assert judged(script).counts == {"unseen": 1}
    script.poll(2, 3, (3, 13))
    assert judged(script).verdict is Verdict.VALID


def test_a_failed_write_that_is_read() -> None:
    script = Script()
    script.send(0, 10, type_="fail")
    script.poll(2, 0, (0, 10))
    result = judged(script)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"g1a": 1}


def test_an_unknown_write_may_appear_or_not() -> None:
    script = clean()
    script.send(3, 13, type_="info")
    assert judged(script).verdict is Verdict.VALID
    script.poll(2, 3, (3, 13))
    assert judged(script).verdict is Verdict.VALID


def test_a_value_that_nobody_sent_there() -> None:
    script = clean()
    script.poll(3, 3, (3, "garbage"))
    assert judged(script).counts == {"phantom": 1}
    other = clean()
    other.send(0, 13, 0, k="t-1")
    other.poll(3, 0, (0, 13), k="t-1")
    other.poll(2, 3, (3, 13))  # Sent to t-1, read in t-0.
    assert judged(other).counts == {"phantom": 1}


def test_a_value_that_was_read_before_it_was_sent() -> None:
    script = clean()
    script.poll(3, 3, (3, 13))
    script.send(0, 13, 3)
    assert judged(script).counts == {"phantom": 1}


def test_records_whose_checksum_is_wrong_may_not_be_served() -> None:
    script = clean()
    script.invoke(3, "poll", k="t-0", off=1)
    script.end(3, "fail", err="CORRUPT: the checksum of the batch at offset 1 is wrong")
    result = judged(script)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"corrupt-read": 1}


def test_a_poll_that_was_refused_is_no_corrupt_read() -> None:
    script = clean()
    script.invoke(3, "poll", k="t-0", off=1)
    script.end(3, "fail", err="KAFKA_STORAGE_ERROR")
    assert judged(script).verdict is Verdict.VALID


def test_without_idempotence_a_loss_is_a_loss() -> None:
    """Duplicates are allowed then; what was acknowledged and is nowhere is not."""
    script = clean(idempotent=False)
    script.send(1, 13, 4)
    script.poll(3, 0, (0, 10), (1, 11), (2, 12), (3, 11), (5, 12))
    result = judged(script)
    assert result.verdict is Verdict.INVALID
    assert result.counts == {"duplicate": 2, "lost-write": 1}
