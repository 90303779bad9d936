"""The rules as plain SQL over the tables of `kraft_log`: an oracle for the other engines."""

from kraftpy.audit.catalyst.engine import audit
from kraftpy.audit.catalyst.undecided import DECIDED, UNDECIDED, UNDECIDED_OF_KAFKA

__all__ = ["DECIDED", "UNDECIDED", "UNDECIDED_OF_KAFKA", "audit"]
