"""A run that goes on from the last one tells what a full run tells, wherever the last one ended."""

import json
from pathlib import Path

import pytest

from kraftpy.audit.local import SCREENED, WHOLE, Options, audit
from kraftpy.audit.state import STATE_FILE
from kraftpy.audit.state import audit as audit_with_state
from kraftpy.audit.violations import AuditResult
from kraftpy.storage.record_batch import read_header
from tests.unit.audit import cluster_logs, partition_logs, placement_logs
from tests.unit.audit.cases import BREAKING, KEEPING, Case
from tests.unit.audit.log_files import batches_of, evidence_of, write_segment

LOADED = (partition_logs, placement_logs, cluster_logs)


def told(result: AuditResult) -> tuple[object, ...]:
    rows = [str(each) for each in result.violations]
    return rows, result.counts, result.looked_at, result.unchecked, result.records


@pytest.mark.parametrize(
    "case", [*BREAKING, *KEEPING], ids=lambda case: f"A{case.rule}-{case.name}"
)
def test_a_run_in_parts_tells_what_a_whole_one_does(case: Case, tmp_path: Path) -> None:
    log = case.write()
    batches, place, state = batches_of(log), tmp_path / "log", str(tmp_path / "state")
    options = Options(mode=WHOLE, evidence=evidence_of(log))
    for count in sorted({1, len(batches) // 2, len(batches) - 1, len(batches)} - {0}):
        write_segment(place, batches[:count])
        parts = audit_with_state([str(place)], options, state)
        assert told(parts) == told(audit([str(place)], options))


def test_the_state_is_that_of_either_way_to_replay(tmp_path: Path) -> None:
    pytest.importorskip("numba", reason="the compiled loops need the audit extra")
    log = next(case for case in BREAKING if case.name == "a_partition_epoch_that_jumps").write()
    batches, place, state = batches_of(log), tmp_path / "log", tmp_path / "state"
    for mode in (SCREENED, WHOLE, SCREENED):
        write_segment(place, batches[:-1] if mode == SCREENED else batches)
        result = audit_with_state([str(place)], Options(mode=mode), str(state))
        assert told(result) == told(audit([str(place)], Options(mode=mode)))
    kept = json.loads((state / STATE_FILE).read_text())
    assert kept["offset"] == read_header(batches[-1]).base_offset


def test_a_log_that_was_cut_and_written_anew_is_read_from_the_start(tmp_path: Path) -> None:
    case = next(case for case in KEEPING if case.name == "a_controlled_shutdown")
    other = next(case for case in BREAKING if case.name == "a_partition_epoch_that_jumps")
    place, state = tmp_path / "log", str(tmp_path / "state")
    write_segment(place, batches_of(case.write()))
    audit_with_state([str(place)], Options(), state)
    write_segment(place, batches_of(other.write()))
    found = audit_with_state([str(place)], Options(), state)
    assert told(found) == told(audit([str(place)], Options()))
    assert found.counts["A6"] == 1


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 9}', b'{"version": 1}', b"[]"])
def test_a_state_that_makes_no_sense_is_not_used(damage: bytes, tmp_path: Path) -> None:
    case = next(case for case in BREAKING if case.name == "a_partition_epoch_that_jumps")
    place, state = tmp_path / "log", tmp_path / "state"
    write_segment(place, batches_of(case.write()))
    state.mkdir()
    (state / STATE_FILE).write_bytes(damage)
    found = audit_with_state([str(place)], Options(), str(state))
    assert told(found) == told(audit([str(place)], Options()))
