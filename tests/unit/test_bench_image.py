"""The benchmark of images runs, at a scale that proves nothing about speed."""

import json
import subprocess
import sys

from bench import workloads
from bench.image_cases import KAFKA_BENCHMARKS, _outage
from kraftpy.metadata_log import EMPTY, replay_all
from kraftpy.metadata_log.records import PartitionRecord


def test_the_benchmark_of_images_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.image", "--scale", "0.0001", "--json", "--seconds", "0.01"],
        capture_output=True,
        text=True,
        check=True,
    )
    replay, load, kafka = json.loads(done.stdout)
    assert replay["rows"][0]["cpu_ratio"] > 0
    assert replay["rows"][0]["reached"] is None  # An aim is about the whole, not about a scrap.
    assert load["rows"][0]["ours"]["rss_bytes_max"] > 0
    assert load["rows"][0]["ours"]["count"] == load["rows"][0]["plain"]["count"] == 110
    assert {row["name"].split()[0] for row in kafka["rows"]} == set(KAFKA_BENCHMARKS)


def test_the_mixed_log_is_legal_and_the_same_every_time() -> None:
    log = [record for batch in workloads.mixed_log(3000) for record in batch]
    assert log == [record for batch in workloads.mixed_log(3000) for record in batch]
    image = replay_all(EMPTY, log)
    assert image.transaction is None
    assert len(image.brokers) == workloads.BROKERS
    assert sum(len(topic.partitions) for topic in image.topics.values()) == 60


def test_the_outage_is_as_large_as_kafkas() -> None:
    """Every partition on broker 0, three replicas to a partition, on 1 of 300 brokers or of 6."""
    assert workloads.kafka_brokers(100_000) == 300
    assert workloads.kafka_brokers(2_000) == 6
    image = replay_all(EMPTY, workloads.kafka_topics(2_000))
    changed = [record for record in _outage(image) if isinstance(record, PartitionRecord)]
    assert len(changed) == 2_000 * 10 * 3 // 6
    assert all(len(record.isr) == 2 and 0 not in record.isr for record in changed)
