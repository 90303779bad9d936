"""A broker notes the partitions that it leads, those that moved, a few at a time."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kraftpy.broker.audit_notes import BrokerNotes
from kraftpy.clock import ManualClock
from kraftpy.limits import AUDIT_SAMPLES_MAX
from kraftpy.metadata_log.image_notes import due_at
from kraftpy.storage.audit_notes import AuditNotes, read_notes
from kraftpy.storage.file_layer import OsFiles


def partition(index: int, high_watermark: int = 5, is_leader: bool = True) -> Any:
    replica = SimpleNamespace(
        is_leader=is_leader,
        leader_epoch=2,
        partition_epoch=3,
        epoch_start_offset=0,
        high_watermark=high_watermark,
        isr=(1, 2),
        effective_min_isr=2,
    )
    log = SimpleNamespace(end_offset=9)
    return SimpleNamespace(
        topic="t", topic_id=b"T" * 16, index=index, replica=replica, log=log, acked=(4, 3)
    )


def broker_notes(directory: Path) -> BrokerNotes:
    return BrokerNotes(AuditNotes(OsFiles(), str(directory), ManualClock()), 101, ManualClock())


def test_only_what_is_led_and_moved_is_noted(tmp_path: Path) -> None:
    notes = broker_notes(tmp_path)
    led, followed = partition(0), partition(1, is_leader=False)
    (line,) = notes.sample([led, followed])
    assert (line["partition"], line["high_watermark"], line["isr"]) == (0, 5, 2)
    assert notes.sample([led, followed]) == []
    led.replica.high_watermark = 6
    assert [each["high_watermark"] for each in notes.sample([led])] == [6]


def test_everyone_has_a_turn(tmp_path: Path) -> None:
    notes = broker_notes(tmp_path)
    many = [partition(index) for index in range(3 * AUDIT_SAMPLES_MAX)]
    seen = []
    for high_watermark in (6, 7, 8):
        for each in many:
            each.replica.high_watermark = high_watermark
        seen += [line["partition"] for line in notes.sample(many)]
    assert sorted(seen) == list(range(3 * AUDIT_SAMPLES_MAX))


def test_a_start_is_noted(tmp_path: Path) -> None:
    broker_notes(tmp_path)
    (line,) = read_notes(OsFiles(), str(tmp_path))
    assert (line["kind"], line["node"], line["role"]) == ("start", 101, "broker")


def test_digests_are_due_where_every_node_takes_them() -> None:
    assert due_at(0, [40, 90, 99]) is None
    assert due_at(0, [40, 100, 130]) == 1
    assert due_at(95, [99, 130, 260, 270]) == 2
    assert due_at(100, [150]) is None
