"""Each fault is found among good records, and nothing else: the short version of audit-proof."""

from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the compiled loops need the audit extra")

from kraftpy.audit.local import SCREENED, Options, audit
from tests.audit_proof import Good, good_records, write_case, wrong
from tests.unit.audit.cases import BREAKING, Case
from tests.unit.audit.log_files import evidence_of

RECORDS = 12_000


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    return good_records(RECORDS, tmp_path_factory.mktemp("good"))


@pytest.mark.parametrize("case", BREAKING, ids=lambda case: f"A{case.rule}-{case.name}")
def test_a_fault_among_good_records_is_found_and_nothing_else(
    case: Case, good: Good, tmp_path: Path
) -> None:
    log = write_case(case, good, tmp_path)
    result = audit([str(tmp_path)], Options(mode=SCREENED, evidence=evidence_of(log)))
    assert wrong(case, log, good, result) is None
