"""How partition records and partitions look in numbers: one row of integers, a cache line each.

Lists (replicas, ISR, ...) are interned: equal lists have equal numbers, 0 is the empty one, NONE
stands for "unchanged". So do topics and directories. A record's row has the first columns, a
partition's row all of them. The layout of each record version is read off the dataclasses.
"""

from dataclasses import fields
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numba import njit

from kraftpy.metadata_log.records import PartitionChangeRecord, PartitionRecord

F = TypeVar("F")
Array: TypeAlias = Any  # numpy's, of a type that the name beside it tells.


class _Compile(Protocol):
    def __call__(self, function: F, /) -> F: ...


def _compiler(**more: bool) -> _Compile:
    options: dict[str, Any] = {"cache": True, "_nrt": False, **more}
    compiler: _Compile = njit(**options)
    return compiler


# How loops over records are compiled. They allocate nothing, so that no array needs its references
# counted: with tuples of arrays going from function to function that took nine tenths of the time.
compiled: Final = _compiler()
# What every record goes through is put into its callers: a call hands over its tuples of arrays
# word by word, hundreds of them, which took half of the replay's and most of the decoder's time.
inlined: Final = _compiler(forceinline=True)

NONE: Final = -1
PARTITION: Final = 0
TOPIC: Final = 1
REPLICAS: Final = 2
ISR: Final = 3
REMOVING: Final = 4
ADDING: Final = 5
ELR: Final = 6
LAST_KNOWN_ELR: Final = 7
DIRECTORIES: Final = 8
LEADER: Final = 9
RECOVERY: Final = 10
LEADER_EPOCH: Final = 11
PARTITION_EPOCH: Final = 12
RECORD_WIDTH: Final = 13
# Only of a partition: whether it is there, whether the rule book must judge it, the step that last
# touched it.
EXISTS: Final = 13
SUSPECT: Final = 14
STEP: Final = 15
STATE_WIDTH: Final = 16

_COLUMN_OF: Final = {
    "partition_id": PARTITION,
    "topic_id": TOPIC,
    "replicas": REPLICAS,
    "isr": ISR,
    "removing_replicas": REMOVING,
    "adding_replicas": ADDING,
    "eligible_leader_replicas": ELR,
    "last_known_elr": LAST_KNOWN_ELR,
    "directories": DIRECTORIES,
    "leader": LEADER,
    "leader_recovery_state": RECOVERY,
    "leader_epoch": LEADER_EPOCH,
    "partition_epoch": PARTITION_EPOCH,
}
LIST_COLUMNS: Final = (REPLICAS, ISR, REMOVING, ADDING, ELR, LAST_KNOWN_ELR)

# Kinds of records, in `Columns.kind`: the API key, or one of these.
CREATED: Final = PartitionRecord.API_KEY
CHANGED: Final = PartitionChangeRecord.API_KEY
SLOW: Final = 254  # The compiled decoder leaves it to the other one.
BAD: Final = 255  # No decoder understands it.


class Columns(NamedTuple):
    """The records of some batches."""

    kind: Array  # u8
    batch: Array  # i32: the batch it is in.
    at: Array  # i64: where its value begins in the bytes.
    size: Array  # i32: of the value.
    rows: Array  # i32, RECORD_WIDTH each; for partition records only.


class Batches(NamedTuple):
    """The batches of some bytes."""

    at: Array  # i64: where the records begin.
    end: Array  # i64: where they end.
    base_offset: Array  # i64
    epoch: Array  # i32
    count: Array  # i32
    attributes: Array  # i16
    timestamp: Array  # i64
    first: Array  # i64: the number of its first record in Columns; one more than batches.


def new_columns(records: int) -> Columns:
    return Columns(
        np.zeros(records, np.uint8),
        np.zeros(records, np.int32),
        np.zeros(records, np.int64),
        np.zeros(records, np.int32),
        np.zeros((records, RECORD_WIDTH), np.int32),
    )


def _layouts() -> Array:
    """[type, version, field] -> its column, NONE behind the last one."""
    table = np.full((8, 4, 16), NONE, np.int32)
    for cls in (PartitionRecord, PartitionChangeRecord):
        for version in range(cls.MAX_VERSION + 1):
            names = [f.name for f in fields(cls) if f.metadata.get("since", 0) <= version]
            for position, name in enumerate(names):
                table[cls.API_KEY, version, position] = _COLUMN_OF[name]
    return table


def _defaults() -> Array:
    """[type] -> the row of a record that says nothing but its key."""
    table = np.zeros((8, RECORD_WIDTH), np.int32)
    for cls in (PartitionRecord, PartitionChangeRecord):
        for f in fields(cls):
            column = _COLUMN_OF[f.name]
            if column in (*LIST_COLUMNS, DIRECTORIES):
                table[cls.API_KEY, column] = 0 if cls is PartitionRecord else NONE
            elif isinstance(f.default, int):
                table[cls.API_KEY, column] = f.default
    return table


@inlined
def copy_row(target: Any, source: Any, count: Any) -> Any:
    """The first columns; an assignment of slices would allocate."""
    for i in range(count):
        target[i] = source[i]


LAYOUTS: Final = _layouts()
DEFAULTS: Final = _defaults()
