"""The engines agree: what the compiled loops leave out breaks no rule, and nothing is added."""

from pathlib import Path

import pytest

from kraftpy.audit.local import SCREENED, WHOLE, Options, audit
from kraftpy.audit.violations import AuditResult
from tests.unit.audit import cluster_logs, partition_logs, placement_logs
from tests.unit.audit.cases import BREAKING, KEEPING, Case
from tests.unit.audit.log_files import batches_of, evidence_of, write_segment
from tests.unit.audit.logs import Log

pytest.importorskip("numba", reason="the compiled loops need the audit extra")
LOADED = (partition_logs, placement_logs, cluster_logs)
ALL = [*BREAKING, *KEEPING]
# The cases have no LeaderChange, which A39 misses.
ONLY = frozenset(f"A{number}" for number in range(1, 61) if number != 39)


def run(log: Log, directory: Path, mode: str) -> AuditResult:
    write_segment(directory, batches_of(log))
    options = Options(mode=mode, evidence=evidence_of(log), rules=ONLY)
    return audit([str(directory)], options)


def rows(result: AuditResult) -> list[str]:
    return [str(each) for each in result.violations]


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"A{case.rule}-{case.name}")
def test_the_compiled_replay_points_the_rule_book_at_all_it_would_find(
    case: Case, tmp_path: Path
) -> None:
    whole = run(case.write(), tmp_path / "a", WHOLE)
    screened = run(case.write(), tmp_path / "b", SCREENED)
    assert rows(screened) == rows(whole)
    assert screened.counts == whole.counts
    assert screened.looked_at == whole.looked_at
    if case in BREAKING and case.rule <= 45:
        assert whole.counts[f"A{case.rule}"] > 0
