"""Rows of partitions on their way to another process: with the lists and ids that they mean.

Numbers of lists, topics and directories are a process's own. What always holds: rows that were
packed and unpacked mean the same, whatever the two processes had seen before.
"""

from typing import Any, NamedTuple

import numpy as np

from kraftpy.audit.kernel.columns import DIRECTORIES, LIST_COLUMNS, TOPIC, Array, compiled
from kraftpy.audit.kernel.interning import Interned, Uuids, intern_list, intern_uuid


class PackedLists(NamedTuple):
    values: Array  # i32
    starts: Array  # i32: one more than there are lists.


class Packed(NamedTuple):
    """Rows whose numbers point into the tables beside them."""

    rows: Array  # i32
    topics: Array  # i64, (high, low) each
    directories: Array  # i64, (high, low) each
    brokers: PackedLists  # Lists of broker ids,
    places: PackedLists  # and of directories.

    @property
    def size(self) -> int:
        return int(sum(each.nbytes for each in (self.rows, self.topics, self.directories)))


def pack(interned: Interned, rows: Array) -> Packed:
    """Rows of STATE_WIDTH columns; a topic or list below 0 stays as it is."""
    out = rows.copy()
    topics = _compacted(out, (TOPIC,), int(interned.topics.used[0]))
    lists = interned.lists
    brokers = _compacted(out, LIST_COLUMNS, int(lists.used[0]))
    places = _compacted(out, (DIRECTORIES,), int(lists.used[0]))
    packed_places = _lists_of(interned, places)
    used = np.unique(packed_places.values)
    packed_places = packed_places._replace(
        values=np.searchsorted(used, packed_places.values).astype(np.int32)
    )
    return Packed(
        out,
        _uuids_of(interned.topics, topics),
        _uuids_of(interned.directories, used),
        _lists_of(interned, brokers),
        packed_places,
    )


def _compacted(rows: Array, columns: tuple[int, ...], count: int) -> Array:
    """Number anew what these columns name; the old numbers, by the new ones."""
    used = np.zeros(count + 1, np.bool_)
    for column in columns:
        named = rows[:, column]
        used[named[named >= 0]] = True
    numbers = np.cumsum(used, dtype=np.int32) - 1
    for column in columns:
        named = rows[:, column]
        rows[:, column] = np.where(named >= 0, numbers[np.maximum(named, 0)], named)
    return np.flatnonzero(used)


def _uuids_of(uuids: Uuids, numbers: Array) -> Array:
    return np.stack((uuids.high[numbers], uuids.low[numbers]), axis=1)


def _lists_of(interned: Interned, numbers: Array) -> PackedLists:
    lists = interned.lists
    begins = lists.starts[numbers]
    sizes = lists.starts[numbers + 1] - begins
    starts = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(sizes, out=starts[1:])
    where = np.repeat(begins - starts[:-1], sizes) + np.arange(int(starts[-1]))
    return PackedLists(lists.values[where], starts)


# -- and back --------------------------------------------------------------------------------------


def unpack(interned: Interned, packed: Packed) -> Array:
    """The rows, with this process's own numbers."""
    count = len(packed.topics) + len(packed.directories)
    kinds = packed.brokers, packed.places
    interned.make_room(
        sum(len(each.starts) for each in kinds), sum(len(each.values) for each in kinds), count
    )
    topics = _intern_uuids(interned.topics, packed.topics)
    directories = _intern_uuids(interned.directories, packed.directories)
    brokers = _intern_lists(interned, packed.brokers)
    named = packed.places._replace(values=directories[packed.places.values])
    places = _intern_lists(interned, named)
    rows = packed.rows.copy()
    _renumber(rows, (TOPIC,), topics)
    _renumber(rows, LIST_COLUMNS, brokers)
    _renumber(rows, (DIRECTORIES,), places)
    return rows


def _renumber(rows: Array, columns: tuple[int, ...], numbers: Array) -> None:
    if not len(numbers):
        return
    for column in columns:
        named = rows[:, column]
        rows[:, column] = np.where(named >= 0, numbers[np.maximum(named, 0)], named)


def _intern_uuids(uuids: Uuids, pairs: Array) -> Array:
    numbers = np.zeros(len(pairs), np.int32)
    _all_uuids(uuids, pairs, numbers)
    return numbers


def _intern_lists(interned: Interned, packed: PackedLists) -> Array:
    numbers = np.zeros(len(packed.starts) - 1, np.int32)
    longest = int(np.diff(packed.starts).max(initial=0))
    values = packed.values.astype(np.int32)
    _all_lists(interned.lists, values, packed.starts, numbers, np.zeros(longest + 1, np.int32))
    return numbers


@compiled
def _all_uuids(uuids: Any, pairs: Any, numbers: Any) -> Any:
    for n in range(pairs.shape[0]):
        numbers[n] = intern_uuid(uuids, pairs[n, 0], pairs[n, 1])


@compiled
def _all_lists(lists: Any, values: Any, starts: Any, numbers: Any, scratch: Any) -> Any:
    for n in range(numbers.shape[0]):
        count = starts[n + 1] - starts[n]
        for i in range(count):
            scratch[i] = values[starts[n] + i]
        numbers[n] = intern_list(lists, scratch, count)
