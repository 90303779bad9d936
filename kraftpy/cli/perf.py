"""`kraftpy perf`: how fast a cluster takes and gives messages, told as Kafka's own tools tell it.

Latencies are from the call that hands a message over to its acknowledgement, queueing included, and
are counted in a histogram whose steps grow by a percent: memory does not grow with the run.
"""

import math
import random
from typing import Any, Final

import click
from confluent_kafka import KafkaError, Producer

from kraftpy.cli.client import Connection, Refused, client_options, json_option, print_json
from kraftpy.cli.progress import progress
from kraftpy.cli.topics import metadata
from kraftpy.clock import SystemClock

_MB: Final = 1024 * 1024
_STEP: Final = 1.01
_PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
_PAYLOADS: Final = 64
_POLL_S: Final = 0.05
_BATCH: Final = 10_000


class Histogram:
    """Milliseconds, to a percent."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.max_ms = 0.0
        self._counts: dict[int, int] = {}

    def add(self, ms: float) -> None:
        self.count += 1
        self.total_ms += ms
        self.max_ms = max(self.max_ms, ms)
        step = math.ceil(math.log(max(ms, 0.001), _STEP))
        self._counts[step] = self._counts.get(step, 0) + 1

    def percentile(self, percent: float) -> float:
        """No more than that many percent took longer; 0 if there was nothing."""
        needed, seen = self.count * percent / 100, 0
        for step in sorted(self._counts):
            seen += self._counts[step]
            if seen >= needed:
                return min(_STEP**step, self.max_ms)
        return 0.0


@click.group()
def perf() -> None:
    """Measure throughput and latency."""


@perf.command("produce")
@click.argument("topic")
@click.option("--num-records", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--record-size", type=click.IntRange(1), default=100, show_default=True)
@click.option("--throughput", type=click.FloatRange(0), default=0, help="Records/s; 0: no limit.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--linger-ms", type=click.FloatRange(0), default=5.0, show_default=True)
@json_option
@client_options
def perf_produce(connection: Connection, topic: str, as_json: bool, **options: Any) -> None:
    """Send records, and report records/s, MB/s and latencies."""
    metadata(connection, connection.admin())  # A cluster that is not there is told at once.
    clock = SystemClock()
    producer = connection.producer(acks=options["acks"], linger_ms=options["linger_ms"])
    histogram = Histogram()
    failed: list[KafkaError] = []
    rng = random.Random()
    payloads = [rng.randbytes(options["record_size"]) for _ in range(_PAYLOADS)]
    begun_ms = clock.monotonic_ms()
    with progress(options["num_records"], enabled=not as_json) as advance:
        for number in range(options["num_records"]):
            _await_turn(producer, clock, begun_ms, number, options["throughput"])
            _hand_over(producer, topic, payloads[number % _PAYLOADS], clock, histogram, failed)
            advance(histogram.count)
            if failed:
                break
        while producer.flush(_POLL_S):
            advance(histogram.count)
    if failed:
        raise Refused(f"a record was not acknowledged: {connection.refused(failed[0])}")
    took_ms = max(clock.monotonic_ms() - begun_ms, 1)
    _report_produced(histogram, took_ms, options["record_size"], as_json=as_json)


def _await_turn(
    producer: Producer, clock: SystemClock, begun_ms: int, number: int, per_s: float
) -> None:
    """Answers are taken meanwhile: librdkafka waits, nobody sleeps."""
    while per_s and number / per_s * 1000 > clock.monotonic_ms() - begun_ms:
        producer.poll(0.001)


def _hand_over(
    producer: Producer,
    topic: str,
    payload: bytes,
    clock: SystemClock,
    histogram: Histogram,
    failed: list[KafkaError],
) -> None:
    begun = clock.monotonic_us()

    def done(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)
        histogram.add((clock.monotonic_us() - begun) / 1000)

    while True:
        try:
            producer.produce(topic, payload, on_delivery=done)
            break
        except BufferError:
            producer.poll(_POLL_S)
    producer.poll(0)


def _report_produced(histogram: Histogram, took_ms: int, size: int, *, as_json: bool) -> None:
    per_s = histogram.count * 1000 / took_ms
    found = {
        "records": histogram.count,
        "records_per_s": round(per_s, 1),
        "mb_per_s": round(per_s * size / _MB, 2),
        "avg_latency_ms": round(histogram.total_ms / histogram.count, 2),
        "max_latency_ms": round(histogram.max_ms, 2),
        **{f"p{p:g}_ms": round(histogram.percentile(p), 2) for p in _PERCENTILES},
    }
    if as_json:
        print_json(found)
        return
    percentiles = ", ".join(f"{histogram.percentile(p):.1f} ms {p:g}th" for p in _PERCENTILES)
    click.echo(
        f"{histogram.count} records sent, {per_s:.1f} records/sec "
        f"({found['mb_per_s']:.2f} MB/sec), {found['avg_latency_ms']:.2f} ms avg latency, "
        f"{histogram.max_ms:.2f} ms max latency, {percentiles}."
    )


@perf.command("consume")
@click.argument("topic")
@click.option("--num-records", type=click.IntRange(1), help="Default: all that there is now.")
@json_option
@client_options
def perf_consume(
    connection: Connection, topic: str, num_records: int | None, as_json: bool
) -> None:
    """Read a topic from the beginning, and report records/s and MB/s."""
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    consumer = connection.consumer(group_id="kraftpy-perf", enable_auto_commit=False)
    clock = SystemClock()
    try:
        partitions = metadata(connection, connection.admin(), topic).topics[topic].partitions
        places = [TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions]
        there = sum(
            high - low
            for low, high in (
                consumer.get_watermark_offsets(p, timeout=connection.timeout_s) for p in places
            )
        )
        wanted = there if num_records is None else min(num_records, there)
        consumer.assign(places)
        begun_ms = clock.monotonic_ms()
        records, size = _take(connection, consumer, wanted, enabled=not as_json, clock=clock)
        took_ms = max(clock.monotonic_ms() - begun_ms, 1)
    finally:
        consumer.close()
    found = {
        "records": records,
        "mb": round(size / _MB, 2),
        "seconds": round(took_ms / 1000, 3),
        "records_per_s": round(records * 1000 / took_ms, 1),
        "mb_per_s": round(size / _MB * 1000 / took_ms, 2),
    }
    if as_json:
        print_json(found)
        return
    click.echo(
        f"{records} records read in {found['seconds']} s, {found['records_per_s']:.1f} "
        f"records/sec ({found['mb_per_s']:.2f} MB/sec)."
    )


def _take(
    connection: Connection, consumer: Any, wanted: int, *, enabled: bool, clock: SystemClock
) -> tuple[int, int]:
    records = size = 0
    heard_ms = clock.monotonic_ms()
    with progress(wanted, enabled=enabled) as advance:
        while records < wanted:
            found = consumer.consume(min(_BATCH, wanted - records), _POLL_S)
            now_ms = clock.monotonic_ms()
            heard_ms = now_ms if found else heard_ms
            if now_ms - heard_ms > connection.timeout_s * 1000:
                raise Refused(f"{wanted - records} records did not come")
            for message in found:
                if message.error() is not None:
                    raise connection.refused(message.error())
                records += 1
                size += len(message.value() or b"")
            advance(records)
    return records, size
