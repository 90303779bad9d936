"""The words that the oracle's SQL is written in: names of record types, and small SQL functions.

The functions are SQL's own (CREATE FUNCTION ... RETURN expression), which Catalyst puts in the
place of their calls: nothing here runs in Python. A `Check` is one condition over a view that
breaks a rule.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

FAR: Final = "9223372036854775807L"
# Record types by the number that the column `type` has.
REGISTER: Final = 0
UNREGISTER: Final = 1
TOPIC: Final = 2
PARTITION: Final = 3
CONFIG: Final = 4
CHANGE: Final = 5
FENCE: Final = 7
UNFENCE: Final = 8
REMOVE_TOPIC: Final = 9
FEATURE: Final = 12
PRODUCER_IDS: Final = 15
BROKER_CHANGE: Final = 17
BEGIN: Final = 23
END: Final = 24
ABORT: Final = 25
CLEAR_ELR: Final = 28
BROKER_TYPES: Final = f"({REGISTER}, {UNREGISTER}, {FENCE}, {UNFENCE}, {BROKER_CHANGE})"
MARKERS: Final = f"({BEGIN}, {END}, {ABORT})"

MIGRATING: Final = "'AAAAAAAAAAAAAAAAAAAAAA'"
UNASSIGNED: Final = "'AAAAAAAAAAAAAAAAAAAAAQ'"
ELR: Final = "'eligible.leader.replicas.version'"
MIN_ISR: Final = "'min.insync.replicas'"
UNCLEAN: Final = "'unclean.leader.election.enable'"

_IDS: Final = "array<int>"
FUNCTIONS: Final[tuple[tuple[str, str, str], ...]] = (
    ("within", f"a {_IDS}, b {_IDS}", "size(array_except(a, b)) = 0"),
    ("same_set", f"a {_IDS}, b {_IDS}", "within(a, b) and within(b, a)"),
    ("meet", f"a {_IDS}, b {_IDS}", "size(array_intersect(a, b)) > 0"),
    ("is_empty", f"a {_IDS}", "size(a) = 0"),
    ("has_twice", f"a {_IDS}", "size(array_distinct(a)) <> size(a)"),
    ("has", f"a {_IDS}, b int", "array_contains(a, b)"),
)


def define_words(run: Callable[[str], object]) -> None:
    """Make the functions known to a session, whose statements `run` runs."""
    for name, parameters, body in FUNCTIONS:
        run(
            f"create or replace temporary function {name}({parameters}) returns boolean "
            f"return coalesce({body}, false)"
        )


@dataclass(frozen=True, slots=True)
class Check:
    """What breaks a rule, as a condition over a row of a view.

    `brokers` is an expression: one violation for each of the ids in it. Without it the violation
    is about no broker in particular.
    """

    rule: int
    breaks: str
    brokers: str = "array(cast(null as int))"

    @property
    def sql(self) -> str:
        found = f"transform({self.brokers}, b -> named_struct('rule', {self.rule}, 'broker', b))"
        return f"if(coalesce({self.breaks}, false), {found}, array())"


def violations(view: str, checks: Sequence[Check], shown: str, subject: str) -> str:
    """Every violation in a view, in one pass over it. `shown`: what a reader sees of the row;
    `subject`: its columns topic_id and partition. SQL functions may not be inside an explode."""
    found = ",\n  ".join(check.sql for check in checks)
    return f"""
select log, found.rule, offset, epoch, {subject}, found.broker, {shown} as actual
from (select *, explode(all_found) as found from (select *, concat(
  {found}) as all_found from {view}))"""
