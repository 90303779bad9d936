"""Beginning with a snapshot, and comparing with one. Compiled."""

from typing import Any

from kraftpy.audit.kernel import world as w
from kraftpy.audit.kernel.columns import (
    CREATED,
    DIRECTORIES,
    EXISTS,
    PARTITION,
    RECORD_WIDTH,
    REPLICAS,
    STEP,
    SUSPECT,
    TOPIC,
    compiled,
)
from kraftpy.audit.kernel.counting import count_in
from kraftpy.audit.kernel.interning import MIGRATING
from kraftpy.audit.kernel.lists import length
from kraftpy.audit.kernel.rows import hashed, is_mine
from kraftpy.audit.kernel.screens import state_is_odd
from kraftpy.audit.kernel.settling import is_unsettled


@compiled
def recount(memory: Any) -> Any:
    """After rows were put in: who is odd from the start, and the counts of all others."""
    b, now, t = memory.brokers, memory.now, memory.topics
    for counts in (b.leads, b.members, b.alone, b.candidates, b.step):
        counts[:] = 0
    t.suspect[:] = 0
    t.step[:] = 0
    now[w.SUSPECTS] = 0
    now[w.TOUCHED] = 0
    now[w.TOPICS_TOUCHED] = 0
    now[w.BROKERS_CHANGED] = 0
    now[w.SCAN_DUE] = 0
    now[w.IS_ABOUT_BROKERS] = 0
    now[w.NOTES_ORDER] = 0
    now[w.STEP_NUMBER] += 1
    for r in range(now[w.ROWS]):
        row = memory.partitions.rows[r]
        row[STEP] = 0
        odd = state_is_odd(memory.lists, row, now[w.ELR_IS_ON]) or is_unsettled(memory, row)
        row[SUSPECT] = 1 if row[EXISTS] and odd else 0
        if row[SUSPECT]:
            now[w.SUSPECTS] += 1
        elif row[EXISTS]:
            count_in(memory, row, 1)


@compiled
def known(memory: Any, topic: Any, partition: Any) -> Any:
    """The row of a partition, -1 if there is none."""
    p = memory.partitions
    mask = p.table.shape[0] - 1
    slot = hashed(topic, partition) & mask
    while p.table[slot]:
        r = p.table[slot] - 1
        if p.rows[r, PARTITION] == partition and p.rows[r, TOPIC] == topic:
            return r if p.rows[r, EXISTS] else -1
        slot = (slot + 1) & mask
    return -1


@compiled
def _differ(memory: Any, row: Any, stored: Any) -> Any:
    for column in range(REPLICAS, RECORD_WIDTH):
        if column != DIRECTORIES and row[column] != stored[column]:
            return True
    if stored[DIRECTORIES]:
        return row[DIRECTORIES] != stored[DIRECTORIES]
    lists = memory.lists
    if length(lists, row[DIRECTORIES]) != length(lists, row[REPLICAS]):
        return True
    for i in range(lists.starts[row[DIRECTORIES]], lists.starts[row[DIRECTORIES] + 1]):
        if lists.values[i] != MIGRATING:
            return True
    return False


@compiled
def _put(out: Any, found: Any, row: Any, r: Any, index: Any) -> Any:
    out[found, 0] = row[TOPIC]
    out[found, 1] = row[PARTITION]
    out[found, 2] = r
    out[found, 3] = index
    return found + 1


@compiled
def compare(memory: Any, uuids: Any, kinds: Any, rows: Any, seen: Any, out: Any) -> Any:
    """(topic, partition, our row or -1, index of the snapshot's record or -1) where they differ,
    into `out`; how many, and how many were compared. `seen` has a place for each of our rows."""
    now = memory.now
    found = 0
    compared = 0
    for index in range(rows.shape[0]):
        stored = rows[index]
        if kinds[index] != CREATED or not is_mine(memory, uuids, stored[TOPIC]):
            continue
        compared += 1
        r = known(memory, stored[TOPIC], stored[PARTITION])
        if r >= 0:
            seen[r] = 1
            if not _differ(memory, memory.partitions.rows[r], stored):
                continue
        found = _put(out, found, stored, r, index)
    for r in range(now[w.ROWS]):
        row = memory.partitions.rows[r]
        if row[EXISTS] and not seen[r]:
            found = _put(out, found, row, r, -1)
    return found, compared
