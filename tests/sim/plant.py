"""Plants every bug, searches seeds until a rule breaks, and writes MUTANTS.md; `make sim-mutants`.

What is found is shrunk and saved as a plan: the schedules that need a protection are worth keeping.
"""

import sys
from pathlib import Path

import click
from rich.console import Console

from tests.sim.controller.mutants import CONTROLLER_MUTANTS
from tests.sim.mutants import MUTANTS, Mutant, find, planted
from tests.sim.plan_file import save
from tests.sim.runner import Result, run_plan
from tests.sim.shrink import shrink

_HERE = Path(__file__).parent
_HEAD = """# Planted bugs

Written by `{command}`. Each bug takes one protection away. It is caught by the first seed
that breaks a rule, or by the directed test that is named; `make test` sees that each of those
tests fails with its bug planted. Seeds are tried from 0 to {last}, of plans that are drawn as the
bug's entry says. What is left of them after shrinking is in `tests/sim/plans/`, and `make test`
replays it without the bugs.

| planted bug | what is missing | seed | rule that broke | faults left of | or directed test |
|---|---|---|---|---|---|
"""


def _row(name: str, mutant: Mutant, result: Result | None, faults_left: int) -> str:
    if result is None or result.violation is None:
        found = "not found | | "
    else:
        rule, faults = result.violation.rule, len(result.plan.faults)
        found = f"{result.plan.seed} | {rule} | {faults_left} of {faults}"
    return f"| {name} | {mutant.missing} | {found} | {mutant.directed} |\n"


@click.command()
@click.option("--seeds", default=60, show_default=True, help="How many seeds to try.")
@click.option("--runs", default=80, show_default=True, help="How many runs to shrink with.")
@click.option("--controller", is_flag=True, help="Those of the controller, not of the quorum.")
@click.argument("names", nargs=-1)
def main(seeds: int, runs: int, controller: bool, names: tuple[str, ...]) -> None:
    """Plant all bugs, or those that are named, and look whether they are seen."""
    console = Console()
    mutants = CONTROLLER_MUTANTS if controller else MUTANTS
    rows, missed = [], []
    for name in names or mutants:
        with console.status(f"planting {name}"):
            result, left = find(mutants[name], range(seeds)), 0
            if result is not None and result.violation is not None:
                with planted(mutants[name]):
                    small = shrink(result.plan, lambda p: run_plan(p).violation, runs_max=runs)
                left = len(small.faults)
                save(small, result.violation.rule, name)
        rows.append(_row(name, mutants[name], result, left))
        console.print(rows[-1].strip(" |\n"), highlight=False, soft_wrap=True)
        if result is None and not mutants[name].directed:
            missed.append(name)
    if not names:
        command = "make sim-mutants" + (" ARGS=--controller" if controller else "")
        directory = _HERE / "controller" if controller else _HERE
        head = _HEAD.format(command=command, last=seeds - 1)
        (directory / "MUTANTS.md").write_text(head + "".join(rows))
    sys.exit(f"not caught: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
