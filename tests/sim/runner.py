"""Runs plans, with the engine's bounds set to the plan's and its log lines switched off."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest import mock

import structlog

from kraftpy.metadata_log import batches
from kraftpy.quorum import proposal
from kraftpy.quorum.raft import journal, snapshot_transfer
from tests.sim.controller.simulation import ControllerSimulation
from tests.sim.oracles import Violation
from tests.sim.plan import SECOND, Plan
from tests.sim.simulation import Simulation


@dataclass(slots=True)
class Result:
    """What one run was."""

    plan: Plan
    violation: Violation | None
    digest: str
    simulated_s: float
    counts: dict[str, int] = field(default_factory=dict)


@contextmanager
def _silence() -> Iterator[None]:
    before = structlog.get_config()
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet, cache_logger_on_first_use=False)
    stock = logging.getLogger("pysyncobj.syncobj")
    disabled, stock.disabled = stock.disabled, True
    try:
        yield
    finally:
        stock.disabled = disabled
        structlog.configure(**before)


def run_plan(plan: Plan, tell: Callable[[str], None] | None = None) -> Result:
    """One run, from a fresh cluster."""
    knobs = plan.knobs
    with ExitStack() as stack:
        stack.enter_context(_silence())
        bounds = (
            (snapshot_transfer, "SNAPSHOT_CHUNK_BYTES", knobs.snapshot_chunk_bytes),
            (snapshot_transfer, "_SYNC_EVERY_BYTES", 4 * knobs.snapshot_chunk_bytes),
            (journal, "RECENT_BATCH_BYTES_MAX", knobs.recent_bytes),
            (proposal, "BATCH_RECORDS_MAX", knobs.batch_records),
            (batches, "BATCH_RECORDS_MAX", knobs.batch_records),
        )
        for module, name, value in bounds:
            stack.enter_context(mock.patch.object(module, name, value))
        simulation = (ControllerSimulation if knobs.brokers else Simulation)(plan, tell=tell)
        violation = simulation.run()
    counts = simulation.counts
    counts.update(simulation.network.counts)
    counts.update(simulation.more_counts())
    counts["acked"] = simulation.oracles.acked
    counts["unknown"] = simulation.clients.unknown
    counts["refused"] = simulation.clients.refused
    counts["reads"] = simulation.clients.reads
    return Result(
        plan, violation, simulation.digest, simulation.now_us / SECOND, dict(sorted(counts.items()))
    )
