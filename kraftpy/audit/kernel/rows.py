"""Rows of partitions: finding them, and remembering them as they were before a step. Compiled."""

from typing import Any

import numpy as np

from kraftpy.audit.kernel import world as w
from kraftpy.audit.kernel.columns import (
    PARTITION,
    STATE_WIDTH,
    STEP,
    TOPIC,
    compiled,
    copy_row,
    inlined,
)


@inlined
def hashed(topic: Any, partition: Any) -> Any:
    value = (np.int64(topic) << 32) ^ np.int64(partition)
    value = (value ^ (value >> 29)) * np.int64(-4658895280553007687)
    return value ^ (value >> 32)


@inlined
def find(memory: Any, topic: Any, partition: Any) -> Any:
    """The row of a partition, made if there is none."""
    p = memory.partitions
    mask = p.table.shape[0] - 1
    slot = hashed(topic, partition) & mask
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


@compiled
def reindex(memory: Any) -> Any:
    """Fill an empty table from the rows."""
    p = memory.partitions
    mask = p.table.shape[0] - 1
    for r in range(memory.now[w.ROWS]):
        slot = hashed(p.rows[r, TOPIC], p.rows[r, PARTITION]) & mask
        while p.table[slot]:
            slot = (slot + 1) & mask
        p.table[slot] = r + 1


@compiled
def adopt(memory: Any) -> Any:
    """Rows that were put in from elsewhere become those of their topics."""
    p, t = memory.partitions, memory.topics
    for r in range(memory.now[w.ROWS]):
        topic, partition = p.rows[r, TOPIC], p.rows[r, PARTITION]
        p.next[r] = t.head[topic]
        t.head[topic] = r
        t.count[topic] += 1
        t.highest[topic] = max(t.highest[topic], partition)
    p.table[:] = 0
    reindex(memory)


@inlined
def touch(memory: Any, r: Any) -> Any:
    """Remember a row as it was before the step."""
    p, now = memory.partitions, memory.now
    if p.rows[r, STEP] != now[w.STEP_NUMBER]:
        n = now[w.TOUCHED]
        p.touched[n] = r
        copy_row(p.before[n], p.rows[r], STATE_WIDTH)
        now[w.TOUCHED] = n + 1
        p.rows[r, STEP] = now[w.STEP_NUMBER]


@inlined
def touch_topic(memory: Any, topic: Any) -> Any:
    t, now = memory.topics, memory.now
    if t.step[topic] != now[w.STEP_NUMBER]:
        t.step[topic] = now[w.STEP_NUMBER]
        t.touched[now[w.TOPICS_TOUCHED]] = topic
        now[w.TOPICS_TOUCHED] += 1


@inlined
def is_mine(memory: Any, uuids: Any, topic: Any) -> Any:
    """Whether this shard replays the topic: by its id, so that every shard agrees."""
    t = memory.topics
    if t.mine[topic] == 0:
        value = (uuids.high[topic] ^ uuids.low[topic]) * np.int64(-7723592293110705685)
        shard = ((value >> 33) & 0x7FFFFFFF) % memory.now[w.SHARDS]
        t.mine[topic] = 1 if shard == memory.now[w.SHARD] else 2
    return t.mine[topic] == 1
