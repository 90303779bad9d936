"""What records that are no partition's do to partitions: events in their place. Compiled."""

from typing import Any

from kraftpy.audit.kernel import world as w
from kraftpy.audit.kernel.columns import (
    ELR,
    EXISTS,
    ISR,
    LAST_KNOWN_ELR,
    NONE,
    PARTITION_EPOCH,
    STEP,
    SUSPECT,
    TOPIC,
    compiled,
    copy_row,
)
from kraftpy.audit.kernel.counting import count_in, mark
from kraftpy.audit.kernel.lists import contains
from kraftpy.audit.kernel.rows import is_mine, touch_topic


@compiled
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


@compiled
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
    elif kind == w.TOPIC_BACK:
        memory.topics.live[a] = 1
    elif kind == w.HOLDERS:
        for r in range(now[w.ROWS]):
            row = memory.partitions.rows[r]
            if contains(memory.lists, row[ISR], a) or contains(memory.lists, row[ELR], a):
                mark(memory, r)


@compiled
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


@compiled
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


@compiled
def mark_touched(memory: Any) -> Any:
    for n in range(memory.now[w.TOUCHED]):
        mark(memory, memory.partitions.touched[n])


@compiled
def begin_topic(memory: Any, topic: Any) -> Any:
    t = memory.topics
    if t.live[topic]:
        mark_topic(memory, topic)
    t.live[topic] = 1
    t.count[topic] = 0
    t.highest[topic] = NONE
    touch_topic(memory, topic)


@compiled
def mark_topic(memory: Any, topic: Any) -> Any:
    memory.topics.suspect[topic] = 1
    r = memory.topics.head[topic]
    while r != NONE:
        mark(memory, r)
        r = memory.partitions.next[r]


@compiled
def end_topic(memory: Any, topic: Any) -> Any:
    """Its partitions are gone; they count no more. Those that the step has not touched yet are
    marked, so that `abort` finds them."""
    t, step = memory.topics, memory.now[w.STEP_NUMBER]
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
            if row[STEP] != step:
                row[STEP] = -step
        r = memory.partitions.next[r]


@compiled
def touch_rows_of(memory: Any, topic: Any) -> Any:
    """A16 may be broken by a setting alone: it is looked at when the step ends."""
    r = memory.topics.head[topic]
    while r != NONE:
        row = memory.partitions.rows[r]
        if row[EXISTS] and (row[ELR] or row[LAST_KNOWN_ELR]):
            memory.now[w.SCAN_DUE] = 1
            return
        r = memory.partitions.next[r]


@compiled
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


@compiled
def abort(memory: Any) -> Any:
    """Back to how it was; the rule book sees to all that the transaction touched."""
    p, now, t = memory.partitions, memory.now, memory.topics
    for n in range(now[w.TOUCHED]):
        r = p.touched[n]
        mark(memory, r)
        copy_row(p.rows[r], p.before[n], SUSPECT)
        p.rows[r, STEP] = 0
    for r in range(now[w.ROWS]):
        row = p.rows[r]
        if row[STEP] == -now[w.STEP_NUMBER]:
            mark(memory, r)
            row[EXISTS] = 1
            row[STEP] = 0
    for n in range(now[w.TOPICS_TOUCHED]):
        topic = t.touched[n]
        t.suspect[topic] = 1
        t.step[topic] = 0
    now[w.TOUCHED] = 0
    now[w.TOPICS_TOUCHED] = 0


@compiled
def apply_events(memory: Any, uuids: Any, events: Any, first: Any, record: Any) -> Any:
    """Those of this record and before; the one that is due next."""
    while first < events.shape[0] and events[first, 0] <= record:
        apply_event(memory, uuids, events[first])
        first += 1
    return first


@compiled
def note_marks(now: Any, marks: Any) -> Any:
    if marks & w.ABOUT_BROKERS:
        now[w.IS_ABOUT_BROKERS] = 1
    if marks & w.ABOUT_BROKERS or not marks & w.ENDS_STEP:
        now[w.NOTES_ORDER] = 1
    if marks & w.DIRTY:
        now[w.IS_DIRTY] = 1
