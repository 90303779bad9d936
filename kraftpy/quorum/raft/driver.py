"""The thread that runs an engine, and the only thing of Raft that a controller holds.

A thread and not a task: an fsync blocks, and an event loop must not. The engine is ticked until
`close`, or until something goes wrong; then its listener hears `failed`, exactly once, whatever it
was, and the engine is closed. Nothing is tried again: a node that has failed must be started anew.
"""

import sys
import threading
from concurrent.futures import Future, TimeoutError
from typing import Final

from kraftpy.errors import DiskFault, FatalFault, KraftError
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.snapshot_file import SnapshotId
from kraftpy.quorum.consensus import CommittedBatch, Listener, QuorumState
from kraftpy.quorum.raft.engine import RaftEngine, World
from kraftpy.storage.file_layer import Buffer

log = get_logger(__name__)

# Elections and heartbeats are looked at so often; messages and proposals end the wait.
_WAIT_S: Final = 0.02
# A thread that computes gives way after this time. With the default of 5 ms, one busy thread in the
# process makes a commit take 7 to 20 ms (raft.md 3.5). It holds for the whole process.
_SWITCH_INTERVAL_S: Final = 0.0005


class _Reporting:
    """The listener, told of at most one failure."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.fault: FatalFault | None = None

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        self._listener.leadership_changed(leader_id, epoch)

    def committed(self, batches: list[CommittedBatch]) -> None:
        self._listener.committed(batches)

    def snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        self._listener.snapshot_installed(snapshot_id)

    def failed(self, fault: FatalFault) -> None:
        if self.fault is None:
            self.fault = fault
            self._listener.failed(fault)


class RaftDriver:
    """Consensus with a thread of its own."""

    def __init__(
        self,
        engine: RaftEngine,
        world: World,
        *,
        resign_timeout_s: float = 2.0,
        stop_timeout_s: float = 10.0,
    ) -> None:
        self.engine = engine
        self._world = world
        self._resign_timeout_s = resign_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._reporting: _Reporting | None = None
        self._is_engine_closed = False
        self._stopping = threading.Event()
        # A process whose main thread has ended must not be kept up by this one.
        self._thread = threading.Thread(target=self._run, name="raft", daemon=True)

    # -- Consensus: from any thread -----------------------------------------------------------

    def start(self, listener: Listener) -> None:
        self._reporting = _Reporting(listener)
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
        self.engine.start(self._reporting)
        self._thread.start()

    def propose(self, batch: Buffer, *, epoch: int, base_offset: int) -> Future[int]:
        return self.engine.propose(batch, epoch=epoch, base_offset=base_offset)

    def read_barrier(self, *, epoch: int) -> Future[int]:
        return self.engine.read_barrier(epoch=epoch)

    def resign(self) -> Future[None]:
        return self.engine.resign()

    def offer_snapshot(self, image: ClusterImage) -> None:
        self.engine.offer_snapshot(image)

    def state(self) -> QuorumState:
        return self.engine.state()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Hand leadership over if that is possible in time, then stop.

        FatalFault if the thread does not end: it is stuck, most likely in an fsync, and what it
        was doing may or may not be done.
        """
        if self._thread is threading.current_thread():
            self._stopping.set()  # A listener calls; the thread ends when it returns.
            return
        if self._thread.ident is None:  # It was never started.
            self._close_engine()
            return
        self._resign()
        self._stopping.set()
        self._world.wake()
        self._thread.join(self._stop_timeout_s)
        if self._thread.is_alive():
            raise FatalFault(f"the Raft thread did not stop in {self._stop_timeout_s} s")

    def _resign(self) -> None:
        resigned = self.engine.resign()
        try:
            resigned.result(self._resign_timeout_s)
        except TimeoutError:
            log.warning("resign_timed_out", node=self.engine.node_id, epoch=self.engine.epoch)
        except KraftError:
            pass  # It has stopped already, and leads nobody.

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.engine.tick(_WAIT_S)
        except Exception as error:  # Nobody else would ever hear of it.
            self._fail(error)
        self._close_engine()

    def _fail(self, error: Exception) -> None:
        fault = _as_fault(error)
        fault.__cause__ = fault.__cause__ or (None if fault is error else error)
        # The engine stores nothing more, and says so to whoever asks it.
        fault = self.engine.journal.fail(fault)
        # A fault that was foreseen says all in one line; for a bug one wants to know where.
        trace = None if isinstance(error, FatalFault | OSError) else error
        log.critical("raft_failed", node=self.engine.node_id, why=str(fault), exc_info=trace)
        if self._reporting is not None:
            self._reporting.failed(fault)

    def _close_engine(self) -> None:
        if self._is_engine_closed:
            return
        self._is_engine_closed = True
        failed_before = self.engine.journal.fault is not None
        try:
            self.engine.close()
        except (KraftError, OSError) as error:
            # Closing writes too. After a fault it may fail again; else this is the fault.
            if not failed_before:
                self._fail(error)


def _as_fault(error: Exception) -> FatalFault:
    """Peers' sockets are looked after elsewhere: what is an OSError here comes from the disk."""
    if isinstance(error, FatalFault):
        return error
    if isinstance(error, OSError):
        return DiskFault(f"the disk fails: {error}")
    return FatalFault(f"unexpected: {error!r}")
