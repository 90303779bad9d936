"""The simulator's command line; `make sim` calls it.

A failing seed is shrunk, its plan saved beside the others, and the command that repeats it printed.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.sim.controller.plan import draw_controller_plan
from tests.sim.plan import Plan, draw_plan
from tests.sim.plan_file import load, save
from tests.sim.report import Summary
from tests.sim.runner import Result, run_plan
from tests.sim.shrink import shrink


def _command(plan: Plan) -> str:
    return "make sim-controller" if plan.knobs.brokers else "make sim"


def _explain(result: Result, console: Console, *, shrinks: bool) -> None:
    violation = result.violation
    assert violation is not None
    seed, command = result.plan.seed, _command(result.plan)
    console.print(f"[red]seed {seed}: {violation.rule}[/red]: {violation.text}", highlight=False)
    console.print(f"  {command} SEED={seed}", highlight=False)
    if shrinks:
        small = shrink(result.plan, lambda plan: run_plan(plan).violation)
        path = save(small, violation.rule)
        console.print(
            f"  with {len(small.faults)} of {len(result.plan.faults)} faults: "
            f"{command} PLAN={path.relative_to(Path.cwd())}",
            highlight=False,
        )


def _runs(
    draw: Callable[[int, int | None], Plan], seeds: range, seconds: int | None, console: Console
) -> Iterator[Result]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    hidden = not console.is_terminal
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=hidden) as progress:
        task = progress.add_task("simulating", total=len(seeds))
        for seed in seeds:
            yield run_plan(draw(seed, seconds))
            progress.advance(task)


@click.command()
@click.option("--seed", type=int, help="Run one seed.")
@click.option("--seeds", type=int, default=20, show_default=True, help="Run so many seeds.")
@click.option("--first", type=int, default=0, show_default=True, help="Begin with this seed.")
@click.option("--seconds", type=int, help="Let faults strike for so long, in simulated time.")
@click.option("--plan", "plan_path", type=click.Path(path_type=Path, exists=True), help="A file.")
@click.option("--controller", is_flag=True, help="Run controllers, brokers and admins on top.")
@click.option("--trace", is_flag=True, help="Tell what happens.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--no-shrink", is_flag=True, help="Leave failing plans as they are.")
def main(
    seed: int | None,
    seeds: int,
    first: int,
    seconds: int | None,
    plan_path: Path | None,
    controller: bool,
    trace: bool,
    as_json: bool,
    no_shrink: bool,
) -> None:
    """Simulate the quorum under faults and check that it keeps its promises."""
    console = Console(stderr=as_json)
    draw = draw_controller_plan if controller else draw_plan
    if plan_path is not None or trace or (seed is not None and not as_json):
        plan = load(plan_path).plan if plan_path else draw(seed or first, seconds)
        result = run_plan(plan, click.echo if trace else None)
        console.print(f"seed {plan.seed}, trace {result.digest}", highlight=False)
        results: Iterator[Result] = iter([result])
    else:
        wanted = range(first, first + seeds) if seed is None else range(seed, seed + 1)
        results = _runs(draw, wanted, seconds, console)
    summary = Summary()
    for result in results:
        summary.add(result)
        if result.violation is not None:
            _explain(result, console, shrinks=not no_shrink and plan_path is None)
    if as_json:
        click.echo(json.dumps(summary.to_json()))
    else:
        console.print(summary.table())
    sys.exit(1 if summary.failed else 0)


if __name__ == "__main__":
    main()
