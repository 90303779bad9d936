"""Lists, directory ids and topic ids as small numbers, in tables that compiled loops fill.

Open addressing over powers of two. A compiled loop never grows a table: it asks for room first,
and its caller grows what is short (`Interned`). What always holds: equal contents, equal number;
numbers are given in the order of appearance and never change.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from kraftpy.audit.kernel.columns import Array, compiled, inlined
from kraftpy.metadata_log.records import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY

LIST_MAX: Final = 64  # Longer lists are left to the decoder that is not compiled.
# Of a list: it names something twice; it names what is no broker id that the tables hold.
TWICE: Final = 1
ODD: Final = 2
BROKERS_MAX: Final = 1 << 16
# Numbers of reserved directories.
MIGRATING: Final = 0
UNASSIGNED: Final = 1
LISTS_USED: Final = 0
VALUES_USED: Final = 1


class Lists(NamedTuple):
    values: Array  # i32: all lists, one behind the other.
    starts: Array  # i32: where each begins; the next one's start is its end.
    flags: Array  # u8
    table: Array  # i32: number + 1, 0 where nothing is.
    used: Array  # i64: lists, values.


class Uuids(NamedTuple):
    high: Array  # i64
    low: Array  # i64
    table: Array  # i32
    used: Array  # i64: how many.


@inlined
def _mixed(value: Any) -> Any:
    value = (value ^ (value >> 29)) * np.int64(-4658895280553007687)
    value = (value ^ (value >> 32)) * np.int64(-7723592293110705685)
    return value ^ (value >> 29)


@inlined
def _list_hash(values: Any, start: Any, count: Any) -> Any:
    found = np.int64(count)
    for i in range(count):
        found = found * np.int64(1000003) + np.int64(values[start + i])
    return _mixed(found)


@compiled
def _flags_of(values: Any, count: Any) -> Any:
    flags = 0
    for i in range(count):
        if values[i] < 0 or values[i] >= BROKERS_MAX:
            flags |= ODD
        for j in range(i):
            if values[i] == values[j]:
                flags |= TWICE
    return flags


@inlined
def intern_list(lists: Any, scratch: Any, count: Any) -> Any:
    """The number of the list in `scratch`; the caller has made sure that there is room."""
    mask = lists.table.shape[0] - 1
    slot = _list_hash(scratch, 0, count) & mask
    while True:
        number = lists.table[slot] - 1
        if number < 0:
            break
        start = lists.starts[number]
        if lists.starts[number + 1] - start == count:
            same = True
            for i in range(count):
                if lists.values[start + i] != scratch[i]:
                    same = False
                    break
            if same:
                return number
        slot = (slot + 1) & mask
    number = lists.used[LISTS_USED]
    start = lists.used[VALUES_USED]
    for i in range(count):
        lists.values[start + i] = scratch[i]
    lists.starts[number + 1] = start + count
    lists.flags[number] = _flags_of(scratch, count)
    lists.table[slot] = number + 1
    lists.used[LISTS_USED] = number + 1
    lists.used[VALUES_USED] = start + count
    return number


@inlined
def intern_uuid(uuids: Any, high: Any, low: Any) -> Any:
    mask = uuids.table.shape[0] - 1
    slot = _mixed(high ^ (low * np.int64(31))) & mask
    while True:
        number = uuids.table[slot] - 1
        if number < 0:
            break
        if uuids.high[number] == high and uuids.low[number] == low:
            return number
        slot = (slot + 1) & mask
    number = uuids.used[0]
    uuids.high[number] = high
    uuids.low[number] = low
    uuids.table[slot] = number + 1
    uuids.used[0] = number + 1
    return number


@compiled
def _relist(lists: Any) -> Any:
    mask = lists.table.shape[0] - 1
    for number in range(lists.used[LISTS_USED]):
        start = lists.starts[number]
        count = lists.starts[number + 1] - start
        slot = _list_hash(lists.values, start, count) & mask
        while lists.table[slot]:
            slot = (slot + 1) & mask
        lists.table[slot] = number + 1


@compiled
def _reuuid(uuids: Any) -> Any:
    mask = uuids.table.shape[0] - 1
    for number in range(uuids.used[0]):
        slot = _mixed(uuids.high[number] ^ (uuids.low[number] * np.int64(31))) & mask
        while uuids.table[slot]:
            slot = (slot + 1) & mask
        uuids.table[slot] = number + 1


def grown(array: Array, length: int) -> Array:
    """The same content in a longer array."""
    longer = np.zeros((length, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


class Interned:
    """The tables, and how they grow."""

    def __init__(self) -> None:
        self.lists = Lists(
            np.zeros(1 << 14, np.int32),
            np.zeros((1 << 12) + 1, np.int32),
            np.zeros(1 << 12, np.uint8),
            np.zeros(1 << 13, np.int32),
            np.zeros(2, np.int64),
        )
        self.directories = _new_uuids()
        self.topics = _new_uuids()
        self._scratch = np.zeros(1 << 16, np.int32)
        self.number(())
        for reserved in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY):
            self.directory(reserved)

    # -- room ---------------------------------------------------------------------------------

    def make_room(self, lists: int, values: int, uuids: int) -> None:
        """So that this many more of each fit, and the tables stay at most half full."""
        found = self.lists
        wanted = int(found.used[LISTS_USED]) + lists
        if wanted >= len(found.flags):
            size = _power_of_two(wanted + 1)
            found = found._replace(
                starts=grown(found.starts, size + 1),
                flags=grown(found.flags, size),
                table=np.zeros(2 * size, np.int32),
            )
            _relist(found)
        wanted = int(found.used[VALUES_USED]) + values
        if wanted > len(found.values):
            found = found._replace(values=grown(found.values, _power_of_two(wanted)))
        self.lists = found
        self.directories = _with_room(self.directories, uuids)
        self.topics = _with_room(self.topics, uuids)

    # -- one at a time, for what the compiled loops leave over ---------------------------------

    def number(self, values: tuple[int, ...]) -> int:
        self.make_room(1, len(values), 0)
        if len(values) > len(self._scratch):
            self._scratch = np.zeros(_power_of_two(len(values)), np.int32)
        self._scratch[: len(values)] = values
        return int(intern_list(self.lists, self._scratch, len(values)))

    def directory(self, uuid: bytes) -> int:
        self.make_room(0, 0, 1)
        return int(intern_uuid(self.directories, *halves(uuid)))

    def topic(self, uuid: bytes) -> int:
        self.make_room(0, 0, 1)
        return int(intern_uuid(self.topics, *halves(uuid)))

    def directory_list(self, uuids: tuple[bytes, ...]) -> int:
        return self.number(tuple(self.directory(each) for each in uuids))

    # -- and back -----------------------------------------------------------------------------

    def values(self, number: int) -> tuple[int, ...]:
        start, end = self.lists.starts[number : number + 2]
        return tuple(self.lists.values[start:end].tolist())

    @property
    def longest(self) -> int:
        """The length of the longest list."""
        return int(np.diff(self.lists.starts[: int(self.lists.used[LISTS_USED]) + 1]).max())

    def topic_id(self, number: int) -> bytes:
        return _uuid_bytes(self.topics, number)

    def directory_ids(self, number: int) -> tuple[bytes, ...]:
        return tuple(_uuid_bytes(self.directories, each) for each in self.values(number))


def halves(uuid: bytes) -> tuple[np.int64, np.int64]:
    high, low = np.frombuffer(uuid, ">i8").tolist()
    return np.int64(high), np.int64(low)


def _uuid_bytes(uuids: Uuids, number: int) -> bytes:
    pair = np.array([uuids.high[number], uuids.low[number]], ">i8")
    return pair.tobytes()


def _new_uuids() -> Uuids:
    return Uuids(
        np.zeros(1 << 10, np.int64),
        np.zeros(1 << 10, np.int64),
        np.zeros(1 << 11, np.int32),
        np.zeros(1, np.int64),
    )


def _with_room(uuids: Uuids, more: int) -> Uuids:
    wanted = int(uuids.used[0]) + more
    if wanted < len(uuids.high):
        return uuids
    size = _power_of_two(wanted + 1)
    uuids = Uuids(
        grown(uuids.high, size),
        grown(uuids.low, size),
        np.zeros(2 * size, np.int32),
        uuids.used,
    )
    _reuuid(uuids)
    return uuids


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 1).bit_length()
