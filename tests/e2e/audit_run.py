"""Run a cluster under faults, then audit what it recorded: `make audit`.

    python -m tests.e2e.audit_run [--seconds 60] [--seed 1] [--rest 0.3] [--dir DIR]
        [--engine local]

Three controllers and three brokers as processes, under tests/e2e/churn.py. They are stopped before
the audit, which also looks at notes and at partitions of data. What is printed last is where the
report is; it opens nothing. The exit code is that of `kraftpy audit`.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence

from kraftpy.cli import main as cli
from tests.e2e.churn import Churn
from tests.e2e.cluster_processes import ClusterProcesses

SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "metadata.log.max.record.bytes.between.snapshots": "20000",  # So that some are looked at.
}
WAIT_S = 120
SETTLE_S = 6


def settings() -> list[str]:
    return [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]


async def run_cluster(
    directory: str, seconds: float, seed: int, rest_s: float = 0.3
) -> dict[str, int]:
    """Churn, until all is over and everybody has stopped in order."""
    cluster = ClusterProcesses(directory, 3, 3, *settings())
    try:
        cluster.start()
        await _until_listening(cluster)
        churn = Churn(cluster, seed, rest_s=rest_s)
        await churn.run(seconds)
        await _until_listening(cluster)
        await asyncio.sleep(SETTLE_S)  # Replicas catch up; what they lack then is looked for.
        codes = cluster.stop_in_order()
        if any(codes.values()):
            raise SystemExit(f"nodes ended with {codes}\n{cluster.output()[-5000:]}")
        return churn.kinds
    finally:
        cluster.stop()


async def _until_listening(cluster: ClusterProcesses) -> None:
    async with asyncio.timeout(WAIT_S):
        while not all(map(cluster.is_listening, cluster.node_ids)):
            await asyncio.sleep(0.2)


def audit(directory: str, out: str, *more: str) -> int:
    return cli.run(["audit", directory, "--data", "--out", out, *more])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rest", type=float, default=0.3, help="longest, between two requests")
    parser.add_argument("--dir", help="where the nodes keep what they record")
    parser.add_argument("--engine", default="local")
    asked = parser.parse_args(arguments)
    directory = asked.dir or tempfile.mkdtemp(prefix="kraftpy-audit-")
    nodes = os.path.join(directory, "nodes")
    os.makedirs(nodes, exist_ok=True)
    kinds = asyncio.run(run_cluster(nodes, asked.seconds, asked.seed, asked.rest))
    print(f"{asked.seconds:g} s of churn: {kinds}")  # noqa: T201
    out = os.path.join(directory, "audit")
    code = audit(nodes, out, "--engine", asked.engine)
    print(f"report     {os.path.join(out, 'report.html')}")  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
