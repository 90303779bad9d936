"""pysyncobj's core, held at its extension points, and never more than that.

What is replaced are names in the module `pysyncobj.syncobj`: the journal, the serializer and the
poller that it makes, its clock, its dice, its pickle. They are looked up for the thread that runs,
so several nodes may live in one process, and a simulation decides the time and the chance. One
private method is overridden (the gate before an election) and two private attributes are set (where
applying begins, when the next append_entries is due). So the version is pinned, and checked here.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

import pysyncobj.syncobj as stock
from pysyncobj.config import SERIALIZER_STATE, SyncObjConf
from pysyncobj.version import VERSION

from kraftpy.clock import Clock
from kraftpy.errors import FatalFault
from kraftpy.limits import APPEND_ENTRIES_BYTES_MAX
from kraftpy.quorum.raft.entries import NO_OP, Command
from kraftpy.quorum.raft.guard import GuardTransport, VoterNode
from kraftpy.quorum.raft.journal import RaftJournal

_PINNED_VERSION: Final = "0.3.17"
if VERSION != _PINNED_VERSION:
    raise ImportError(f"pysyncobj {_PINNED_VERSION} is needed, this is {VERSION}")

_NEVER: Final = 1 << 62


class Poller(Protocol):
    """What the core waits with at the end of each tick."""

    def poll(self, timeout_s: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the core of one node finds where it looks for the world."""

    journal: RaftJournal
    poller: Poller
    clock: Clock
    rng: random.Random


class _Current(threading.local):
    surroundings: Surroundings | None = None


_current: Final = _Current()


@contextmanager
def surrounded(surroundings: Surroundings) -> Iterator[None]:
    """Whoever runs the core does it in here."""
    before, _current.surroundings = _current.surroundings, surroundings
    try:
        yield
    finally:
        _current.surroundings = before


def _here() -> Surroundings:
    found = _current.surroundings
    if found is None:
        raise FatalFault("pysyncobj's core runs outside of `surrounded`")
    return found


class _Dice:
    """The name `random` in the core's module."""

    @staticmethod
    def random() -> float:
        return _here().rng.random()


class _NoPickle:
    """The name `pickle` in the core's module: no bytes from disk or network ever get here."""

    @staticmethod
    def loads(_data: object) -> NoReturn:
        raise FatalFault("the core wants to unpickle")

    @staticmethod
    def dumps(_value: object, _protocol: object = None) -> NoReturn:
        raise FatalFault("the core wants to pickle")


class _SnapshotHandOver:
    """The name `Serializer` in the core's module.

    Snapshots are written, sent and checked elsewhere (snapshots.py). All that is left here is to
    tell the core, once the journal has installed one, which entry the log goes on after.
    """

    def __init__(self, journal: RaftJournal) -> None:
        self._journal = journal

    def checkSerializing(self) -> tuple[Any, None]:  # noqa: N802
        return SERIALIZER_STATE.NOT_SERIALIZING, None

    def serialize(self, _data: object, _id: int) -> None:
        self._journal.fail(FatalFault("the core wants to write a snapshot"))

    def getTransmissionData(self, _node: object) -> tuple[bytes, bool, bool]:  # noqa: N802
        return b"", True, True  # The guard drops it and sends the snapshot its own way.

    def setTransmissionData(self, _data: object) -> bool:  # noqa: N802
        return self._journal.fault is None

    def deserialize(self) -> tuple[None, object, object, list[object]]:
        index, term = self._journal.last()
        nothing = Command(NO_OP, 1)
        return None, (nothing, index, term), (nothing, index - 1, term), []

    def cancelTransmisstion(self, _node: object) -> None:  # noqa: N802
        """The spelling is the core's."""


stock.createJournal = lambda _path: _here().journal
stock.Serializer = lambda *_arguments: _SnapshotHandOver(_here().journal)
stock.createPoller = lambda _kind: _here().poller
stock.monotonicTime = lambda: _here().clock.monotonic_ms() / 1000
stock.random = _Dice
stock.pickle = _NoPickle
stock.PIPE_NOTIFIER_ENABLED = False


def core_settings(*, election_timeout_ms: int, heartbeat_ms: int, check_quorum_ms: int) -> Any:
    """The core's configuration. What it could do on its own and must not is turned off."""
    return SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=True,  # One message for all that a tick has added.
        appendEntriesBatchSizeBytes=APPEND_ENTRIES_BYTES_MAX,  # (d): no entry is ever chunked.
        appendEntriesPeriod=heartbeat_ms / 1000,
        raftMinTimeout=election_timeout_ms / 1000,
        raftMaxTimeout=2 * election_timeout_ms / 1000,
        leaderFallbackTimeout=check_quorum_ms / 1000,  # (e): a leader alone steps down.
        connectionTimeout=_NEVER,
        dynamicMembershipChange=False,  # (n, u)
        logCompactionMinEntries=_NEVER,
        logCompactionMinTime=_NEVER,
        commandsWaitLeader=False,
        fullDumpFile=None,
        journalFile=None,
    )


class RaftCore(stock.SyncObj):  # type: ignore[misc]
    """One node's core."""

    def __init__(
        self, self_node: VoterNode, others: list[VoterNode], conf: Any, guard: GuardTransport
    ) -> None:
        self._guard = guard
        guard.core = self
        super().__init__(self_node, others, conf, transport=guard)
        # What a snapshot stands for counts as applied.
        self._SyncObj__raftLastApplied = _here().journal.commit_index
        self.addOnTickCallback(guard.flush)
        if not others:
            # Nobody else can be elected or lead already, so there is nobody to wait for.
            self._SyncObj__raftElectionDeadline = 0.0

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        return self._guard.may_stand()

    def send_append_entries_now(self) -> None:
        """Let the next tick send what is new: (h) a commit must not wait for the heartbeat."""
        self._SyncObj__newAppendEntriesTime = 0
