"""What a stretch of a log does to partitions, whatever they were before it. Compiled.

A summary is a list of operations, in order: a partition becomes this (STATE), changes so (CHANGE:
what the stretch names, and how often the epochs go up), all of a topic goes (TOPIC_ENDS), an ELR is
cleared (ELR_ENDS). Changes of one partition are one operation, but for those of its replicas or
directories, whose meaning depends on what was there. What always holds: applying the summaries of
two stretches one after the other is applying the summary of both, wherever the log is cut; and what
comes of it is what replay.py makes of the same records.
"""

from typing import Any, Final

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
    TOPIC,
    compiled,
    copy_row,
    inlined,
)
from kraftpy.audit.kernel.interning import MIGRATING, intern_list
from kraftpy.audit.kernel.lists import length
from kraftpy.audit.kernel.replay import apply_change, moved_directories
from kraftpy.audit.kernel.rows import find

# In the column EXISTS of an operation; 0 there: nothing happened so far.
CHANGE: Final = 1
STATE: Final = 2
TOPIC_ENDS: Final = 3
ELR_ENDS: Final = 4  # Of a topic, or of all if it names none.
_NO_CHANGE: Final = -2


@compiled
def summarise(
    memory: Any, columns: Any, count: Any, events: Any, out: Any, used: Any, scratch: Any
) -> Any:
    """Records and events in their order; operations that cannot wait go to `out`."""
    event = 0
    for i in range(count):
        kind = columns.kind[i]
        if kind == CHANGED:
            used = _change(memory, columns.rows[i], out, used, scratch)
        elif kind == CREATED:
            _create(memory, columns.rows[i], scratch)
        else:
            while event < events.shape[0] and events[event, 0] <= i:
                used = _event(memory, events[event], out, used)
                event += 1
    return used


@inlined
def _create(memory: Any, record: Any, scratch: Any) -> Any:
    if not memory.topics.live[record[TOPIC]]:
        return
    row = memory.partitions.rows[find(memory, record[TOPIC], record[PARTITION])]
    copy_row(row, record, RECORD_WIDTH)
    row[EXISTS] = STATE
    if row[DIRECTORIES] == 0:
        count = length(memory.lists, row[REPLICAS])
        scratch[:count] = MIGRATING
        row[DIRECTORIES] = intern_list(memory.lists, scratch, count)


@inlined
def _change(memory: Any, record: Any, out: Any, used: Any, scratch: Any) -> Any:
    if not memory.topics.live[record[TOPIC]]:
        return used
    row = memory.partitions.rows[find(memory, record[TOPIC], record[PARTITION])]
    if row[EXISTS] == STATE:
        apply_change(memory.lists, row, record, scratch)
        return used
    if record[REPLICAS] != NONE or record[DIRECTORIES] > 0:
        used = _close(row, out, used)
        _merge(row, record)
        return _close(row, out, used)
    _merge(row, record)
    return used


@inlined
def _merge(row: Any, record: Any) -> Any:
    """One more change of the same partition."""
    if row[EXISTS] == 0:
        row[REPLICAS : DIRECTORIES + 1] = NONE
        row[LEADER] = _NO_CHANGE
        row[RECOVERY] = NONE
        row[LEADER_EPOCH] = 0
        row[PARTITION_EPOCH] = 0
        row[EXISTS] = CHANGE
    for column in (REPLICAS, ISR, REMOVING, ADDING, ELR, LAST_KNOWN_ELR, RECOVERY):
        if record[column] != NONE:
            row[column] = record[column]
    if record[DIRECTORIES] > 0:
        row[DIRECTORIES] = record[DIRECTORIES]
    if record[LEADER] != _NO_CHANGE:
        row[LEADER] = record[LEADER]
        row[LEADER_EPOCH] += 1
    row[PARTITION_EPOCH] += 1


@inlined
def _close(row: Any, out: Any, used: Any) -> Any:
    """Put down what was gathered; what follows is gathered anew."""
    if row[EXISTS] == 0:
        return used
    copy_row(out[used], row, STATE_WIDTH)
    row[EXISTS] = 0
    return used + 1


@compiled
def _event(memory: Any, event: Any, out: Any, used: Any) -> Any:
    kind, topic = event[1], event[2]
    if kind == w.TOPIC_LIVE:
        memory.topics.live[topic] = 1
    elif kind == w.TOPIC_GONE and memory.topics.live[topic]:
        memory.topics.live[topic] = 0
        r = memory.topics.head[topic]
        while r != NONE:
            memory.partitions.rows[r, EXISTS] = 0
            r = memory.partitions.next[r]
        used = _put(out, used, TOPIC_ENDS, topic)
    elif kind == w.CLEAR_ELR:
        for r in range(memory.now[w.ROWS]):
            row = memory.partitions.rows[r]
            if topic == NONE or topic == row[TOPIC]:
                used = _close(row, out, used)
        used = _put(out, used, ELR_ENDS, topic)
    return used


@compiled
def _put(out: Any, used: Any, kind: Any, topic: Any) -> Any:
    out[used, :] = 0
    out[used, TOPIC] = topic
    out[used, EXISTS] = kind
    return used + 1


@compiled
def close_all(memory: Any, out: Any, used: Any) -> Any:
    """The end of the stretch."""
    for r in range(memory.now[w.ROWS]):
        used = _close(memory.partitions.rows[r], out, used)
    return used


# -- and back --------------------------------------------------------------------------------------


@compiled
def apply_summary(memory: Any, operations: Any, scratch: Any) -> Any:
    """Rows as they are behind the stretch; EXISTS says whether a partition is there."""
    p = memory.partitions
    for n in range(operations.shape[0]):
        operation = operations[n]
        kind, topic = operation[EXISTS], operation[TOPIC]
        if kind == TOPIC_ENDS:
            r = memory.topics.head[topic]
            while r != NONE:
                p.rows[r, EXISTS] = 0
                r = p.next[r]
        elif kind == ELR_ENDS:
            _end_elr(memory, topic)
        else:
            row = p.rows[find(memory, topic, operation[PARTITION])]
            if kind == STATE:
                copy_row(row, operation, RECORD_WIDTH)
                row[EXISTS] = 1
            elif row[EXISTS]:
                _apply(memory.lists, row, operation, scratch)


@inlined
def _apply(lists: Any, row: Any, operation: Any, scratch: Any) -> Any:
    replicas = row[REPLICAS]
    for column in (REPLICAS, ISR, REMOVING, ADDING, ELR, LAST_KNOWN_ELR, RECOVERY):
        if operation[column] != NONE:
            row[column] = operation[column]
    if operation[DIRECTORIES] > 0:
        row[DIRECTORIES] = operation[DIRECTORIES]
    elif operation[REPLICAS] != NONE:
        row[DIRECTORIES] = moved_directories(lists, replicas, row, scratch)
    if operation[LEADER] != _NO_CHANGE:
        row[LEADER] = operation[LEADER]
    row[LEADER_EPOCH] += operation[LEADER_EPOCH]
    row[PARTITION_EPOCH] += operation[PARTITION_EPOCH]


@compiled
def _end_elr(memory: Any, topic: Any) -> Any:
    for r in range(memory.now[w.ROWS]):
        row = memory.partitions.rows[r]
        if topic != NONE and topic != row[TOPIC]:
            continue
        if row[EXISTS] and (row[ELR] or row[LAST_KNOWN_ELR]):
            row[ELR] = 0
            row[LAST_KNOWN_ELR] = 0
            row[PARTITION_EPOCH] += 1
