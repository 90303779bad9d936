"""Which broker has how many partitions, so that a broker that goes need not ask all of them."""

from typing import Any, Final

from kraftpy.audit.kernel import world as w
from kraftpy.audit.kernel.columns import ELR, EXISTS, ISR, LEADER, SUSPECT, compiled, inlined

_NO_LEADER: Final = -1


@inlined
def count_in(memory: Any, row: Any, by: Any) -> Any:
    """Count a partition in (1) or out (-1). It is not suspect, so its lists hold broker ids."""
    lists, b = memory.lists, memory.brokers
    isr, leader = row[ISR], row[LEADER]
    start, end = lists.starts[isr], lists.starts[isr + 1]
    if leader != _NO_LEADER:
        b.leads[leader] += by
    elif end - start == 1:
        b.alone[lists.values[start]] += by
        b.candidates[lists.values[start]] += by
        return
    for i in range(start, end):
        b.members[lists.values[i]] += by
    if leader == _NO_LEADER:
        held = isr if isr else row[ELR]
        for i in range(lists.starts[held], lists.starts[held + 1]):
            b.candidates[lists.values[i]] += by


@compiled
def mark(memory: Any, r: Any) -> Any:
    """From here on the partition is the rule book's."""
    row = memory.partitions.rows[r]
    if not row[SUSPECT]:
        if row[EXISTS]:
            count_in(memory, row, -1)
        row[SUSPECT] = 1
        memory.now[w.SUSPECTS] += 1
