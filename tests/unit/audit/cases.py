"""For every rule logs that break it, in their last batch only, and logs that must not be flagged.

A log that breaks a rule may have to break others with it: `also` names them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.unit.audit.logs import ORDERS, Log

KEY = (ORDERS, 0)


@dataclass(frozen=True)
class Case:
    rule: int
    name: str
    write: Callable[[], Log]
    also: frozenset[int] = frozenset()


BREAKING: list[Case] = []
KEEPING: list[Case] = []
Written = Callable[[], Log]


def breaks(rule: int, *also: int) -> Callable[[Written], Written]:
    def keep(write: Written) -> Written:
        BREAKING.append(Case(rule, write.__name__, write, frozenset(also)))
        return write

    return keep


def keeps(*rules: int) -> Callable[[Written], Written]:
    def keep(write: Written) -> Written:
        KEEPING.extend(Case(rule, write.__name__, write) for rule in rules)
        return write

    return keep
