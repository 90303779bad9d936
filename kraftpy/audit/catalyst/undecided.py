"""The rules that the oracle does not decide, each with the reason; it decides all others."""

from typing import Final

from kraftpy.audit.rules.book import RULES

_DATA: Final = "it is about partitions of data, and kraft_log has no table of them"
_ACKS: Final = "it needs what producers were told, and kraft_log has no table of that"

UNDECIDED: Final[dict[int, str]] = {
    54: _ACKS,
    55: _DATA,
    56: _DATA,
    57: _ACKS,
    58: _DATA,
    60: _DATA,
}
DECIDED: Final = frozenset(RULES) - frozenset(UNDECIDED)
