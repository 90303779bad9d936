"""Replays columns onto a World, step by step, and marks what the rule book must judge. Compiled.

What always holds: a partition that is not suspect broke no rule so far, counts among those of its
brokers, and is as lenient replay (rules/view.py) would have it. A suspect one is still replayed,
but no longer looked at: the rule book will see all of its records.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from kraftpy.audit.kernel import world as w
from kraftpy.audit.kernel.columns import (
    ADDING,
    CHANGED,
    CREATED,
    DIRECTORIES,
    ELR,
    EXISTS,
    ISR,
    LAST_KNOWN_ELR,
    LEADER,
    LEADER_EPOCH,
    NONE,
    PARTITION,
    PARTITION_EPOCH,
    RECOVERY,
    REMOVING,
    REPLICAS,
    STATE_WIDTH,
    STEP,
    SUSPECT,
    TOPIC,
)
from kraftpy.audit.kernel.counting import count_in, mark
from kraftpy.audit.kernel.interning import BROKERS_MAX, MIGRATING, UNASSIGNED, intern_list
from kraftpy.audit.kernel.lists import contains, length
from kraftpy.audit.kernel.screens import (
    creation_is_odd,
    election_is_odd,
    elr_is_odd,
    epochs_are_odd,
    growth_is_odd,
    is_same,
    move_is_odd,
    state_is_odd,
)
from kraftpy.audit.kernel.settling import settle

_NO_CHANGE: Final = -2
_NO_LEADER: Final = -1


@njit(cache=True)
def _hashed(topic: Any, partition: Any) -> Any:
    value = (np.int64(topic) << 32) ^ np.int64(partition)
    value = (value ^ (value >> 29)) * np.int64(-4658895280553007687)
    return value ^ (value >> 32)


@njit(cache=True)
def find(memory: Any, topic: Any, partition: Any) -> Any:
    """The row of a partition, made if there is none."""
    p = memory.partitions
    mask = p.table.shape[0] - 1
    slot = _hashed(topic, partition) & mask
    while p.table[slot]:
        r = p.table[slot] - 1
        if p.rows[r, PARTITION] == partition and p.rows[r, TOPIC] == topic:
            return r
        slot = (slot + 1) & mask
    r = memory.now[w.ROWS]
    memory.now[w.ROWS] = r + 1
    p.table[slot] = r + 1
    p.rows[r, :] = 0
    p.rows[r, PARTITION] = partition
    p.rows[r, TOPIC] = topic
    p.next[r] = memory.topics.head[topic]
    memory.topics.head[topic] = r
    return r


@njit(cache=True)
def reindex(memory: Any) -> Any:
    """Fill an empty table from the rows."""
    p = memory.partitions
    mask = p.table.shape[0] - 1
    for r in range(memory.now[w.ROWS]):
        slot = _hashed(p.rows[r, TOPIC], p.rows[r, PARTITION]) & mask
        while p.table[slot]:
            slot = (slot + 1) & mask
        p.table[slot] = r + 1


@njit(cache=True)
def touch(memory: Any, r: Any) -> Any:
    """Remember a row as it was before the step."""
    p, now = memory.partitions, memory.now
    if p.rows[r, STEP] != now[w.STEP_NUMBER]:
        n = now[w.TOUCHED]
        p.touched[n] = r
        p.before[n, :] = p.rows[r, :]
        now[w.TOUCHED] = n + 1
        p.rows[r, STEP] = now[w.STEP_NUMBER]


@njit(cache=True)
def touch_topic(memory: Any, topic: Any) -> Any:
    t, now = memory.topics, memory.now
    if t.step[topic] != now[w.STEP_NUMBER]:
        t.step[topic] = now[w.STEP_NUMBER]
        t.touched[now[w.TOPICS_TOUCHED]] = topic
        now[w.TOPICS_TOUCHED] += 1


@njit(cache=True)
def is_mine(memory: Any, uuids: Any, topic: Any) -> Any:
    """Whether this shard replays the topic: by its id, so that every shard agrees."""
    t = memory.topics
    if t.mine[topic] == 0:
        value = (uuids.high[topic] ^ uuids.low[topic]) * np.int64(-7723592293110705685)
        shard = ((value >> 33) & 0x7FFFFFFF) % memory.now[w.SHARDS]
        t.mine[topic] = 1 if shard == memory.now[w.SHARD] else 2
    return t.mine[topic] == 1


# -- records ---------------------------------------------------------------------------------------


@njit(cache=True)
def create(memory: Any, uuids: Any, record: Any, scratch: Any) -> Any:
    t, topic = memory.topics, record[TOPIC]
    if not is_mine(memory, uuids, topic):
        return
    r = find(memory, topic, record[PARTITION])
    row = memory.partitions.rows[r]
    if not t.live[topic]:
        mark(memory, r)
        return
    touch(memory, r)
    touch_topic(memory, topic)
    if row[EXISTS]:
        mark(memory, r)
    else:
        t.count[topic] += 1
        t.highest[topic] = max(t.highest[topic], record[PARTITION])
    row[: LEADER_EPOCH + 2] = record[: LEADER_EPOCH + 2]
    row[EXISTS] = 1
    if row[DIRECTORIES] == 0:
        count = length(memory.lists, row[REPLICAS])
        scratch[:count] = MIGRATING
        row[DIRECTORIES] = intern_list(memory.lists, scratch, count)
    if row[SUSPECT]:
        return
    if (
        creation_is_odd(memory.lists, record)
        or state_is_odd(memory.lists, row, memory.now[w.ELR_IS_ON])
        or not are_registered(memory, row[REPLICAS], 0)
    ):
        row[SUSPECT] = 1
        memory.now[w.SUSPECTS] += 1
    else:
        count_in(memory, row, 1)


@njit(cache=True)
def are_registered(memory: Any, replicas: Any, known: Any) -> Any:
    """A1: those that were no replicas before."""
    lists = memory.lists
    for i in range(lists.starts[replicas], lists.starts[replicas + 1]):
        value = lists.values[i]
        if known and contains(lists, known, value):
            continue
        if value < 0 or value >= BROKERS_MAX or not memory.brokers.bits[value] & w.REGISTERED:
            return False
    return True


@njit(cache=True)
def change(memory: Any, uuids: Any, record: Any, scratch: Any, old: Any) -> Any:
    t, topic = memory.topics, record[TOPIC]
    if not is_mine(memory, uuids, topic):
        return
    r = find(memory, topic, record[PARTITION])
    row = memory.partitions.rows[r]
    if not t.live[topic] or not row[EXISTS]:
        mark(memory, r)
        return
    touch(memory, r)
    if not row[SUSPECT]:
        count_in(memory, row, -1)
    old[:] = row
    apply_change(memory.lists, row, record, scratch)
    if row[SUSPECT]:
        return
    if change_is_odd(memory, old, record, row):
        row[SUSPECT] = 1
        memory.now[w.SUSPECTS] += 1
    else:
        count_in(memory, row, 1)


@njit(cache=True)
def apply_change(lists: Any, row: Any, record: Any, scratch: Any) -> Any:
    """As changed_partition (rules/view.py) has it."""
    replicas = row[REPLICAS]
    for column in (REPLICAS, ISR, REMOVING, ADDING, ELR, LAST_KNOWN_ELR):
        if record[column] != NONE:
            row[column] = record[column]
    if record[DIRECTORIES] > 0:
        row[DIRECTORIES] = record[DIRECTORIES]
    elif record[REPLICAS] != NONE:
        row[DIRECTORIES] = moved_directories(lists, replicas, row, scratch)
    if record[LEADER] != _NO_CHANGE:
        row[LEADER] = record[LEADER]
        row[LEADER_EPOCH] += 1
    if record[RECOVERY] != NONE:
        row[RECOVERY] = record[RECOVERY]
    row[PARTITION_EPOCH] += 1


@njit(cache=True)
def moved_directories(lists: Any, replicas: Any, row: Any, scratch: Any) -> Any:
    """Who stays keeps its directory, who is new has none yet."""
    first = lists.starts[row[REPLICAS]]
    count = length(lists, row[REPLICAS])
    known = min(length(lists, replicas), length(lists, row[DIRECTORIES]))
    for i in range(count):
        scratch[i] = UNASSIGNED
        for j in range(known):
            if lists.values[lists.starts[replicas] + j] == lists.values[first + i]:
                scratch[i] = lists.values[lists.starts[row[DIRECTORIES]] + j]
    return intern_list(lists, scratch, count)


@njit(cache=True)
def change_is_odd(memory: Any, old: Any, record: Any, new: Any) -> Any:
    lists, now = memory.lists, memory.now
    elr_on = now[w.ELR_IS_ON]
    if (
        now[w.IS_DIRTY]
        or epochs_are_odd(lists, old, record, new, now[w.SHRINK_DOES_BUMP])
        or is_same(old, new)
        or state_is_odd(lists, new, elr_on)
        or election_is_odd(lists, old, new, elr_on)
        or growth_is_odd(lists, old, new, now[w.IS_ABOUT_BROKERS], now[w.IS_KAFKA])
        or move_is_odd(lists, old, new)
    ):
        return True
    if record[REPLICAS] != NONE and not are_registered(memory, new[REPLICAS], old[REPLICAS]):
        return True
    min_isr = min_isr_of(memory, new[TOPIC])
    if elr_on and elr_is_odd(lists, old, new, min_isr, now[w.IS_KAFKA]):
        return True
    return now[w.NOTES_ORDER] and order_is_odd(memory, old, new)


@njit(cache=True)
def min_isr_of(memory: Any, topic: Any) -> Any:
    own = memory.topics.min_isr[topic]
    return memory.now[w.MIN_ISR_DEFAULT] if own == NONE else np.int64(own)


@njit(cache=True)
def order_is_odd(memory: Any, old: Any, new: Any) -> Any:
    """A30: leaving a broker's partitions after it is gone; and notes who left and who gained."""
    lists, b, step = memory.lists, memory.brokers, memory.now[w.STEP_NUMBER]
    odd = False
    for i in range(lists.starts[old[ISR]], lists.starts[old[ISR] + 1]):
        value = lists.values[i]
        if not contains(lists, new[ISR], value):
            b.left[value] = step
            odd = odd or b.gone[value] == step
    for i in range(lists.starts[new[ISR]], lists.starts[new[ISR] + 1]):
        value = lists.values[i]
        if not contains(lists, old[ISR], value):
            b.gained[value] = step
    if old[LEADER] != new[LEADER]:
        if old[LEADER] != _NO_LEADER:
            b.left[old[LEADER]] = step
            odd = odd or b.gone[old[LEADER]] == step
        if new[LEADER] != _NO_LEADER:
            b.gained[new[LEADER]] = step
    return odd


# -- events ----------------------------------------------------------------------------------------


@njit(cache=True)
def apply_event(memory: Any, uuids: Any, event: Any) -> Any:
    kind, a, b = event[1], event[2], event[3]
    now = memory.now
    if kind == w.BROKER:
        broker_changed(memory, a, b, event[4])
    elif kind == w.TURN:
        take_turn(memory, a, b)
    elif kind == w.TOPIC_LIVE:
        if is_mine(memory, uuids, a):
            begin_topic(memory, a)
    elif kind == w.TOPIC_GONE:
        end_topic(memory, a)
    elif kind == w.MIN_ISR:
        memory.topics.min_isr[a] = b
        touch_rows_of(memory, a)
    elif kind == w.MIN_ISR_ALL:
        now[w.MIN_ISR_DEFAULT] = a
        now[w.SCAN_DUE] = 1
    elif kind == w.ELR_ON:
        now[w.ELR_IS_ON] = a
        now[w.SCAN_DUE] = 1
    elif kind == w.SHRINK_BUMPS:
        now[w.SHRINK_DOES_BUMP] = a
    else:
        apply_rare_event(memory, kind, a)


@njit(cache=True)
def apply_rare_event(memory: Any, kind: Any, a: Any) -> Any:
    now = memory.now
    if kind == w.SCAN:
        now[w.SCAN_DUE] = 1
    elif kind == w.LEADS_NOTHING:
        if now[w.LED_NOTHING] != NONE:
            now[w.IS_DIRTY] = 1
        now[w.LED_NOTHING] = a
    elif kind == w.CLEAR_ELR:
        clear_elr(memory, a)
    elif kind == w.ABORT:
        abort(memory)
    elif kind == w.HOLDERS:
        for r in range(now[w.ROWS]):
            row = memory.partitions.rows[r]
            if contains(memory.lists, row[ISR], a) or contains(memory.lists, row[ELR], a):
                mark(memory, r)


@njit(cache=True)
def broker_changed(memory: Any, broker: Any, bits: Any, directories: Any) -> Any:
    b, now = memory.brokers, memory.now
    if b.step[broker] != now[w.STEP_NUMBER]:
        b.step[broker] = now[w.STEP_NUMBER]
        b.was[broker] = b.bits[broker]
        b.changed[now[w.BROKERS_CHANGED]] = broker
        now[w.BROKERS_CHANGED] += 1
    if b.directories[broker] != directories and b.directories[broker]:
        b.was[broker] |= w.MOVED
    b.bits[broker] = bits
    b.directories[broker] = directories


@njit(cache=True)
def take_turn(memory: Any, broker: Any, what: Any) -> Any:
    """A30: it leaves its partitions before it is gone; the other two come after the turn."""
    b, step = memory.brokers, memory.now[w.STEP_NUMBER]
    late = False
    if what == w.GONE:
        b.gone[broker] = step
    elif what == w.BACK:
        late = b.gained[broker] == step
    else:
        late = b.left[broker] == step
    if late:
        mark_touched(memory)


@njit(cache=True)
def mark_touched(memory: Any) -> Any:
    for n in range(memory.now[w.TOUCHED]):
        mark(memory, memory.partitions.touched[n])


@njit(cache=True)
def begin_topic(memory: Any, topic: Any) -> Any:
    t = memory.topics
    if t.live[topic]:
        mark_topic(memory, topic)
    t.live[topic] = 1
    t.count[topic] = 0
    t.highest[topic] = NONE
    touch_topic(memory, topic)


@njit(cache=True)
def mark_topic(memory: Any, topic: Any) -> Any:
    memory.topics.suspect[topic] = 1
    r = memory.topics.head[topic]
    while r != NONE:
        mark(memory, r)
        r = memory.partitions.next[r]


@njit(cache=True)
def end_topic(memory: Any, topic: Any) -> Any:
    """Its partitions are gone; they count no more."""
    t = memory.topics
    if not t.live[topic]:
        return
    t.live[topic] = 0
    r = t.head[topic]
    while r != NONE:
        row = memory.partitions.rows[r]
        if row[EXISTS]:
            if not row[SUSPECT]:
                count_in(memory, row, -1)
            row[EXISTS] = 0
        r = memory.partitions.next[r]


@njit(cache=True)
def touch_rows_of(memory: Any, topic: Any) -> Any:
    """A16 may be broken by a setting alone: it is looked at when the step ends."""
    r = memory.topics.head[topic]
    while r != NONE:
        row = memory.partitions.rows[r]
        if row[EXISTS] and (row[ELR] or row[LAST_KNOWN_ELR]):
            memory.now[w.SCAN_DUE] = 1
            return
        r = memory.partitions.next[r]


@njit(cache=True)
def clear_elr(memory: Any, topic: Any) -> Any:
    for r in range(memory.now[w.ROWS]):
        row = memory.partitions.rows[r]
        if topic != NONE and topic != row[TOPIC]:
            continue
        if row[EXISTS] and (row[ELR] or row[LAST_KNOWN_ELR]):
            if not row[SUSPECT]:
                count_in(memory, row, -1)
            row[ELR] = 0
            row[LAST_KNOWN_ELR] = 0
            row[PARTITION_EPOCH] += 1
            if not row[SUSPECT]:
                count_in(memory, row, 1)
    memory.now[w.SCAN_DUE] = 1


@njit(cache=True)
def abort(memory: Any) -> Any:
    """Back to how it was; the rule book sees to all that the transaction touched."""
    p, now, t = memory.partitions, memory.now, memory.topics
    for n in range(now[w.TOUCHED]):
        r = p.touched[n]
        mark(memory, r)
        p.rows[r, :SUSPECT] = p.before[n, :SUSPECT]
        p.rows[r, STEP] = 0
    for n in range(now[w.TOPICS_TOUCHED]):
        topic = t.touched[n]
        t.suspect[topic] = 1
        t.step[topic] = 0
    now[w.TOUCHED] = 0
    now[w.TOPICS_TOUCHED] = 0


@njit(cache=True)
def apply_events(memory: Any, uuids: Any, events: Any, first: Any, record: Any) -> Any:
    """Those of this record and before; the one that is due next."""
    while first < events.shape[0] and events[first, 0] <= record:
        apply_event(memory, uuids, events[first])
        first += 1
    return first


@njit(cache=True)
def note_marks(now: Any, marks: Any) -> Any:
    if marks & w.ABOUT_BROKERS:
        now[w.IS_ABOUT_BROKERS] = 1
    if marks & w.ABOUT_BROKERS or not marks & w.ENDS_STEP:
        now[w.NOTES_ORDER] = 1
    if marks & w.DIRTY:
        now[w.IS_DIRTY] = 1


# -- all of it -------------------------------------------------------------------------------------


@njit(cache=True)
def replay(
    memory: Any,
    uuids: Any,
    columns: Any,
    batches: Any,
    marks: Any,
    events: Any,
    first: Any,
    count: Any,
    next_event: Any,
    scratch: Any,
) -> Any:
    """Batches from `first` on; (the batch that needs more room, the event due next)."""
    old = np.zeros(STATE_WIDTH, np.int32)
    for b in range(first, count):
        if is_short(memory, batches.first[b + 1] - batches.first[b]):
            return b, next_event
        note_marks(memory.now, marks[b])
        for i in range(batches.first[b], batches.first[b + 1]):
            kind = columns.kind[i]
            if kind == CHANGED:
                change(memory, uuids, columns.rows[i], scratch, old)
            elif kind == CREATED:
                create(memory, uuids, columns.rows[i], scratch)
            else:
                next_event = apply_events(memory, uuids, events, next_event, i)
        if marks[b] & w.ENDS_STEP:
            settle(memory)
    return count, next_event


@njit(cache=True)
def is_short(memory: Any, records: Any) -> Any:
    p, now, lists = memory.partitions, memory.now, memory.lists
    return (
        now[w.TOUCHED] + records > p.touched.shape[0]
        or now[w.ROWS] + records > p.rows.shape[0]
        or lists.used[0] + records >= lists.flags.shape[0]
        or lists.used[1] + 8 * records > lists.values.shape[0]
    )
