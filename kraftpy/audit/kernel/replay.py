"""Replays columns onto a World, step by step, and marks what the rule book must judge. Compiled.

What always holds: a partition that is not suspect broke no rule so far, counts among those of its
brokers, and is as lenient replay (rules/view.py) would have it. A suspect one is still replayed,
but no longer looked at: the rule book will see all of its records.
"""

from typing import Any, Final

import numpy as np

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
    RECORD_WIDTH,
    RECOVERY,
    REMOVING,
    REPLICAS,
    STATE_WIDTH,
    SUSPECT,
    TOPIC,
    compiled,
    copy_row,
    inlined,
)
from kraftpy.audit.kernel.counting import count_in, mark
from kraftpy.audit.kernel.events import apply_events, note_marks
from kraftpy.audit.kernel.interning import BROKERS_MAX, MIGRATING, UNASSIGNED, intern_list
from kraftpy.audit.kernel.lists import contains, length
from kraftpy.audit.kernel.rows import find, is_mine, touch, touch_topic
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


# -- records ---------------------------------------------------------------------------------------


@compiled
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
    copy_row(row, record, RECORD_WIDTH)
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


@compiled
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


@inlined
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
    copy_row(old, row, STATE_WIDTH)
    apply_change(memory.lists, row, record, scratch)
    if row[SUSPECT]:
        return
    if change_is_odd(memory, old, record, row):
        row[SUSPECT] = 1
        memory.now[w.SUSPECTS] += 1
    else:
        count_in(memory, row, 1)


@inlined
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


@compiled
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


@inlined
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


@inlined
def min_isr_of(memory: Any, topic: Any) -> Any:
    own = memory.topics.min_isr[topic]
    return memory.now[w.MIN_ISR_DEFAULT] if own == NONE else np.int64(own)


@compiled
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


# -- all of it -------------------------------------------------------------------------------------


@compiled
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
    old: Any,
) -> Any:
    """Batches from `first` on; (the batch that needs more room, the event due next)."""
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


@inlined
def is_short(memory: Any, records: Any) -> Any:
    p, now, lists = memory.partitions, memory.now, memory.lists
    return (
        now[w.TOUCHED] + records > p.touched.shape[0]
        or now[w.ROWS] + records > p.rows.shape[0]
        or lists.used[0] + records >= lists.flags.shape[0]
        or lists.used[1] + now[w.LONGEST] * records > lists.values.shape[0]
    )
