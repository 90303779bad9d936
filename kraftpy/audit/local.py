"""The engine without a JVM: `audit(paths)` -> AuditResult.

It reads the directories as the Spark pipeline does, and judges by the same rule book.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from kraftpy.audit.rules.rule import Defaults, Evidence
from kraftpy.audit.violations import AuditResult

# Told (what is being done, records or batches done, all of them; 0 if nobody knows yet).
Progress: TypeAlias = Callable[[str, int, int], None]
# What nodes recorded beside the log: the evidence for the step that begins at an offset.
EvidenceAt: TypeAlias = Mapping[int, Evidence]


def audit(
    paths: Sequence[str],
    *,
    defaults: Defaults | None = None,
    evidence: EvidenceAt | None = None,
    state_directory: str | None = None,
    rules: Sequence[str] | None = None,
    output: str | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Audit the metadata logs in `paths`: each a `__cluster_metadata-0`, a node's data directory,
    or a directory of such. Never raises for what is in them: see AuditResult.problems.

    `rules`: only these ("A12"). `output`: a directory for violations.parquet, violations.jsonl and
    result.json. `state_directory`: read only what is new since the last run that used it.
    """
    raise NotImplementedError
