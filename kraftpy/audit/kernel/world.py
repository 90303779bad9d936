"""What the replay remembers: partitions, topics, brokers, and the step that is under way.

Partitions and topics are those of one shard; brokers, settings and features are facts that Python
derives from the other records and tells as events (facts.py). A step is one batch, or all batches
of a metadata transaction. Compiled code never grows an array: `World` does, between batches.
"""

from typing import Final, NamedTuple

import numpy as np

from kraftpy.audit.kernel.columns import NONE, STATE_WIDTH, Array
from kraftpy.audit.kernel.interning import BROKERS_MAX, Interned, Lists, grown

# Events: what a record that is no partition's means for partitions.
TOPIC_LIVE: Final = 1  # topic
TOPIC_GONE: Final = 2  # topic
BROKER: Final = 3  # broker, bits (REGISTERED, ACTIVE), list of log directories
ELR_ON: Final = 4  # 0 or 1
SHRINK_BUMPS: Final = 5  # 0 or 1
MIN_ISR_ALL: Final = 6  # value
MIN_ISR: Final = 7  # topic, value or NONE
SCAN: Final = 8  # Look at all partitions when the step ends.
TURN: Final = 9  # broker, what (GONE, BACK, LEAVING)
LEADS_NOTHING: Final = 10  # broker
CLEAR_ELR: Final = 11  # topic, or NONE for all
ABORT: Final = 12
HOLDERS: Final = 13  # broker: whoever has it in ISR or ELR is for the rule book.
TOPIC_BACK: Final = 14  # topic: its removal was aborted.
EVENT_WIDTH: Final = 5  # index, kind, and up to three arguments.

# Marks of a batch.
ENDS_STEP: Final = 1
ABOUT_BROKERS: Final = 2
DIRTY: Final = 4  # Whatever the step touches is for the rule book.

REGISTERED: Final = 1
ACTIVE: Final = 2
MOVED: Final = 4  # Only in `was`: its log directories changed in the step.
GONE: Final = 0
BACK: Final = 1
LEAVING: Final = 2

# Places in `now`, the numbers that belong to the whole.
ELR_IS_ON: Final = 0
SHRINK_DOES_BUMP: Final = 1
MIN_ISR_DEFAULT: Final = 2
STEP_NUMBER: Final = 3
TOUCHED: Final = 4
BROKERS_CHANGED: Final = 5
TOPICS_TOUCHED: Final = 6
SCAN_DUE: Final = 7
IS_ABOUT_BROKERS: Final = 8
IS_DIRTY: Final = 9
ROWS: Final = 10
SUSPECTS: Final = 11
SHARD: Final = 12
SHARDS: Final = 13
LED_NOTHING: Final = 14  # A broker that must have led nothing, or NONE.
SCANS: Final = 15
NOTES_ORDER: Final = 16
IS_KAFKA: Final = 17
LONGEST: Final = 18  # Of all lists: what a record may add to them at most.
_NOW_WIDTH: Final = 19


class Partitions(NamedTuple):
    rows: Array  # i32, STATE_WIDTH each
    next: Array  # i32: the next partition of the same topic, NONE behind the last.
    table: Array  # i32
    touched: Array  # i32: rows that the step touched,
    before: Array  # i32, STATE_WIDTH each: and as they were.


class Topics(NamedTuple):
    live: Array  # u8
    mine: Array  # u8: 1 if it is of this shard, 2 if not, 0 if nobody asked yet.
    count: Array  # i32: partitions,
    highest: Array  # i32: and the highest id of one.
    min_isr: Array  # i32: NONE where the topic has no setting of its own.
    head: Array  # i32: its first partition.
    suspect: Array  # u8
    step: Array  # i32: the step that touched it.
    touched: Array  # i32


class Brokers(NamedTuple):
    """By broker id. The counts are of partitions that are not suspect."""

    bits: Array  # u8
    was: Array  # u8: before the step, if the step changed it.
    step: Array  # i32: the step that changed it.
    directories: Array  # i32: list of its log directories, 0 if none is known.
    leads: Array  # i32
    members: Array  # i32: in ISRs, but for
    alone: Array  # i32: being the last one of a partition without a leader.
    candidates: Array  # i32: could lead partitions that have no leader.
    left: Array  # i32: the step in which it left a partition,
    gained: Array  # i32: joined or got to lead one,
    gone: Array  # i32: was fenced or (un)registered.
    changed: Array  # i32: who changed in this step.


class Memory(NamedTuple):
    """All of it, as compiled code takes it."""

    partitions: Partitions
    topics: Topics
    brokers: Brokers
    lists: Lists
    now: Array  # i64


def _numbers(count: int) -> Array:
    return np.zeros(count, np.int32)


class World:
    """Owns the arrays and makes room in them."""

    def __init__(self, interned: Interned, shard: int = 0, shards: int = 1) -> None:
        self.interned = interned
        self.now = np.zeros(_NOW_WIDTH, np.int64)
        self.now[SHARD], self.now[SHARDS] = shard, shards
        self.now[STEP_NUMBER] = 1
        self.now[LED_NOTHING] = NONE
        self.partitions = Partitions(
            np.zeros((1 << 12, STATE_WIDTH), np.int32),
            _numbers(1 << 12),
            _numbers(1 << 13),
            _numbers(1 << 12),
            np.zeros((1 << 12, STATE_WIDTH), np.int32),
        )
        self.topics = Topics(
            np.zeros(1 << 10, np.uint8),
            np.zeros(1 << 10, np.uint8),
            _numbers(1 << 10),
            np.full(1 << 10, NONE, np.int32),
            np.full(1 << 10, NONE, np.int32),
            np.full(1 << 10, NONE, np.int32),
            np.zeros(1 << 10, np.uint8),
            _numbers(1 << 10),
            _numbers(1 << 10),
        )
        self.brokers = Brokers(
            np.zeros(BROKERS_MAX, np.uint8),
            np.zeros(BROKERS_MAX, np.uint8),
            *(_numbers(BROKERS_MAX) for _ in range(10)),
        )

    @property
    def memory(self) -> Memory:
        return Memory(self.partitions, self.topics, self.brokers, self.interned.lists, self.now)

    def make_room(self, records: int) -> bool:
        """For what that many records may add; whether the index must be made anew."""
        self._room_for_topics()
        self.now[LONGEST] = self.interned.longest
        self.interned.make_room(records, records * int(self.now[LONGEST]), 0)
        touched = int(self.now[TOUCHED]) + records
        if touched > len(self.partitions.touched):
            size = 2 * touched
            self.partitions = self.partitions._replace(
                touched=grown(self.partitions.touched, size),
                before=grown(self.partitions.before, size),
            )
        return self.make_room_for_rows(int(self.now[ROWS]) + records)

    def make_room_for_rows(self, rows: int) -> bool:
        """For that many partitions; whether the index must be made anew."""
        if rows <= len(self.partitions.rows):
            return False
        size = 1 << rows.bit_length()
        self.partitions = self.partitions._replace(
            rows=grown(self.partitions.rows, size),
            next=grown(self.partitions.next, size),
            table=_numbers(2 * size),
        )
        return True

    def _room_for_topics(self) -> None:
        """One place for each number that topics have, or may get while a batch is decoded."""
        found, size = self.topics, len(self.interned.topics.high)
        more = size - len(found.live)
        if more <= 0:
            return
        none = np.full(more, NONE, np.int32)
        self.topics = Topics(
            grown(found.live, size),
            grown(found.mine, size),
            grown(found.count, size),
            np.concatenate((found.highest, none)),
            np.concatenate((found.min_isr, none)),
            np.concatenate((found.head, none)),
            grown(found.suspect, size),
            grown(found.step, size),
            grown(found.touched, size),
        )
