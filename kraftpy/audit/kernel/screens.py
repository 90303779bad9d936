"""The partition rules as yes-or-no questions, compiled: may the rule book find something here?

Each function answers for the rules that its docstring names. What always holds: where a check of
the rule book would find something, the screen says yes. It may say yes too often, never too
rarely: whom it points at is judged by the rule book itself (tests hold one against the other, rule
by rule). Names, sentences and severities are the rule book's alone.
"""

from typing import Any, Final

import numpy as np

from kraftpy.audit.kernel.columns import (
    ADDING,
    DIRECTORIES,
    ELR,
    ISR,
    LAST_KNOWN_ELR,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    RECOVERY,
    REMOVING,
    REPLICAS,
    compiled,
    inlined,
)
from kraftpy.audit.kernel.lists import (
    contains,
    covers_rest,
    is_alone,
    is_rest,
    is_subset,
    length,
    meet,
)

_NO_LEADER: Final = -1
_NO_CHANGE: Final = -2
_NO_WITNESS: Final = -1
_RECOVERING: Final = 1


@inlined
def state_is_odd(lists: Any, new: Any, elr_on: Any) -> Any:
    """A1, A2, A3, A4, A11, A15, A20, A33: a partition as it stands."""
    replicas, isr, elr = new[REPLICAS], new[ISR], new[ELR]
    if replicas == 0 or lists.flags[replicas] or lists.flags[isr]:
        return True
    if not is_subset(lists, isr, replicas):
        return True
    if new[LEADER] != _NO_LEADER and not contains(lists, isr, new[LEADER]):
        return True
    if isr == 0 and not elr_on:
        return True
    if new[RECOVERY] == _RECOVERING and length(lists, isr) > 1:
        return True
    if length(lists, new[DIRECTORIES]) != length(lists, replicas):
        return True
    if elr and (lists.flags[elr] or not is_subset(lists, elr, replicas) or meet(lists, elr, isr)):
        return True
    return moves_are_odd(lists, new)


@inlined
def moves_are_odd(lists: Any, new: Any) -> Any:
    """A20."""
    adding, removing, replicas = new[ADDING], new[REMOVING], new[REPLICAS]
    if adding == 0 and removing == 0:
        return False
    return (
        not is_subset(lists, adding, replicas)
        or not is_subset(lists, removing, replicas)
        or meet(lists, adding, removing)
    )


@compiled
def creation_is_odd(lists: Any, record: Any) -> Any:
    """A7, but for who is active."""
    isr = record[ISR]
    return (
        record[LEADER_EPOCH] != 0
        or record[PARTITION_EPOCH] != 0
        or record[RECOVERY] != 0
        or isr == 0
        or record[LEADER] != lists.values[lists.starts[isr]]
        or record[ADDING] != 0
        or record[REMOVING] != 0
    )


@inlined
def epochs_are_odd(lists: Any, old: Any, record: Any, new: Any, shrink_bumps: Any) -> Any:
    """A5 and A6."""
    named = record[LEADER] != _NO_CHANGE
    witness = record[LEADER_EPOCH]
    if witness != _NO_WITNESS and witness != new[LEADER_EPOCH]:
        return True
    witness = record[PARTITION_EPOCH]
    if witness != _NO_WITNESS and witness != new[PARTITION_EPOCH]:
        return True
    due = (
        new[LEADER] != old[LEADER]
        or not is_subset(lists, old[REPLICAS], new[REPLICAS])
        or (shrink_bumps and not is_subset(lists, old[ISR], new[ISR]))
    )
    return due != named


@inlined
def is_same(old: Any, new: Any) -> Any:
    """A8."""
    for column in range(REPLICAS, LEADER_EPOCH):  # noqa: SIM110 -- numba has no all().
        if old[column] != new[column]:
            return False
    return True


@inlined
def is_under_way(row: Any) -> Any:
    return row[ADDING] != 0 or row[REMOVING] != 0


@compiled
def ends_as_meant(lists: Any, old: Any, new: Any) -> Any:
    """A reassignment, with all that were to stay in sync."""
    if not is_under_way(old) or is_under_way(new):
        return False
    return is_rest(lists, new[REPLICAS], old[REPLICAS], old[REMOVING]) and is_subset(
        lists, new[REPLICAS], new[ISR]
    )


@inlined
def is_elected(old: Any, new: Any) -> Any:
    return new[LEADER] != _NO_LEADER and new[LEADER] != old[LEADER]


@inlined
def election_is_odd(lists: Any, old: Any, new: Any, elr_on: Any) -> Any:
    """A9, A10, A11: any unclean election, and RECOVERING without one."""
    leader = new[LEADER]
    starts = new[RECOVERY] == _RECOVERING and old[RECOVERY] != _RECOVERING
    if not is_elected(old, new):
        return starts
    if contains(lists, old[ISR], leader):
        return starts
    if elr_on and contains(lists, old[ELR], leader) and is_alone(lists, new[ISR], leader):
        return starts
    if old[LEADER] != _NO_LEADER and ends_as_meant(lists, old, new):
        return starts or not contains(lists, new[ISR], leader)
    return True


@compiled
def growth_is_odd(lists: Any, old: Any, new: Any, about_brokers: Any, is_kafka: Any) -> Any:
    """A14, as far as the log alone tells."""
    if is_subset(lists, new[ISR], old[ISR]):
        return False
    if is_kafka and is_under_way(old) and not is_under_way(new):
        return True  # When that is the end of it is another question there.
    ends = ends_as_meant(lists, old, new)
    leader = new[LEADER]
    elected = is_elected(old, new)
    joined = 0
    for i in range(lists.starts[new[ISR]], lists.starts[new[ISR] + 1]):
        value = lists.values[i]
        own = elected and not ends and value == leader
        if not own and not contains(lists, old[ISR], value):
            joined += 1
    if joined == 0:
        return False
    return about_brokers or old[LEADER] == _NO_LEADER or (leader != old[LEADER] and not ends)


@compiled
def elr_is_odd(lists: Any, old: Any, new: Any, min_isr: Any, is_kafka: Any) -> Any:
    """A17 and A19, where ELR is on; unclean elections are somebody else's."""
    isr, elr = new[ISR], new[ELR]
    if isr == 0:
        last = new[LAST_KNOWN_ELR]
        if old[LEADER] != _NO_LEADER and not is_alone(lists, last, old[LEADER]):
            return True
        if old[LEADER] == _NO_LEADER and old[LAST_KNOWN_ELR] != 0 and last == 0:
            return True
    if not is_kafka:
        min_isr = min(min_isr, np.int64(length(lists, new[REPLICAS])))
    if length(lists, isr) >= min_isr:
        return False
    for i in range(lists.starts[elr], lists.starts[elr + 1]):
        value = lists.values[i]
        if not contains(lists, old[ELR], value) and not contains(lists, old[ISR], value):
            return True
    return not (_keeps(lists, old[ELR], new) and _keeps(lists, old[ISR], new))


@compiled
def _keeps(lists: Any, held: Any, new: Any) -> Any:
    """Whether all of `held` are still in sync or eligible, or no replicas any more."""
    for i in range(lists.starts[held], lists.starts[held + 1]):
        value = lists.values[i]
        if contains(lists, new[ISR], value) or contains(lists, new[ELR], value):
            continue
        if contains(lists, new[REPLICAS], value):
            return False
    return True


@compiled
def move_is_odd(lists: Any, old: Any, new: Any) -> Any:
    """A21, A22, A23."""
    if (
        old[REPLICAS] == new[REPLICAS]
        and old[ADDING] == new[ADDING]
        and old[REMOVING] == new[REMOVING]
    ):
        return False
    if is_under_way(new):
        return _start_is_odd(lists, old, new)
    same = is_subset(lists, old[REPLICAS], new[REPLICAS]) and is_subset(
        lists, new[REPLICAS], old[REPLICAS]
    )
    if not is_under_way(old):
        return not same and not is_subset(lists, new[REPLICAS], new[ISR])
    if is_rest(lists, new[REPLICAS], old[REPLICAS], old[ADDING]):
        held = meet(lists, old[ISR], new[REPLICAS]) or meet(lists, old[ELR], new[REPLICAS])
        return not held and new[ISR] != 0 and new[RECOVERY] != _RECOVERING
    return not is_subset(lists, new[REPLICAS], new[ISR])


@compiled
def _start_is_odd(lists: Any, old: Any, new: Any) -> Any:
    """A21."""
    replicas, removing = new[REPLICAS], new[REMOVING]
    if not is_subset(lists, old[REPLICAS], replicas) or not is_subset(lists, new[ISR], old[ISR]):
        return True
    if not covers_rest(lists, new[ADDING], replicas, old[REPLICAS]):
        return True
    stays = 0
    leaves = 0
    in_sync = True
    for i in range(lists.starts[replicas], lists.starts[replicas + 1]):
        value = lists.values[i]
        if contains(lists, removing, value):
            leaves += 1
        elif leaves:
            return True  # One that stays behind one that leaves.
        else:
            stays += 1
            in_sync = in_sync and contains(lists, new[ISR], value)
    return stays > 0 and in_sync
