"""The rules that the oracle does not decide, each with the reason; it decides all others.

Where Apache Kafka and kraftpy differ in custom, its SQL has kraftpy's: what Kafka may do besides
(docs/audit.md has the list) would be flagged, so those rules are left out for Kafka's logs.
"""

from typing import Final

from kraftpy.audit.rules.book import RULES

_DATA: Final = "it is about partitions of data, and kraft_log has no table of them"
_ACKS: Final = "it needs what producers were told, and kraft_log has no table of that"
_CUSTOM: Final = "the log is Kafka's, whose custom the SQL does not have"

UNDECIDED: Final[dict[int, str]] = {
    54: _ACKS,
    55: _DATA,
    56: _DATA,
    57: _ACKS,
    58: _DATA,
    60: _DATA,
}
UNDECIDED_OF_KAFKA: Final[dict[int, str]] = dict.fromkeys(
    (7, 9, 10, 11, 14, 16, 17, 22, 26), _CUSTOM
)
DECIDED: Final = frozenset(RULES) - frozenset(UNDECIDED)
