"""Notes are bounded, survive torn lines and restarts, and never hurt whoever takes them."""

import os
from pathlib import Path

import pytest

from kraftpy.clock import ManualClock
from kraftpy.limits import AUDIT_NOTES_BYTES_MAX
from kraftpy.storage.audit_notes import FILE_NAME, OLD_FILE_NAME, AuditNotes, read_notes
from kraftpy.storage.file_layer import OsFile, OsFiles


def take(directory: Path, *kinds: str) -> AuditNotes:
    notes = AuditNotes(OsFiles(), str(directory), ManualClock())
    for kind in kinds:
        notes.note(kind, offset=7)
    notes.close()
    return notes


def kinds(directory: Path) -> list[tuple[str, int, int]]:
    found = read_notes(OsFiles(), str(directory))
    return [(line["kind"], line["life"], line["at"]) for line in found]


def test_every_life_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    take(tmp_path, "a", "b")
    take(tmp_path, "c")
    assert kinds(tmp_path) == [("a", 0, 0), ("b", 0, 1), ("c", 1, 0)]


def test_a_torn_line_is_passed_over(tmp_path: Path) -> None:
    take(tmp_path, "a", "b")
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-5])
    take(tmp_path, "c")
    assert kinds(tmp_path) == [("a", 0, 0), ("c", 1, 0)]


def test_there_are_two_files_of_a_bounded_size(tmp_path: Path) -> None:
    notes = AuditNotes(OsFiles(), str(tmp_path), ManualClock())
    for number in range(5000):
        notes.note("a", number=number, text="x" * 1000)
    notes.close()
    sizes = [os.path.getsize(tmp_path / name) for name in (OLD_FILE_NAME, FILE_NAME)]
    assert all(0 < size <= AUDIT_NOTES_BYTES_MAX for size in sizes)
    assert sorted(os.listdir(tmp_path)) == sorted([OLD_FILE_NAME, FILE_NAME])
    numbers = [line["number"] for line in read_notes(OsFiles(), str(tmp_path))]
    assert numbers == list(range(numbers[0], 5000))


def test_a_life_is_counted_on_after_a_rotation(tmp_path: Path) -> None:
    take(tmp_path, "a")
    os.rename(tmp_path / FILE_NAME, tmp_path / OLD_FILE_NAME)
    assert take(tmp_path, "b").life == 1


def test_what_cannot_be_written_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    notes = AuditNotes(OsFiles(), str(tmp_path), ManualClock())
    monkeypatch.setattr(OsFile, "write", full)
    notes.note("a")
    monkeypatch.undo()
    notes.note("b")
    assert kinds(tmp_path) == []
    nowhere = AuditNotes(OsFiles(), str(tmp_path / "none"), ManualClock())
    nowhere.note("a")
    nowhere.close()
