"""A coordinator's log: one partition of __consumer_offsets that this broker leads.

Records of one turn of the event loop are written as one batch: so many commits cost one write and
one round of replication. They are given to `replay` when they are committed, in the order of the
log, whether or not somebody still waits for them; whoever waits is told after that, or when the
time for it is over.

What always holds: nothing is replayed that is not committed; what was appended is either replayed
here, or this broker does not lead the partition any more.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups.records import LogRecord
from kraftpy.broker.hosted import Appended, HostedPartition
from kraftpy.broker.replica_manager import ReplicaManager
from kraftpy.broker.timers import Deadline, Timer
from kraftpy.broker.waiting import WaitingProduce
from kraftpy.clock import Clock
from kraftpy.storage.record_batch import Record, build_batch, iter_records, read_header
from kraftpy.wire.produce import ProduceResult

Done = Callable[[ErrorCode], None]
Ended = Callable[[], None]

_ROOM: Final = 0.9  # Of the largest batch: records are counted by their contents alone.
_RECORD_OVERHEAD: Final = 24
_RECORDS_AT_ONCE: Final = 2000
# In the log and behind the high watermark: the ISR shrank meanwhile, which does not undo it.
_COMMITTED: Final = (ErrorCode.none, ErrorCode.not_enough_replicas_after_append)


def _nothing() -> None:
    """Nobody needs to know."""


class _Entry:
    """Records that belong together, and who waits for them."""

    __slots__ = ("done", "ended", "records")

    def __init__(self, records: Sequence[LogRecord], done: Done, ended: Ended) -> None:
        self.records = records
        self.done: Done | None = done
        self.ended = ended

    def finish(self, error: ErrorCode) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(error)


class GroupLog:
    """In the event loop; nothing here waits."""

    def __init__(
        self,
        manager: ReplicaManager,
        hosted: HostedPartition,
        replay: Callable[[bytes, bytes | None], None],
        clock: Clock,
        timer: Timer,
        timeout_ms: int,
    ) -> None:
        self.hosted = hosted
        self._manager = manager
        self._replay = replay
        self._clock = clock
        self._timer = timer
        self._timeout_ms = timeout_ms
        self._unwritten: list[_Entry] = []
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    @property
    def is_led(self) -> bool:
        return self.hosted.replica.is_leader and not self._is_closed

    def append(self, records: Sequence[LogRecord], done: Done, ended: Ended = _nothing) -> None:
        """Write them with all that this turn brings.

        `done` is called once: when they are committed, will not be, or the time for it is over.
        `ended` is called once, too, and not before it is known what became of them.
        """
        if not self._unwritten:
            self._loop.call_soon(self._write)
        parts = list(_split(records, self._room()))
        if len(parts) > 1:
            done, ended = _once_all(done, len(parts)), _at_the_last(ended, len(parts))
        self._unwritten += (_Entry(part, done, ended) for part in parts)

    def _room(self) -> int:
        return int(self.hosted.accepts.batch_bytes_max * _ROOM)

    def close(self) -> None:
        """This broker leads it no more: what is not written never will be, from here."""
        self._is_closed = True
        unwritten, self._unwritten = self._unwritten, []
        for entry in unwritten:
            entry.ended()
            entry.finish(ErrorCode.not_leader_or_follower)

    # -- writing ------------------------------------------------------------------------------

    def _write(self) -> None:
        entries, self._unwritten = self._unwritten, []
        batch: list[_Entry] = []
        room = bytes_max = self._room()
        for entry in entries:
            size = sum(map(_size, entry.records))
            if batch and size > room:
                self._append(batch)
                batch, room = [], bytes_max
            batch.append(entry)
            room -= size
        if batch:
            self._append(batch)

    def _append(self, entries: list[_Entry]) -> None:
        now_ms = self._clock.now_ms()
        pairs = [pair for entry in entries for pair in entry.records]
        if not pairs:
            for entry in entries:
                entry.ended()
                entry.finish(ErrorCode.none)
            return
        records = [
            Record(offset=at, timestamp=now_ms, key=key, value=value)
            for at, (key, value) in enumerate(pairs)
        ]
        deadline: Deadline | None = None

        def settled(results: Sequence[ProduceResult]) -> None:
            if deadline is not None:
                deadline.cancel()
            self._settled(entries, ErrorCode(results[0].error_code))

        self._manager.append_own(self.hosted, build_batch(records), settled)
        if any(entry.done is not None for entry in entries):
            deadline = self._timer.after(self._timeout_ms, lambda: _time_out(entries))

    def _settled(self, entries: list[_Entry], error: ErrorCode) -> None:
        for entry in entries:
            if error in _COMMITTED and not self._is_closed:
                for key, value in entry.records:
                    self._replay(key, value)
            entry.ended()
            entry.finish(ErrorCode.none if error in _COMMITTED else error)

    # -- reading ------------------------------------------------------------------------------

    async def until_committed(self) -> bool:
        """Wait until all that is in the log now is committed; False if it is not ours any more.

        A new leader does not know yet what its predecessor had committed. Before it does, it must
        not speak of anything that it found: it may be undone.
        """
        committed: asyncio.Future[bool] = self._loop.create_future()

        def settled(results: Sequence[ProduceResult]) -> None:
            if not committed.done():
                committed.set_result(ErrorCode(results[0].error_code) in _COMMITTED)

        operation = WaitingProduce(1, settled)
        operation.appended(0, ProduceResult())
        replica, log = self.hosted.replica, self.hosted.log
        self.hosted.wait_for_commit(Appended(log.end_offset, replica.leader_epoch, operation, 0))
        self.hosted.settle_appends()
        return await committed

    async def read_all(self, bytes_at_once: int) -> AsyncIterator[Sequence[Record]]:
        """Every record from the start to the end of the log, in portions.

        Other work of the event loop is done in between, and compaction may be at work on the log:
        so each portion is looked up anew, by its offset.
        """
        log = self.hosted.log
        offset = log.start_offset
        while offset < log.end_offset and self.is_led:
            data = log.read(offset, bytes_at_once).read()
            if not data:
                return
            at = 0
            portion: list[Record] = []
            while at < len(data):
                header = read_header(data, at)
                if not header.is_control and header.record_count:
                    portion += iter_records(data, at)
                at += header.size
                offset = header.end_offset
                if len(portion) >= _RECORDS_AT_ONCE:
                    yield portion
                    portion = []
                    await asyncio.sleep(0)
            yield portion
            await asyncio.sleep(0)


def _size(record: LogRecord) -> int:
    return len(record.key) + len(record.value or b"") + _RECORD_OVERHEAD


def _split(records: Sequence[LogRecord], bytes_max: int) -> Iterator[Sequence[LogRecord]]:
    """Parts that fit into a batch each; one record that does not is a part by itself."""
    start, room = 0, bytes_max
    for at, record in enumerate(records):
        size = _size(record)
        if size > room and at > start:
            yield records[start:at]
            start, room = at, bytes_max
        room -= size
    yield records[start:]


def _once_all(done: Done, count: int) -> Done:
    """Called for each of so many parts, it calls `done` at the last one, with the first error."""
    errors: list[ErrorCode] = []

    def each_done(error: ErrorCode) -> None:
        errors.append(error)
        if len(errors) == count:
            done(next((each for each in errors if each is not ErrorCode.none), ErrorCode.none))

    return each_done


def _at_the_last(ended: Ended, count: int) -> Ended:
    left = iter(range(count - 1, -1, -1))

    def each_ended() -> None:
        if next(left) == 0:
            ended()

    return each_ended


def _time_out(entries: Sequence[_Entry]) -> None:
    for entry in entries:
        entry.finish(ErrorCode.request_timed_out)
