"""Starts the nursery, gives it orders and hears what became of them.

There is one nursery in a process, started when the first cluster is and gone with the process,
also when that is killed: see nursery_process.py. Every wait has a deadline.
"""

import atexit
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import kraftpy
from kraftpy.clock import SystemClock
from kraftpy.errors import KraftError

_PROCESS: Final = "kraftpy.testing.nursery_process"
_PROGRAM: Final = f"""
import sys
from kraftpy.lean_imports import lean_imports
with lean_imports():
    from {_PROCESS} import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""
_READ_BYTES: Final = 64 * 1024
_END_S: Final = 30.0


class ClusterFailed(KraftError):
    """A node did not do what it was told to, or not in time."""


@dataclass(slots=True)
class Member:
    """What is known of one forked process."""

    pid: int = -1  # Until the nursery has forked it.
    is_ready: bool = False
    is_paused: bool = False
    exit_code: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        return self.exit_code is None


class Nursery:
    """This process's end of the two pipes. Threads take turns."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._clock = SystemClock()
        self._lock = threading.RLock()
        self._buffer = b""
        commands, self._commands_fd = os.pipe()
        self._events_fd, events = os.pipe()
        root = os.path.dirname(os.path.dirname(os.path.abspath(kraftpy.__file__)))
        found = os.environ.get("PYTHONPATH")
        variables = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{found}" if found else root}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(commands), str(events)],
            pass_fds=(commands, events),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=variables,
            # Ctrl-C at the terminal is for whoever started it, which then ends this in order.
            start_new_session=True,
        )
        os.close(commands)
        os.close(events)
        os.set_blocking(self._events_fd, False)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    # -- orders -------------------------------------------------------------------------------

    def start(self, spec: dict[str, Any]) -> None:
        """Fork a member; `until` can wait for it."""
        with self._lock:
            self.members[spec["key"]] = Member()
            self._send({"start": spec})

    def signal(self, key: str, number: int) -> None:
        """Send a signal to a member, unless it has ended."""
        self._send({"signal": key, "number": int(number)})

    def tell(self, key: str, line: str) -> None:
        """A line for a member that listens."""
        self._send({"tell": key, "line": line})

    def remove_at_the_end(self, directory: str) -> None:
        """In case that this process ends before it removes the directory itself."""
        self._send({"remove": directory})

    def keep(self, directory: str) -> None:
        """It is gone already."""
        self._send({"keep": directory})

    def _send(self, command: dict[str, Any]) -> None:
        data = json.dumps(command).encode() + b"\n"
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._commands_fd, data) :]
            except BrokenPipeError:
                raise ClusterFailed("the process that runs the nodes is gone") from None

    # -- events -------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Take events until the condition holds; False after the timeout."""
        deadline_ms = self._clock.monotonic_ms() + int(timeout_s * 1000)
        while True:
            with self._lock:
                self._take_events()
                if condition():
                    return True
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return False
            select.select([self._events_fd], [], [], left_ms / 1000)

    def _take_events(self) -> None:
        while True:
            try:
                data = os.read(self._events_fd, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                raise ClusterFailed("the process that runs the nodes is gone")
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        member = self.members.get(event["key"])
        if member is None:
            return  # Nobody waits for it any more.
        match event:
            case {"event": "started", "pid": pid}:
                member.pid = pid
            case {"event": "ready", "facts": facts}:
                member.is_ready = True
                member.facts.update(facts)
            case {"event": "stopped"}:
                member.is_paused = True
            case {"event": "continued"}:
                member.is_paused = False
            case {"event": "exited", "code": code}:
                member.exit_code, member.is_ready = code, False
            case {"event": "told", "facts": facts}:
                member.facts.update(facts)

    # -- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Kill all members, and wait until the nursery has seen to it."""
        with self._lock:
            if self._commands_fd >= 0:
                self.forget_pipes()
                self._process.wait(_END_S)

    def forget_pipes(self) -> None:
        """Close this process's ends."""
        os.close(self._commands_fd)
        os.close(self._events_fd)
        self._commands_fd = self._events_fd = -1


class _Shared:
    """The one of this process."""

    nursery: Nursery | None = None
    of_the_parent: Nursery | None = None  # In a fork: not ours to end.
    lock = threading.Lock()


def shared_nursery() -> Nursery:
    """The nursery of this process; started if there is none."""
    with _Shared.lock:
        if _Shared.nursery is not None and not _Shared.nursery.is_alive:
            _Shared.nursery.close()
            _Shared.nursery = None
        if _Shared.nursery is None:
            _Shared.nursery = Nursery()
        return _Shared.nursery


def close_shared_nursery() -> None:
    """End it, with all that runs in it."""
    with _Shared.lock:
        if _Shared.nursery is not None:
            _Shared.nursery.close()
            _Shared.nursery = None


def _forked() -> None:
    """A fork of this process must not keep the nursery alive, nor order it about."""
    if _Shared.nursery is not None:
        _Shared.nursery.forget_pipes()
        _Shared.of_the_parent, _Shared.nursery = _Shared.nursery, None


atexit.register(close_shared_nursery)
os.register_at_fork(after_in_child=_forked)
