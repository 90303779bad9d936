"""`kraftpy audit` on recordings and on what is no log at all: what it prints, writes, answers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftpy.cli import main
from kraftpy.storage.record_batch import HEADER_BYTES

RECORDINGS = Path(__file__).parents[1] / "audit" / "recordings"
CLEAN = str(RECORDINGS / "kafka-4.3-churn")
BROKEN = str(RECORDINGS / "kafka-4.3-careless")
SEGMENT = f"__cluster_metadata-0/{0:020d}.log"
Output = pytest.CaptureFixture[str]


def run(*arguments: str) -> int:
    return main.run(["audit", *arguments])


def test_a_clean_log_answers_0_and_says_what_was_looked_at(capsys: Output) -> None:
    assert run(CLEAN) == 0
    out = capsys.readouterr().out
    assert out.endswith("clean\n")
    assert "of 60 had something to look at" in out
    assert "replayed   352 records" in out


def test_violations_answer_1_and_are_named_with_their_offsets(capsys: Output) -> None:
    assert run(BROKEN) == 1
    out = capsys.readouterr().out
    assert "A21 reassignment_starts_by_adding: 2 times" in out
    assert "(offset 49, churn-1-1): expected the replicas to remove at the end" in out
    assert out.endswith("5 violations\n")


def test_json_is_one_object(capsys: Output) -> None:
    assert run("--json", BROKEN) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["exit_code"], found["counts"]) == (1, {"A20": 3, "A21": 2})
    assert len(found["looked_at"]) == 60
    assert found["found"][0].startswith("A21 reassignment_starts_by_adding (offset 49")


def test_only_some_rules_may_be_asked_for(capsys: Output) -> None:
    assert run(BROKEN, "--rule", "A20") == 1
    assert run(BROKEN, "--rule", "leader_is_active") == 0
    assert run(BROKEN, "--rule", "A99") == 2
    assert "there is no rule A99: they are A1 to A60" in capsys.readouterr().err


def test_files_are_written_for_programs_and_people(tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "new" / "audit"
    assert run(BROKEN, "--out", str(out)) == 1
    assert str(out / "report.html") in capsys.readouterr().out
    rows = [json.loads(line) for line in (out / "violations.jsonl").read_text().splitlines()]
    assert [row["rule"] for row in rows] == ["A21", "A21", "A20", "A20", "A20"]
    columns = "run rule severity node offset epoch topic topic_id partition broker expected actual"
    assert set(columns.split()) < set(rows[0])
    assert json.loads((out / "result.json").read_text())["violations"] == 5
    page = (out / "report.html").read_text()
    assert "5 violations of 2 rules" in page
    assert "<h3>churn-1-1</h3>" in page
    assert "://" not in page.replace("http://www.w3.org", "")  # Nothing from elsewhere.


def test_a_clean_report_says_so(tmp_path: Path) -> None:
    assert run(CLEAN, "--out", str(tmp_path)) == 0
    page = (tmp_path / "report.html").read_text()
    assert "Clean: every rule that could be checked holds" in page
    assert "Leaders by broker" in page
    assert "Everything that was there was read and understood" in page


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "file").write_text("")
    assert run(CLEAN, "--out", str(tmp_path / "file" / "x")) == 2
    assert capsys.readouterr().err.count("\n") == 1


# -- explain and timeline --------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["A12", "a12", "12", "leader_is_active"])
def test_explain_says_what_a_rule_is(rule: str, capsys: Output) -> None:
    assert run("explain", rule) == 0
    out = capsys.readouterr().out
    assert out.startswith("A12 leader_is_active\n  A leader is registered, unfenced,")
    assert "severity  critical: " in out
    assert "needs     the metadata log" in out


def test_a_timeline_is_every_change_of_a_partition(capsys: Output) -> None:
    assert run("timeline", BROKEN, "--topic", "churn-1", "--partition", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "40"
    assert lines[2].endswith("replicas 101,102,103 isr 102 adding 101 removing 102")
    assert run("timeline", BROKEN, "--topic", "churn-1", "--partition", "1", "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (rows[2]["offset"], rows[2]["adding"]) == (49, [101])
    assert run("timeline", BROKEN, "--topic", "nobody", "--partition", "1") == 2
    assert "never mentions nobody-1" in capsys.readouterr().err


# -- what is no log --------------------------------------------------------------------------------


def corrupt(data: bytearray) -> bytes:
    data[len(data) // 2] ^= 0xFF
    return bytes(data)


def truncated(data: bytearray) -> bytes:
    return bytes(data[: len(data) - 40])


def half_a_header(data: bytearray) -> bytes:
    return bytes(data[: HEADER_BYTES // 2])


def copied(tmp_path: Path, change: Callable[[bytearray], bytes]) -> str:
    target = tmp_path / "node-1"
    shutil.copytree(Path(BROKEN) / "node-1", target)
    path = target / SEGMENT
    path.write_bytes(change(bytearray(path.read_bytes())))
    return str(target)


def test_a_corrupt_log_is_told_and_is_not_clean(tmp_path: Path, capsys: Output) -> None:
    code = run(copied(tmp_path, corrupt), "--rule", "A34")
    output = capsys.readouterr()
    assert code == 2
    assert "lost range" in output.out
    assert "Traceback" not in output.out + output.err


def test_an_unfinished_last_batch_is_told(tmp_path: Path, capsys: Output) -> None:
    """It may be in the writing; what is before it is checked."""
    assert run(copied(tmp_path, truncated)) == 1
    assert "not checked: torn tail" in capsys.readouterr().out


@pytest.mark.parametrize("change", [half_a_header, lambda _data: b""])
def test_a_log_without_a_batch_cannot_be_checked(
    change: Callable[[bytearray], bytes], tmp_path: Path, capsys: Output
) -> None:
    assert run(copied(tmp_path, change)) == 2
    assert "the logs hold no batch" in capsys.readouterr().err


def test_foreign_and_missing_directories_are_one_line_each(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("hello")
    (tmp_path / "a-file").write_text("hello")
    paths = [str(tmp_path / name) for name in ("foreign", "missing", "a-file")]
    assert run(*paths) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    for path, line in zip(paths, errors, strict=True):
        assert line.startswith(f"kraftpy: {path}: ")


def test_a_good_log_beside_a_foreign_directory_is_not_called_clean(
    tmp_path: Path, capsys: Output
) -> None:
    assert run(CLEAN, str(tmp_path)) == 2
    assert "no metadata log is in it" in capsys.readouterr().err


def test_a_log_of_data_is_not_taken_for_metadata(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(b"\x00" * 4096)
    assert run(str(tmp_path)) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_bad_flags_are_one_line(capsys: Output) -> None:
    assert run(CLEAN, "--conf", "nonsense") == 2
    assert run() == 0  # The help.
    assert run(CLEAN, "--engine", "other") == 2
    assert "Traceback" not in capsys.readouterr().err
