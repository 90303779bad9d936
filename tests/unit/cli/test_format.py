"""`kraftpy format --broker`: identities for all directories of a broker, once."""

import re
from pathlib import Path

import pytest

from kraftpy.broker.log_dirs import LogDirs
from kraftpy.cli import main
from kraftpy.storage.file_layer import OsFiles

CLUSTER = "aGVsbG8gdGhlcmUgd29ybA"


def run(*arguments: str) -> int:
    return main.run(["format", "--broker", "--node-id", "101", *arguments])


def test_every_log_dir_gets_an_identity_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dirs = f"log.dirs={tmp_path}/a,{tmp_path}/b"
    assert run("--set", dirs, "--cluster-id", CLUSTER) == 0
    first = capsys.readouterr().out.splitlines()
    assert [bool(re.search(rf"formatted: cluster {CLUSTER}, node 101", x)) for x in first] == [
        True,
        True,
    ]
    assert len(set(re.findall(r"directory ([\w-]{22})", "".join(first)))) == 2
    assert run("--set", dirs) == 0
    again = capsys.readouterr().out.splitlines()
    assert [x.replace("has it already", "formatted") for x in again] == first


def test_a_clean_shutdown_is_not_forgotten_by_formatting(tmp_path: Path) -> None:
    dirs = f"log.dirs={tmp_path}/a"
    assert run("--set", dirs, "--cluster-id", CLUSTER) == 0
    LogDirs.open(OsFiles(), [f"{tmp_path}/a"], 101).close(clean=True, broker_epoch=9)
    assert run("--set", dirs) == 0
    found = LogDirs.open(OsFiles(), [f"{tmp_path}/a"], 101)
    assert found.previous_broker_epoch == 9
    found.put_back()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((), "cluster.id is not set"), (("--cluster-id", "short"), "cluster.id: ")],
)
def test_refusals_are_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    assert run("--set", f"log.dirs={tmp_path}/a", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
