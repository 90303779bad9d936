"""Plans with controllers: the quorum's plan of the same seed, with brokers and their faults. Pure.

The quorum's dice are untouched: a seed has the same voters, network and faults in both modes.
"""

import random
from dataclasses import replace

from tests.sim.plan import MS, SECOND, Fault, Knobs, Plan, draw_plan

# Kind: (weight, shortest and longest time in ms).
_KINDS = {
    "broker_kill": (4, 100, 8000),
    "broker_stop": (3, 100, 5000),
    "broker_pause": (3, 300, 6000),
    "broker_cut": (3, 300, 6000),
    "broker_zombie": (2, 0, 0),
    "broker_lag": (2, 300, 5000),
}


def draw_controller_plan(seed: int, seconds: int | None = None) -> Plan:
    plan = draw_plan(seed, seconds)
    knobs = _draw_knobs(random.Random(f"{seed}/controller"), plan.knobs)
    faults = [*plan.faults, *_draw_faults(random.Random(f"{seed}/brokers"), knobs)]
    return replace(plan, knobs=knobs, faults=tuple(sorted(faults, key=lambda f: f.at_us)))


def draw_stale_leader_plan(seed: int, seconds: int | None = None) -> Plan:
    """Leaders are cut off from the others, again and again, while clients still reach them."""
    plan = draw_controller_plan(seed, seconds)
    knobs = replace(
        plan.knobs,
        nodes=3,
        election_timeout_ms=100,
        heartbeat_ms=25,
        check_quorum_ms=3000,
        admin_interval_ms=50,
        idle_ms=3000,
        broker_heartbeat_ms=400,
        session_ms=4000,
        brokers=1,
        client_loss=0,
    )
    times = range(3 * SECOND, knobs.seconds * SECOND, 5 * SECOND)
    faults = tuple(Fault(at_us=at_us, kind="isolate", for_us=4 * SECOND) for at_us in times)
    return replace(plan, knobs=knobs, faults=faults)


def draw_torn_decision_plan(seed: int, seconds: int | None = None) -> Plan:
    """Decisions of many small batches, and leaders that die in the middle of them."""
    plan = draw_controller_plan(seed, seconds)
    knobs = replace(
        plan.knobs,
        nodes=3,
        brokers=4,
        batch_records=4,
        append_bytes=900,
        session_ms=1000,
        broker_heartbeat_ms=250,
        admin_interval_ms=30,
    )
    rng = random.Random(f"{seed}/torn")
    faults = []
    for at_us in range(4 * SECOND, knobs.seconds * SECOND, 4 * SECOND):
        text = rng.choice(("wrote_not_synced:kill", "high_watermark_moves:kill"))
        broker, number = rng.randint(1, knobs.brokers), rng.randint(1, 3)
        faults.append(Fault(at_us=at_us, kind="broker_kill", other=broker, for_us=2 * SECOND))
        # The session ends a second later.
        hook_us = at_us + int((0.75 + 0.5 * rng.random()) * SECOND)
        faults.append(Fault(at_us=hook_us, kind="hook", number=number, text=text))
    return replace(plan, knobs=knobs, faults=tuple(faults))


def _draw_knobs(rng: random.Random, knobs: Knobs) -> Knobs:
    session_ms = rng.choice((1000, 2000, 4000))
    batch_records = rng.choice((10_000, 10_000, 6, 4))
    # A batch is never sent in parts (raft.md, d): one must fit.
    append_bytes = rng.choice((0, 1500 if batch_records < 10 else 20_000))
    return replace(
        knobs,
        append_bytes=append_bytes,
        # Images are larger than in the other mode: a snapshot must arrive before the next is due.
        snapshot_chunk_bytes=max(2000, knobs.snapshot_chunk_bytes),
        brokers=rng.choice((1, 3, 4, 5)),
        session_ms=session_ms,
        broker_heartbeat_ms=session_ms // rng.choice((4, 8)),
        replay_delay_ms=rng.choice((0, 10, 100, 600)),
        loop_delay_us=rng.choice((0, 200, 5000, 50_000)),
        admin_interval_ms=rng.choice((30, 100, 300)),
        batch_records=batch_records,
        idle_ms=rng.choice((500, 500, 2000)),
        client_loss=rng.choice((0, 50, 500, 2000)),
        min_insync_replicas=rng.choice((1, 1, 2)),
        unclean_elections=rng.random() < 0.2,
    )


def _draw_faults(rng: random.Random, knobs: Knobs) -> list[Fault]:
    """As its node a fault has the voter that a broker is cut off from, as `other` the broker."""
    kinds = [kind for kind in _KINDS if rng.random() < 0.6] or ["broker_kill"]
    weights = [_KINDS[kind][0] for kind in kinds]
    interval_us = rng.choice((0.4, 1, 3)) * SECOND
    faults = []
    at_us = 2 * SECOND + rng.expovariate(1 / interval_us)
    while at_us < knobs.seconds * SECOND:
        kind = rng.choices(kinds, weights)[0]
        _, shortest_ms, longest_ms = _KINDS[kind]
        for_ms = shortest_ms + (longest_ms - shortest_ms) * rng.random() ** 2
        fault = Fault(
            at_us=int(at_us),
            kind=kind,
            node=rng.randint(0, knobs.nodes),
            other=rng.randint(1, knobs.brokers),
            for_us=int(for_ms * MS),
            number=rng.randint(0, 9),
        )
        faults.append(fault)
        at_us += rng.expovariate(1 / interval_us)
    return faults
