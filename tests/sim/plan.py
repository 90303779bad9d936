"""What a run is made of: knobs, and an explicit list of faults. Values, drawn from a seed. Pure.

A plan is all that is needed to repeat a run, so it is what gets shrunk and what gets saved. Every
source of chance in a run has a stream of its own, named after the seed: a plan with one fault less
meets the same network delays and the same dice.
"""

import json
import random
from dataclasses import asdict, dataclass, replace
from typing import Any

SECOND = 1_000_000
MS = 1_000

LEADER = 0  # As a fault's node: whoever leads then.
HOOKS = (
    "became_leader",
    "wrote_not_synced",
    "voted",
    "high_watermark_moves",
    "truncates",
    "installs_snapshot",
    "shortens_log",
)
HOOK_ACTIONS = ("power", "kill", "power_all", "power_majority", "isolate", "pause", "kill_leader")


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """The world of a run. Rates of the network are per 10,000 messages."""

    nodes: int = 3
    seconds: int = 30
    tick_ms: int = 25
    election_timeout_ms: int = 300
    heartbeat_ms: int = 80
    check_quorum_ms: int = 900
    delay_us: int = 500
    jitter_us: int = 500
    unordered: bool = False  # Hard mode: messages overtake, and are lost one by one.
    loss: int = 0
    duplicates: int = 0
    late: int = 0  # How many messages of a broken connection arrive after all.
    fsync_us: int = 1000
    group_fsync: bool = True
    torn_subsets: bool = True
    drift_ppm: int = 0
    append_bytes: int = 0  # 0: the engine's own bound.
    snapshot_chunk_bytes: int = 256
    recent_bytes: int = 1 << 24
    segment_bytes: int = 4096
    snapshot_bytes: int = 3000
    retention_bytes: int = 4000
    snapshot_delay_ms: int = 0
    offer_ms: int = 700
    write_interval_ms: int = 100
    burst_max: int = 3
    value_bytes_max: int = 60
    # With brokers, every voter runs a controller (tests/sim/controller).
    brokers: int = 0
    session_ms: int = 2000
    broker_heartbeat_ms: int = 300
    replay_delay_ms: int = 10  # How late nodes and brokers replay what is committed.
    loop_delay_us: int = 200  # How late a controller hears of outcomes.
    admin_interval_ms: int = 100
    batch_records: int = 10_000
    idle_ms: int = 500  # After which a controller writes a no-op.
    client_loss: int = 50
    min_insync_replicas: int = 1
    unclean_elections: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong. What `number` and `text` mean depends on the kind."""

    at_us: int
    kind: str
    node: int = LEADER
    other: int = 0
    for_us: int = 0
    number: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole run."""

    seed: int
    knobs: Knobs
    faults: tuple[Fault, ...]

    def to_json(self) -> dict[str, Any]:
        """Faults say only what is not the default."""
        plain = asdict(Fault(at_us=-1, kind=""))
        faults = [
            {name: value for name, value in asdict(fault).items() if value != plain[name]}
            for fault in self.faults
        ]
        return {"seed": self.seed, "knobs": asdict(self.knobs), "faults": faults}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Plan":
        return Plan(
            seed=data["seed"],
            knobs=Knobs(**data["knobs"]),
            faults=tuple(Fault(**fault) for fault in data["faults"]),
        )

    def dumps(self) -> str:
        return json.dumps(self.to_json())


def draw_plan(seed: int, seconds: int | None = None) -> Plan:
    """Swarm: each seed has its own cluster, its own knobs and its own kinds of faults."""
    rng = random.Random(f"{seed}/knobs")
    knobs = _draw_knobs(rng)
    if seconds is not None:
        knobs = replace(knobs, seconds=seconds)
    faults = _draw_faults(random.Random(f"{seed}/plan"), knobs)
    return Plan(seed=seed, knobs=knobs, faults=tuple(sorted(faults, key=lambda f: f.at_us)))


def _draw_knobs(rng: random.Random) -> Knobs:
    election_ms = rng.choice((100, 300, 300, 300, 1000))
    hard = rng.random() < 0.5
    return Knobs(
        nodes=rng.choice((1, 3, 3, 3, 3, 5, 5)),
        seconds=rng.choice((20, 30, 60)),
        tick_ms=rng.choice((20, 40, 60)),
        election_timeout_ms=election_ms,
        heartbeat_ms=election_ms // rng.choice((4, 5)),
        check_quorum_ms=election_ms * rng.choice((2, 3, 6)),
        delay_us=rng.choice((100, 500, 5000)),
        jitter_us=rng.choice((100, 1000, 10_000, 40_000)),
        unordered=hard,
        loss=rng.choice((0, 0, 20, 300, 2000)) if hard else rng.choice((0, 0, 0, 10)),
        duplicates=rng.choice((0, 100, 3000)) if hard else 0,
        late=rng.choice((0, 1000, 9000)) if hard else rng.choice((0, 0, 3000)),
        fsync_us=rng.choice((100, 1000, 10_000)),
        group_fsync=rng.random() < 0.8,
        torn_subsets=rng.random() < 0.7,
        drift_ppm=rng.choice((0, 200, 50_000)),
        append_bytes=rng.choice((0, 0, 600, 2000)),
        snapshot_chunk_bytes=rng.choice((64, 300, 1 << 18)),
        recent_bytes=rng.choice((0, 2000, 1 << 24)),
        segment_bytes=rng.choice((1024, 4096, 1 << 16)),
        snapshot_bytes=rng.choice((300, 2000, 6000, 1 << 40)),
        retention_bytes=rng.choice((500, 3000, 20_000)),
        snapshot_delay_ms=rng.choice((0, 0, 30, 500)),
        offer_ms=rng.choice((100, 700, 3000)),
        write_interval_ms=rng.choice((50, 150, 400)),
        burst_max=rng.choice((1, 3, 8)),
        value_bytes_max=rng.choice((0, 60, 300)),
    )


# Kind: (weight, longest time in ms). What takes no time has 0.
_KINDS = {
    "power": (3, 3000),
    "kill": (3, 3000),
    "stop": (1, 1500),
    "crash_at_effect": (4, 2500),
    "power_all": (1, 1500),
    "power_majority": (2, 2500),
    "pause": (3, 4000),
    "isolate": (3, 4000),
    "cut": (3, 4000),
    "cut_one_way": (3, 4000),
    "clog": (3, 3000),
    "reset": (2, 0),
    "slow_disk": (2, 3000),
    "fail_sync": (1, 1500),
    "disk_full": (1, 2000),
    "step_clock": (1, 0),
    "resign": (2, 0),
    "hook": (8, 2500),
}


def _draw_faults(rng: random.Random, knobs: Knobs) -> list[Fault]:
    kinds = [kind for kind in _KINDS if rng.random() < 0.5] or ["hook"]
    weights = [_KINDS[kind][0] for kind in kinds]
    interval_us = rng.choice((0.25, 0.8, 2.5)) * SECOND
    leader_bias = rng.choice((0.2, 0.7))
    hooks = [hook for hook in HOOKS if rng.random() < 0.5] or list(HOOKS)
    faults = []
    at_us = rng.expovariate(1 / SECOND)
    while at_us < knobs.seconds * SECOND:
        kind = rng.choices(kinds, weights)[0]
        fault = _draw_fault(rng, knobs, int(at_us), kind, leader_bias, hooks)
        # Where faults are frequent they are short, or there would never be a leader to disturb.
        faults.append(replace(fault, for_us=int(fault.for_us * min(1, interval_us / SECOND))))
        at_us += rng.expovariate(1 / interval_us)
    return faults


def _draw_fault(
    rng: random.Random, knobs: Knobs, at_us: int, kind: str, leader_bias: float, hooks: list[str]
) -> Fault:
    node = LEADER if rng.random() < leader_bias else rng.randint(1, knobs.nodes)
    other = rng.randint(1, knobs.nodes)
    longest_ms = _KINDS[kind][1]
    for_us = int(longest_ms * MS * rng.random() ** 2)
    number, text = rng.randint(1, 12), rng.choice(("power", "kill"))
    if kind == "hook":
        text = f"{rng.choice(hooks)}:{rng.choice(HOOK_ACTIONS)}"
        node, number = rng.choice((LEADER, node)), rng.randint(1, 6)
    elif kind == "slow_disk":
        number = rng.choice((20, 200, 1500)) * MS
    elif kind == "clog":
        number = rng.choice((50, 500, 2500)) * MS
    elif kind == "step_clock":
        number = rng.choice((-100_000, -500, 500, 100_000))
    return Fault(
        at_us=at_us, kind=kind, node=node, other=other, for_us=for_us, number=number, text=text
    )
