"""Each fault is found among good records, and nothing else: the short version of audit-proof.

By the local engine through its compiled loops. Whoever judges the engines is judged here, too: a
fault that is not found, and one that nobody planted, must be told.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the compiled loops need the audit extra")

from kraftpy.audit.local import SCREENED, Options, audit
from kraftpy.audit.run import LOCAL
from kraftpy.audit.violations import AuditResult
from tests.audit_proof.good import Good, good_records
from tests.audit_proof.planting import every_case, plots, write_plot, wrong
from tests.audit_proof.proving import ALL, Proof, Prover, differences

RECORDS = 12_000


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    return good_records(RECORDS, tmp_path_factory.mktemp("good"))


def screened(paths: Sequence[str], options: Options) -> AuditResult:
    return audit(paths, replace(options, mode=SCREENED))


def test_faults_among_good_records_are_found_and_nothing_else(good: Good, tmp_path: Path) -> None:
    """And every rule fires: one that never did in a test does not ship."""
    proof = Proof()
    prover = Prover(tmp_path, RECORDS)
    prover.logs(proof, good, {LOCAL: screened})
    prover.rest(proof, good, [LOCAL])
    assert proof.wrong == []
    assert proof.fired[LOCAL] == ALL
    assert len(ALL) == 60
    assert proof.planted > 100


def test_a_fault_that_is_not_found_is_told(good: Good, tmp_path: Path) -> None:
    cases = plots(every_case())["plain"][:12]
    plot = write_plot("plain", cases, good, tmp_path)
    rule = cases[0].rule
    blind = Options(evidence=plot.evidence, rules=ALL - {f"A{rule}"})
    found = wrong(plot, audit([str(tmp_path)], blind))
    names = {case.name for case in cases if rule in (case.rule, *case.also)}
    assert {line.split(":")[0] for line in found} == names


def test_a_fault_that_nobody_planted_is_told(good: Good, tmp_path: Path) -> None:
    cases = plots(every_case())["plain"][:12]
    plot = write_plot("plain", cases, good, tmp_path)
    result = audit([str(tmp_path)], Options(evidence=plot.evidence))
    extra = wrong(replace(plot, planted=plot.planted[1:]), result)[0]
    assert extra.startswith("found among good records")
    assert list(differences(frozenset({1}), [2], result, 0))[:2] == [
        "not found: 1",
        "found, and not due: 2",
    ]
