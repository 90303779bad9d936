"""The short version of the simulation: some seeds, every saved plan, the same trace twice.

The long one is `make sim SEEDS=200`. What is checked is in oracles.py; that the checks see what
they should is shown by planted bugs: some here, all of them with `make sim-mutants`.
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.mutants import MUTANTS, find, planted
from tests.sim.plan import Plan, draw_plan
from tests.sim.plan_file import PLANS, load
from tests.sim.runner import run_plan
from tests.sim.shrink import shrink

SAVED = sorted(PLANS.glob("*.json"))
QUICKLY_SEEN = (
    "ack_before_fsync",
    "vote_not_persisted",
    "truncation_without_conflict",
    "commit_index_restored",
    "leader_never_steps_down",
    "older_epoch_accepted",
    "lost_leadership_is_definite",
)


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_breaks_no_rule(seed: int) -> None:
    result = run_plan(draw_plan(seed, seconds=15))
    assert result.violation is None, f"make sim SEED={seed}"
    assert result.counts["acked"] > 0


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_a_saved_plan_breaks_no_rule(path: Path) -> None:
    saved = load(path)
    assert run_plan(saved.plan).violation is None, f"make sim PLAN={path.name}"


@pytest.mark.parametrize("name", QUICKLY_SEEN)
def test_a_planted_bug_is_seen_within_a_few_seeds(name: str) -> None:
    assert find(MUTANTS[name], range(30), seconds=20) is not None


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.directed])
def test_a_directed_test_fails_without_its_protection(name: str) -> None:
    file, _, test = MUTANTS[name].directed.partition("::")
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    with planted(MUTANTS[name]), pytest.raises(Exception):  # noqa: B017
        getattr(module, test)()


_PRINT_DIGEST = """
import sys
from tests.sim.plan import draw_plan
from tests.sim.runner import run_plan
for seed in map(int, sys.argv[1:]):
    sys.stdout.write(run_plan(draw_plan(seed, seconds=6)).digest + " ")
"""


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    """Whatever its hash seed is: nothing may depend on the order of a set."""
    root, seeds = Path(__file__).parents[2], (1, 2, 5)
    digests = [run_plan(draw_plan(seed, seconds=6)).digest for seed in seeds]
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", _PRINT_DIGEST, *map(str, seeds)],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == digests


def test_another_seed_gives_another_trace() -> None:
    first, second = (run_plan(draw_plan(seed, seconds=3)) for seed in (1, 2))
    assert first.digest != second.digest


def test_a_plan_survives_json() -> None:
    plan = draw_plan(7)
    assert Plan.from_json(plan.to_json()) == plan


def test_a_failing_plan_is_shrunk_to_what_it_needs() -> None:
    with planted(MUTANTS["leader_never_steps_down"]):
        plan = draw_plan(1, seconds=10)
        assert run_plan(plan).violation is not None
        small = shrink(plan, lambda each: run_plan(each).violation, runs_max=25)
        found = run_plan(small).violation
    assert found is not None
    assert found.rule == "a leader alone steps down"
    assert len(small.faults) < len(plan.faults) / 2
