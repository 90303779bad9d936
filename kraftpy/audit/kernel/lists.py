"""Questions to interned lists, compiled: who is in which, and how sets of them compare."""

from typing import Any

from kraftpy.audit.kernel.columns import compiled, inlined


@inlined
def length(lists: Any, number: Any) -> Any:
    return lists.starts[number + 1] - lists.starts[number]


@inlined
def contains(lists: Any, number: Any, value: Any) -> Any:
    for i in range(lists.starts[number], lists.starts[number + 1]):
        if lists.values[i] == value:
            return True
    return False


@inlined
def is_subset(lists: Any, inner: Any, outer: Any) -> Any:
    if inner == outer or inner == 0:
        return True
    for i in range(lists.starts[inner], lists.starts[inner + 1]):
        if not contains(lists, outer, lists.values[i]):
            return False
    return True


@compiled
def meet(lists: Any, one: Any, other: Any) -> Any:
    """Whether some value is in both."""
    for i in range(lists.starts[one], lists.starts[one + 1]):
        if contains(lists, other, lists.values[i]):
            return True
    return False


@compiled
def is_alone(lists: Any, number: Any, value: Any) -> Any:
    """Whether the list is exactly this value."""
    return length(lists, number) == 1 and lists.values[lists.starts[number]] == value


@compiled
def is_rest(lists: Any, number: Any, whole: Any, without: Any) -> Any:
    """Whether, as a set, it is `whole` but for `without`."""
    for i in range(lists.starts[number], lists.starts[number + 1]):
        value = lists.values[i]
        if not contains(lists, whole, value) or contains(lists, without, value):
            return False
    return covers_rest(lists, number, whole, without)


@compiled
def covers_rest(lists: Any, number: Any, whole: Any, without: Any) -> Any:
    """Whether it holds all of `whole` but for `without`."""
    for i in range(lists.starts[whole], lists.starts[whole + 1]):
        value = lists.values[i]
        if not contains(lists, without, value) and not contains(lists, number, value):
            return False
    return True
