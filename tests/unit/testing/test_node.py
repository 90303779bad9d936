"""Faults and planted bugs are for test nodes only: the command `kraftpy` knows none of them."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kraftpy.cli.broker import broker
from kraftpy.cli.quorum import quorum
from kraftpy.testing.mutants import MUTANTS
from tests.tidy import checks

ROOT = Path(__file__).parents[3]
SWITCHES = ("--mutant", "--clock-file", "--fault-socket", "--graveyard")


def run(*words: str, code: str = "from kraftpy.cli.main import main; main()", **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "", **more},
    )
    return f"{done.returncode} {done.stdout}{done.stderr}"


@pytest.mark.parametrize("command", [quorum, broker], ids=["quorum", "broker"])
@pytest.mark.parametrize("switch", SWITCHES)
def test_the_command_refuses_the_switches_of_test_nodes(
    command: click.Command, switch: str
) -> None:
    said = CliRunner().invoke(command, [switch, "ack_before_fsync"])
    assert said.exit_code == 2
    assert "No such option" in said.output


def test_no_environment_variable_plants_anything() -> None:
    assert "sets nothing" in run("quorum", KRAFTPY_MUTANT="ack_before_fsync")


def test_nothing_that_the_command_loads_can_plant_a_bug() -> None:
    sources = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "kraftpy").rglob("*.py")
    }
    texts = {name: path.read_text() for name, path in sources.items()}
    unreached = checks.dead_modules(texts, ["kraftpy.cli.main"])
    mine = {f"kraftpy.testing.{name}" for name in ("node", "mutants", "fault_control")}
    assert mine <= set(unreached)


def test_each_mutant_finds_what_it_takes_away() -> None:
    code = f"from kraftpy.testing.mutants import plant\nfor name in {sorted(MUTANTS)}: plant(name)"
    assert run(code=code) == "0 "


def test_a_mutant_that_does_not_exist_is_refused() -> None:
    said = run(code="from kraftpy.testing.node import main; main(['quorum', '--mutant', 'x'])")
    assert said.startswith("2 ")
    assert "invalid choice" in said
