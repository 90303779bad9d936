"""Every rule can fail: a bug planted in the control code breaks it, and the driver says which.

The directed sequences run into each bug at once; the machine finds those of MACHINE by itself.
"""

import re

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from kraftpy.audit.rules import RULES
from kraftpy.errors import ReplayError
from tests.property import controller_actions as act
from tests.property import planted_cluster_bugs, planted_partition_bugs
from tests.property.controller_driver import Broken, Driver
from tests.property.planted_bug import BUGS, Bug
from tests.property.test_controller_machine import ControllerMachine

# Loading them fills BUGS.
LOADED = (planted_partition_bugs, planted_cluster_bugs)
# Bugs that need no luck: a few lives of the machine run into them.
MACHINE = [
    "a_fenced_broker_stays_in_sync",
    "every_change_names_the_leader",
    "the_fence_comes_first",
    "registering_again_is_a_new_epoch",
    "the_last_leader_is_forgotten",
    "nobody_is_elected_when_a_broker_comes_back",
]
MACHINE_EXAMPLES = 100


def begun(bug: Bug) -> Driver:
    driver = Driver()
    if not bug.elr:
        act.set_elr(driver, False)
    return driver


def named(bug: Bug) -> str:
    return f"A{bug.rule}-{bug.name}"


# The others are about nodes, their files and data, which no decision of a controller can break:
# tests/unit/audit has what breaks them.
OF_CONTROLLERS = [number for number in sorted(RULES) if number <= 37 or 43 <= number <= 45]


@pytest.mark.parametrize("number", OF_CONTROLLERS)
def test_every_rule_has_a_planted_bug(number: int) -> None:
    assert [bug for bug in BUGS if bug.rule == number]


@pytest.mark.parametrize("bug", BUGS, ids=named)
def test_the_sequence_is_legal_without_the_bug(bug: Bug) -> None:
    bug.run(begun(bug))


@pytest.mark.parametrize("bug", BUGS, ids=named)
def test_a_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = begun(bug)
    bug.plant(monkeypatch)
    with pytest.raises(ReplayError if bug.by_replay else Broken) as caught:
        bug.run(driver)
    if not bug.by_replay:
        assert re.search(rf"^A{bug.rule} ", str(caught.value), re.MULTILINE), str(caught.value)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in MACHINE], ids=named)
def test_the_machine_finds_it_by_itself(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    with pytest.raises(Broken):
        run_state_machine_as_test(
            ControllerMachine,
            settings=settings(
                max_examples=MACHINE_EXAMPLES,
                stateful_step_count=40,
                phases=[Phase.generate],
                derandomize=True,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
