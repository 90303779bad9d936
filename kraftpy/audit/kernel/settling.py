"""The end of a step, when rules between partitions, brokers and settings hold. Compiled.

Looked at is what the step touched. Other partitions only if a broker of theirs changed and the
counts say that this may matter, or if a setting or feature did: then all of them.
"""

from typing import Any, Final

import numpy as np

from kraftpy.audit.kernel import world as w
from kraftpy.audit.kernel.columns import (
    DIRECTORIES,
    ELR,
    EXISTS,
    ISR,
    LAST_KNOWN_ELR,
    LEADER,
    NONE,
    PARTITION_EPOCH,
    REPLICAS,
    SUSPECT,
    TOPIC,
    compiled,
    inlined,
)
from kraftpy.audit.kernel.counting import mark
from kraftpy.audit.kernel.interning import UNASSIGNED
from kraftpy.audit.kernel.lists import contains, length

_NO_LEADER: Final = -1


@inlined
def may_lead(memory: Any, row: Any, broker: Any) -> Any:
    """Active, a replica, and the directory of its replica online."""
    lists, b = memory.lists, memory.brokers
    if not b.bits[broker] & w.ACTIVE:
        return False
    start = lists.starts[row[REPLICAS]]
    for i in range(length(lists, row[REPLICAS])):
        if lists.values[start + i] == broker:
            directory = lists.values[lists.starts[row[DIRECTORIES]] + i]
            online = b.directories[broker]
            return directory <= UNASSIGNED or online == 0 or contains(lists, online, directory)
    return False


@inlined
def is_unsettled(memory: Any, row: Any) -> Any:
    """A12, A13, A16, A25, A44."""
    lists, now = memory.lists, memory.now
    isr, leader = row[ISR], row[LEADER]
    if leader != _NO_LEADER and not may_lead(memory, row, leader):
        return True
    if row[ELR] or row[LAST_KNOWN_ELR]:
        own = memory.topics.min_isr[row[TOPIC]]
        minimum = now[w.MIN_ISR_DEFAULT] if own == NONE else np.int64(own)
        if now[w.IS_KAFKA]:
            minimum = min(minimum, 1)  # It counts replicas of another partition.
        whole = length(lists, isr) >= min(minimum, length(lists, row[REPLICAS]))
        if whole or not now[w.ELR_IS_ON]:
            return True
    if has_inactive_member(memory, isr, leader):
        return True
    if leader != _NO_LEADER:
        return False
    held = row[ELR] if isr == 0 and now[w.ELR_IS_ON] else isr
    for i in range(lists.starts[held], lists.starts[held + 1]):
        if may_lead(memory, row, lists.values[i]):
            return True
    return False


@inlined
def has_inactive_member(memory: Any, isr: Any, leader: Any) -> Any:
    """A13."""
    lists, b, now = memory.lists, memory.brokers, memory.now
    start, end = lists.starts[isr], lists.starts[isr + 1]
    if end - start == 1 and leader == _NO_LEADER:
        last = lists.values[start]
        was_active = b.step[last] == now[w.STEP_NUMBER] and b.was[last] & w.ACTIVE
        return now[w.ELR_IS_ON] and was_active and not b.bits[last] & w.ACTIVE
    for i in range(start, end):  # noqa: SIM110 -- numba has no any().
        if not b.bits[lists.values[i]] & w.ACTIVE:
            return True
    return False


@inlined
def is_new_and_odd(memory: Any, row: Any, before: Any) -> Any:
    """A7: the ISR of a new partition is its active replicas."""
    if before[EXISTS] or row[PARTITION_EPOCH]:
        return False
    lists = memory.lists
    for i in range(lists.starts[row[REPLICAS]], lists.starts[row[REPLICAS] + 1]):
        value = lists.values[i]
        if may_lead(memory, row, value) != contains(lists, row[ISR], value):
            return True
    return False


@inlined
def is_odd_at_the_end(memory: Any, row: Any, before: Any) -> Any:
    """All of these, and A32: who is fenced after its shutdown led nothing."""
    led_nothing = memory.now[w.LED_NOTHING]
    if led_nothing != NONE and before[EXISTS] and before[LEADER] == led_nothing:
        return True
    if not row[EXISTS]:
        return False
    return is_unsettled(memory, row) or is_new_and_odd(memory, row, before)


@inlined
def settle(memory: Any) -> Any:
    p, now = memory.partitions, memory.now
    for n in range(now[w.TOUCHED]):
        row = p.rows[p.touched[n]]
        if row[SUSPECT]:
            continue
        if now[w.IS_DIRTY] or is_odd_at_the_end(memory, row, p.before[n]):
            mark(memory, p.touched[n])
    settle_topics(memory)
    if now[w.SCAN_DUE] or brokers_matter(memory):
        scan(memory)
    now[w.STEP_NUMBER] += 1
    now[w.TOUCHED] = 0
    now[w.BROKERS_CHANGED] = 0
    now[w.TOPICS_TOUCHED] = 0
    now[w.SCAN_DUE] = 0
    now[w.IS_ABOUT_BROKERS] = 0
    now[w.NOTES_ORDER] = 0
    now[w.IS_DIRTY] = 0
    now[w.LED_NOTHING] = NONE


@compiled
def settle_topics(memory: Any) -> Any:
    """A35 and A37."""
    t = memory.topics
    for n in range(memory.now[w.TOPICS_TOUCHED]):
        topic = t.touched[n]
        if not t.live[topic]:
            continue
        if t.count[topic] == 0 or t.highest[topic] + 1 != t.count[topic]:
            t.suspect[topic] = 1
            r = t.head[topic]
            while r != NONE:
                mark(memory, r)
                r = memory.partitions.next[r]


@compiled
def brokers_matter(memory: Any) -> Any:
    """Whether some broker that changed still has partitions that it should not have."""
    b, now = memory.brokers, memory.now
    matters = False
    for n in range(now[w.BROKERS_CHANGED]):
        broker = b.changed[n]
        if b.bits[broker] & w.ACTIVE:
            led = b.leads[broker] if b.was[broker] & w.MOVED else 0
            matters = matters or b.candidates[broker] > 0 or led > 0
        else:
            left = b.leads[broker] + b.members[broker]
            if now[w.ELR_IS_ON]:
                left += b.alone[broker]
            matters = matters or left > 0
    return matters


@compiled
def scan(memory: Any) -> Any:
    memory.now[w.SCANS] += 1
    for r in range(memory.now[w.ROWS]):
        row = memory.partitions.rows[r]
        if row[EXISTS] and not row[SUSPECT] and is_unsettled(memory, row):
            mark(memory, r)
