"""The command line: groups in the help, and one line instead of a traceback."""

import json
import os
import subprocess
import sys
from typing import IO

import click
import pytest

from kraftpy import __version__
from kraftpy.cli import main
from kraftpy.config import SETTINGS
from kraftpy.errors import ConfigError, StorageError

Output = pytest.CaptureFixture[str]


def test_version_is_printed(capsys: Output) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"kraftpy {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_shows_the_commands_in_groups(arguments: list[str], capsys: Output) -> None:
    assert main.run(arguments) == 0
    words = capsys.readouterr().out.split()
    places = [words.index(w) for w in ("Run:", "dev", "Inspect:", "log", "Configure:", "config")]
    assert places == sorted(places)


def test_version_and_help_import_no_command() -> None:
    """What --version loads is what everybody waits for."""
    program = (
        "import sys; from kraftpy.cli.main import run; run(['--version']); run(['--help']);"
        "heavy = {'asyncio', 'rich', 'structlog', 'msgpack', 'kraftpy.cli.dev', 'kraftpy.config'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["deb"], "kraftpy: No such command 'deb'. Did you mean 'dev'?\n"),
        (["config", "lst"], "kraftpy: No such command 'lst'. Did you mean 'list'?\n"),
        (["dev", "--data-dri", "x"], "Did you mean '--data-dir'?\n"),
        (["dev", "--set", "log.rol.ms=5"], "did you mean log.roll.ms?\n"),
        (["dev", "--config", "/no/such.toml"], "/no/such.toml: cannot read the config file: "),
        (["dev", "--config", ""], "--config: expected the name of a file"),
        (["dev", "--config", "a.toml", "--config", "b.toml"], "--config is given twice"),
        (["dev", "--set", "data.dir"], "--set: expected key=value, not 'data.dir'\n"),
        (
            ["dev", "--data-dir", "a", "--set", "data.dir=b"],
            "data.dir is set twice: --data-dir and --set; remove one\n",
        ),
        (
            ["dev", "--data-dir", "a", "--data-dir", "b"],
            "data.dir is set twice: --data-dir and --data-dir; remove one\n",
        ),
        (["dev", "--log-level", "loud"], "--log-level: logging.level must be one of debug, info"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_change(
    arguments: list[str], message: str, capsys: Output
) -> None:
    assert main.run(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert output.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigError("two\nlines"), 2), (StorageError("two\nlines"), 1)]
)
def test_a_refusal_of_any_command_is_one_line(
    error: Exception, code: int, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    def refuse() -> None:
        raise error

    monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: refuse)
    assert main.run(["refuse"]) == code
    assert capsys.readouterr().err == "kraftpy: two lines\n"


def test_an_interrupt_is_not_a_traceback(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: interrupted)
    assert main.run(["interrupted"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_under_the_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = run_process("config", "list", stdout=full)
    assert done.stderr == "kraftpy: cannot write the output: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("arguments", [("config", "list"), ("config", "list", "--json"), ("-h",)])
def test_a_reader_that_stops_reading_ends_it_in_silence(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run_process(*arguments, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def run_process(*arguments: str, stdout: IO[str] | int) -> subprocess.CompletedProcess[str]:
    program = "from kraftpy.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_config_list_prints_every_key_default_and_variable(capsys: Output) -> None:
    assert main.run(["config", "list"]) == 0
    printed = capsys.readouterr().out
    for setting in SETTINGS:
        assert setting.key in printed
        assert setting.environment_name in printed
        assert (str(setting.default) if setting.default is not None else "(unset)") in printed


def test_config_list_as_json_says_the_same(capsys: Output) -> None:
    assert main.run(["config", "list", "--json"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == [setting.key for setting in SETTINGS]
    assert rows["log.index.interval.bytes"] == {
        "key": "log.index.interval.bytes",
        "type": "int",
        "default": 4096,
        "allowed": "a whole number from 0 to 2147483647",
        "environment": "KRAFTPY_LOG_INDEX_INTERVAL_BYTES",
        "meaning": "One index entry is written for about this many bytes of log.",
    }
