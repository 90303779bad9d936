"""The short version of the simulation with controllers; the long one is `make sim-controller`.

What is checked is in controller/oracles.py and in the rule book. That the checks see what they
should is shown by planted bugs: some here, all of them with `make sim-mutants ARGS=--controller`,
which saves plans that test_simulation.py replays.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.controller.history import Register
from tests.sim.controller.mutants import CONTROLLER_MUTANTS
from tests.sim.controller.plan import (
    draw_controller_plan,
    draw_stale_leader_plan,
    draw_torn_decision_plan,
)
from tests.sim.mutants import find, planted
from tests.sim.plan import Plan
from tests.sim.runner import run_plan
from tests.sim.shrink import shrink

QUICKLY_SEEN = (
    "answer_before_commit",
    "lost_leadership_is_refused",
    "read_without_barrier",
    "speculative_image_kept",
    "sessions_not_restarted",
    "fence_without_isr_changes",
    "unfenced_before_caught_up",
)


@pytest.mark.parametrize("seed", range(12))
def test_a_seed_breaks_no_rule(seed: int) -> None:
    result = run_plan(draw_controller_plan(seed, seconds=12))
    assert result.violation is None, f"make sim-controller SEED={seed}"
    assert result.counts["decisions"] > 0
    assert result.counts["answers"] > 0


@pytest.mark.parametrize("draw", [draw_stale_leader_plan, draw_torn_decision_plan])
def test_a_seed_with_a_certain_trouble_breaks_no_rule(draw: object) -> None:
    assert callable(draw)
    assert run_plan(draw(1, 12)).violation is None


@pytest.mark.parametrize("name", QUICKLY_SEEN)
def test_a_planted_bug_is_seen_within_a_few_seeds(name: str) -> None:
    assert find(CONTROLLER_MUTANTS[name], range(12), seconds=15) is not None


_PRINT_DIGEST = """
import sys
from tests.sim.controller.plan import draw_controller_plan
from tests.sim.runner import run_plan
for seed in map(int, sys.argv[1:]):
    sys.stdout.write(run_plan(draw_controller_plan(seed, seconds=5)).digest + " ")
"""


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    """Whatever its hash seed is: no decision may depend on the order of a set."""
    root, seeds = Path(__file__).parents[2], (1, 3)
    digests = [run_plan(draw_controller_plan(seed, seconds=5)).digest for seed in seeds]
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


def test_a_plan_with_brokers_survives_json() -> None:
    plan = draw_controller_plan(7)
    assert plan.knobs.brokers > 0
    assert Plan.from_json(plan.to_json()) == plan


def test_a_failing_plan_is_shrunk_to_what_it_needs() -> None:
    mutant = CONTROLLER_MUTANTS["fence_without_isr_changes"]
    found = find(mutant, range(12), seconds=10)
    assert found is not None
    plan = found.plan
    with planted(mutant):
        small = shrink(plan, lambda each: run_plan(each).violation, runs_max=6)
        assert run_plan(small).violation is not None
    assert len(small.faults) < len(plan.faults)
    assert small.knobs.brokers > 0


# -- the check of histories ------------------------------------------------------------------------


def written(*values: str) -> Register:
    register = Register()
    for offset, value in enumerate(values):
        register.write(offset, value)
    return register


def test_a_read_of_what_is_told_already_is_right() -> None:
    register = written("a", "b")
    assert register.told_write(1, 0) is None
    assert register.told_read(lambda state: state == "b", register.floor) is None


def test_a_read_that_was_asked_before_may_see_the_state_before() -> None:
    register = written("a", "b")
    floor = register.floor
    assert register.told_write(1, floor) is None
    assert register.told_read(lambda state: state == "a", floor) is None
    assert register.floor == 2


def test_a_stale_read_is_seen() -> None:
    register = written("a", "b")
    assert register.told_write(1, 0) is None
    assert register.told_read(lambda state: state == "a", register.floor) is not None


def test_a_read_of_what_was_never_committed_is_seen() -> None:
    assert written("a").told_read(lambda state: state == "b", 0) is not None


def test_a_write_behind_what_was_told_is_seen() -> None:
    register = written("a", "b")
    assert register.told_read(lambda state: state == "b", 0) is None
    assert register.told_write(0, register.floor) is not None


def test_a_vague_read_is_taken_for_the_earliest_that_it_may_have_seen() -> None:
    register = written("a", "b", "c")
    assert register.told_read(lambda state: state is not None, 0) is None
    assert register.floor == 1
