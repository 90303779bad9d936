"""The process that has imported everything once, and forks the nodes of test clusters.

Importing takes most of a node's start, so it is done once: a node is a fork of this process, which
has one thread and runs nothing itself. What it owns are its children. It ends when whoever started
it closes the pipe of commands, which the end of that process does too, however it came: then all
children are killed, and the directories that it was told to remove are removed. If this process is
killed itself, the kernel kills its children (on Linux).

Commands are lines of JSON: `start` a member, send it a `signal`, `tell` it a line, `remove` a
directory at the end, or `keep` it after all. Events go the other way, from here and from the
members, each in one write that is short enough to stay in one piece: `started`, `ready`,
`stopped`, `continued`, `exited`.
"""

import ctypes
import gc
import json
import os
import selectors
import shutil
import signal
import sys
import traceback
from typing import Any, Final

from kraftpy.testing.members import run_member
from kraftpy.wire import apis
from kraftpy.wire.generated import reader_of, writer_of
from kraftpy.wire.headers import API_VERSIONS

_READ_BYTES: Final = 64 * 1024
_LINE_BYTES_MAX: Final = 4096  # POSIX lets no smaller write to a pipe be cut in two.
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_FAILED: Final = 70  # sysexits.h: an internal fault.
# What every node says and hears before its first client has been served, by API and version.
_FIRST_WORDS: Final = (
    *((API_VERSIONS, 0), (API_VERSIONS, 3), (apis.METADATA, 13), (apis.FETCH, 17)),
    *((apis.BROKER_REGISTRATION, 4), (apis.BROKER_HEARTBEAT, 2)),
    *((apis.CONTROLLER_REGISTRATION, 0), (apis.CREATE_TOPICS, 7)),
)


class NurseryProcess:
    """The members by their keys, and the two pipes."""

    def __init__(self, commands_fd: int, events_fd: int) -> None:
        self._commands_fd = commands_fd
        self._events_fd = events_fd
        self._pids: dict[str, int] = {}
        self._inputs: dict[str, int] = {}  # The write ends of what members are told.
        self._directories: list[str] = []
        self._buffer = b""
        self._child_ended, self._wakeup_fd = os.pipe()

    def run(self) -> None:
        """Until the pipe of commands is closed."""
        os.set_blocking(self._wakeup_fd, False)
        signal.set_wakeup_fd(self._wakeup_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._commands_fd, selectors.EVENT_READ)
                selector.register(self._child_ended, selectors.EVENT_READ)
                while self._serve(selector):
                    pass
        finally:
            self._end()

    def _serve(self, selector: selectors.BaseSelector) -> bool:
        for key, _ in selector.select():
            data = os.read(key.fd, _READ_BYTES)
            if key.fd == self._child_ended:
                self._look_after_children()
            elif not data:
                return False
            else:
                *lines, self._buffer = (self._buffer + data).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))
        return True

    def _obey(self, command: dict[str, Any]) -> None:
        match command:
            case {"start": spec}:
                self._start(spec)
            case {"signal": key, "number": number}:
                if key in self._pids:
                    os.kill(self._pids[key], number)
            case {"tell": key, "line": line}:
                os.write(self._inputs[key], line.encode() + b"\n")
            case {"remove": path}:
                self._directories.append(path)
            case {"keep": path}:
                self._directories.remove(path)
            case _:
                raise AssertionError(f"nobody sends {command}")

    # -- members ------------------------------------------------------------------------------

    def _start(self, spec: dict[str, Any]) -> None:
        key = spec["key"]
        told, tell = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be(spec, told, parent)
        os.close(told)
        self._pids[key], self._inputs[key] = pid, tell
        self._report({"key": key, "event": "started", "pid": pid})

    def _be(self, spec: dict[str, Any], told: int, parent: int) -> None:
        """In the child: never returns, whatever happens."""
        code = _FAILED
        try:
            _die_with(parent)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            mine = {told, self._events_fd}
            others = {self._commands_fd, self._child_ended, self._wakeup_fd}
            for fd in (others | set(self._inputs.values())) - mine:
                os.close(fd)
            _take_output(spec["output"])
            code = run_member(spec, told, self._report)
        finally:
            if sys.exc_info()[0] is not None:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _look_after_children(self) -> None:
        for key, pid in list(self._pids.items()):
            while True:
                found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
                if found == 0:
                    break
                if os.WIFSTOPPED(status):
                    self._report({"key": key, "event": "stopped"})
                elif os.WIFCONTINUED(status):
                    self._report({"key": key, "event": "continued"})
                else:
                    self._forget(key)
                    code = os.waitstatus_to_exitcode(status)
                    self._report({"key": key, "event": "exited", "code": code})
                    break

    def _forget(self, key: str) -> None:
        del self._pids[key]
        os.close(self._inputs.pop(key))

    def _report(self, event: dict[str, Any]) -> None:
        line = json.dumps(event).encode() + b"\n"
        assert len(line) <= _LINE_BYTES_MAX
        try:
            os.write(self._events_fd, line)
        except BrokenPipeError:
            return  # Whoever would read it is gone, and the end is near.

    def _end(self) -> None:
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            os.waitpid(pid, 0)
        for directory in self._directories:
            shutil.rmtree(directory, ignore_errors=True)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # It died before that was said.
        os._exit(_FAILED)


def _take_output(path: str) -> None:
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)


def _learn_first_words() -> None:
    """Messages are code that is made when it is first needed: once here, and not in each fork."""
    for api_key, version in _FIRST_WORDS:
        for entity in (apis.request_type(api_key, version), apis.response_type(api_key, version)):
            reader_of(entity)
            writer_of(entity)


def main(commands_fd: int, events_fd: int) -> None:
    """What the nursery's process runs."""
    _learn_first_words()
    gc.freeze()  # What was imported stays: looking at it again would copy its pages in every fork.
    NurseryProcess(commands_fd, events_fd).run()
