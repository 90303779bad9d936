"""What a node notes for those who audit it later: small lines in a bounded file beside its logs.

`audit-notes.jsonl` in the data directory: one JSON object a line, in the order of what happened.
Every line has `kind`, `life` (which start of the node it was, counted from 0), `at` (which line of
that life) and `time_ms`; docs/AUDIT.md has the kinds. When the file is full it becomes
`audit-notes.1.jsonl`, in the place of the one before: so there are two at most.

Notes are a help and never the truth: nothing is synced, nothing waits for them, and whatever goes
wrong with them is forgotten. A crash of the machine may take the last ones along.
"""

import json
import os
import threading
from collections.abc import Iterator
from typing import Any, Final

from kraftpy.clock import Clock
from kraftpy.limits import AUDIT_NOTES_BYTES_MAX
from kraftpy.storage.file_layer import File, FileLayer

FILE_NAME: Final = "audit-notes.jsonl"
OLD_FILE_NAME: Final = "audit-notes.1.jsonl"
_TAIL_BYTES: Final = 4096


class AuditNotes:
    """The file, for one life of a node. May be used from any thread; never raises."""

    def __init__(self, files: FileLayer, directory: str, clock: Clock) -> None:
        self._files = files
        self._path = os.path.join(directory, FILE_NAME)
        self._old_path = os.path.join(directory, OLD_FILE_NAME)
        self._clock = clock
        self._lock = threading.Lock()
        self._file: File | None = None
        self._position = 0
        self._at = 0
        self.life = 0
        try:
            self._file = files.open(self._path)
            self._position = self._file.size()
            self.life = self._last_life() + 1
        except OSError:
            self._file = None  # Nothing is noted in this life.

    def note(self, kind: str, **fields: Any) -> None:
        """Write a line. Fields are numbers, texts, or lists of them."""
        with self._lock:
            if self._file is None:
                return
            line = {"kind": kind, "life": self.life, "at": self._at}
            line |= {"time_ms": self._clock.now_ms(), **fields}
            data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
            try:
                if self._position and self._position + len(data) > AUDIT_NOTES_BYTES_MAX:
                    self._rotate()
                assert self._file is not None
                self._file.write(self._position, [data])
            except OSError:
                self._give_up()
                return
            self._position += len(data)
            self._at += 1

    def close(self) -> None:
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _rotate(self) -> None:
        assert self._file is not None
        self._file.close()
        self._files.rename(self._path, self._old_path)
        self._file = self._files.open(self._path)
        self._position = 0

    def _last_life(self) -> int:
        """Of the last whole line there is; -1 if there is none."""
        assert self._file is not None
        start = max(0, self._position - _TAIL_BYTES)
        lines = list(parse_notes(self._file.read(start, self._position - start)))
        if not lines and self._files.exists(self._old_path):
            lines = list(parse_notes(self._files.read_whole(self._old_path)))
        elif self._position and self._file.read(self._position - 1, 1) != b"\n":
            self._file.write(self._position, [b"\n"])  # The line that a crash tore ends here.
            self._position += 1
        return max((int(line["life"]) for line in lines), default=-1)


def parse_notes(data: bytes) -> Iterator[dict[str, Any]]:
    """The lines that are whole; a torn one is passed over."""
    for raw in data.split(b"\n"):
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if isinstance(line, dict) and {"kind", "life", "at"} <= line.keys():
            yield line


def read_notes(files: FileLayer, directory: str) -> Iterator[dict[str, Any]]:
    """Every note of a data directory, oldest first; none where a node has noted nothing."""
    for name in (OLD_FILE_NAME, FILE_NAME):
        path = os.path.join(directory, name)
        if files.exists(path):
            yield from parse_notes(files.read_whole(path))
