"""The rule book: what must hold in a metadata log, as named rules with pure checks."""

from kraftpy.audit.rules.book import RULES
from kraftpy.audit.rules.context import History
from kraftpy.audit.rules.engine import LogAudit, check_batch, check_image
from kraftpy.audit.rules.rule import (
    Defaults,
    Evidence,
    IsrRequest,
    Rule,
    Severity,
    Violation,
)

__all__ = [
    "RULES",
    "Defaults",
    "Evidence",
    "History",
    "IsrRequest",
    "LogAudit",
    "Rule",
    "Severity",
    "Violation",
    "check_batch",
    "check_image",
]
