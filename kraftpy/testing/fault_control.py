"""How another process reaches the faults of a test node: JSON lines over a Unix socket.

One line asks, one line answers `{"ok": true, ...}` or `{"ok": false, "why": ...}`. It runs in a
thread of its own, so that a node whose event loop waits for a slow disk can still be asked.

    {"do": "disk", "full": true, "io_error": false, "sync_delay_ms": 50, "syncs_to_fail": 1}
    {"do": "lose_power", "loss": "lost" | "prefix" | "torn", "seed": 7}      never answers
    {"do": "state"}
"""

import contextlib
import json
import os
import random
import socket
import threading
from dataclasses import asdict, fields
from typing import Any, Final

from kraftpy.testing.faulty_files import DiskFaults, FaultyFiles, Loss

_LINE_BYTES_MAX: Final = 4096
_FAULTS: Final = {each.name: each.type for each in fields(DiskFaults)}


class FaultControl:
    """Listens until the process ends."""

    def __init__(self, path: str, files: FaultyFiles) -> None:
        self._files = files
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(path)
        self._socket.listen(4)
        threading.Thread(target=self._serve, name="faults", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                line = connection.makefile("rb").readline(_LINE_BYTES_MAX)
                connection.sendall(json.dumps(self.answer(line)).encode() + b"\n")

    def answer(self, line: bytes) -> dict[str, Any]:
        """What is done for one line."""
        try:
            asked = json.loads(line)
            match asked.pop("do"):
                case "disk":
                    self._files.faults = DiskFaults(**_checked(asked))
                case "lose_power":
                    loss = Loss(asked.get("loss", "lost"))
                    self._files.lose_power(loss, random.Random(asked.get("seed", 0)))
                case "state":
                    pass
                case other:
                    raise ValueError(f"unknown: {other}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return {"ok": False, "why": repr(error)}
        faults = asdict(self._files.faults)
        return {"ok": True, "unsynced": self._files.unsynced_count, **faults}


def _checked(asked: dict[str, Any]) -> dict[str, Any]:
    for name, value in asked.items():
        if name not in _FAULTS:
            raise ValueError(f"no such fault: {name}")
        is_switch = name in ("full", "io_error")
        if isinstance(value, bool) != is_switch or not isinstance(value, bool | int | float):
            raise ValueError(f"{name}: {value!r}")
    return asked
