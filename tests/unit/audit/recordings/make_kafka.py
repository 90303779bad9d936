"""Record what Apache Kafka writes while topics come, move and go and its nodes are killed.

    python -m tests.unit.audit.recordings.make_kafka NAME [--seconds 60] [--careless]

runs the newest Kafka 4.x that Maven finds (bench/apache_kafka.py), three brokers and three
controllers, under tests/e2e/churn.py, and keeps of every node what an audit reads: the segments of
the metadata log, its snapshots, its epochs and its quorum state, and no index. NAME is a directory
beside this file, or any path. `--careless` also moves replicas that are moving already, and when
some are out of sync: Kafka 4.3 does not take that well, and the audit says so.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.apache_kafka import ApacheKafka, available, version
from tests.e2e.churn import Churn

METADATA = "__cluster_metadata-0"
KEPT = (".log", ".checkpoint", "quorum-state", "leader-epoch-checkpoint")
PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "metadata.max.idle.interval.ms": "2000",
}
SETTLE_S = 10.0


def keep(source: Path, target: Path) -> int:
    """Copy what an audit reads of one node; the bytes."""
    total = 0
    for path in sorted((source / METADATA).iterdir()):
        if path.name.endswith(KEPT):
            (target / METADATA).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / METADATA / path.name)
            total += path.stat().st_size
    shutil.copyfile(source / "meta.properties", target / "meta.properties")
    return total


def record(asked: argparse.Namespace, target: Path) -> None:
    more = {"metadata.log.max.record.bytes.between.snapshots": str(asked.snapshot_bytes)}
    with tempfile.TemporaryDirectory(prefix="kafka-recording-") as directory:
        with ApacheKafka(
            directory, 3, controllers=3, heap="256M", properties={**PROPERTIES, **more}
        ) as kafka:
            churn = Churn(kafka, asked.seed, careful=not asked.careless, rest_s=asked.rest)
            asyncio.run(churn.run(asked.seconds))
            time.sleep(SETTLE_S)
        shutil.rmtree(target, ignore_errors=True)
        total = sum(
            keep(Path(kafka.log_dir(node)), target / f"node-{node}") for node in kafka.node_ids
        )
    command = "python -m tests.unit.audit.recordings.make_kafka " + " ".join(sys.argv[1:])
    (target / "README.md").write_text(
        f"Apache Kafka {version()}, {asked.seconds:g} s of churn with seed {asked.seed}: "
        f"{churn.kinds}\n\n    {command}\n"
    )
    print(f"{target}: {total} bytes, {churn.kinds}")  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rest", type=float, default=0.3, help="longest, between two requests")
    parser.add_argument("--careless", action="store_true")
    parser.add_argument("--snapshot-bytes", type=int, default=20_000)
    asked = parser.parse_args()
    if (reason := available()) is not None:
        sys.exit(reason)
    target = Path(__file__).parent / asked.name
    os.makedirs(target.parent, exist_ok=True)
    record(asked, target)


if __name__ == "__main__":
    main()
