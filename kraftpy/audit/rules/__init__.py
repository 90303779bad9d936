"""The rule book: what must hold in a metadata log, as named rules with pure checks."""

from kraftpy.audit.rules import data_logs, entities, node_logs, node_records, rows
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
    Writer,
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
    "Writer",
    "check_batch",
    "check_image",
    "data_logs",
    "entities",
    "node_logs",
    "node_records",
    "rows",
]
