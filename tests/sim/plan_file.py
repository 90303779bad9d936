"""Plans that once failed, kept as JSON: `make test` replays them all.

None may break a rule any more. A plan that names a planted bug broke its rule with that bug only.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.sim.plan import Plan

PLANS = Path(__file__).parent / "plans"


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan, the rule that it broke, and the planted bug that made it so, if any."""

    plan: Plan
    rule: str
    mutant: str


def load(path: Path) -> SavedPlan:
    data = json.loads(path.read_text())
    return SavedPlan(Plan.from_json(data), data["rule"], data["mutant"])


def save(plan: Plan, rule: str, mutant: str = "") -> Path:
    """One fault per line, so that people can read and change it."""
    name = mutant.replace("_", "-") if mutant else f"{rule.replace(' ', '-')}-{plan.seed}"
    path = PLANS / f"{name}.json"
    data = plan.to_json()
    faults = ",\n".join(f"  {json.dumps(fault)}" for fault in data["faults"])
    head = {"rule": rule, "mutant": mutant, "seed": data["seed"], "knobs": data["knobs"]}
    PLANS.mkdir(exist_ok=True)
    path.write_text(json.dumps(head)[:-1] + f', "faults": [\n{faults}\n]}}\n')
    return path
