"""What is done to logs now and then: configs, retention, flushing, producers, compaction."""

import asyncio
from typing import Any

import pytest
import structlog

from kraftpy.broker.log_keeper import KeeperConfig
from kraftpy.broker.producer_files import save_producers
from kraftpy.errors import DiskFault
from kraftpy.metadata_log.records import BROKER_RESOURCE, TOPIC_RESOURCE
from kraftpy.storage.record_batch import iter_records
from kraftpy.testing import SimulatedFiles
from tests.unit.broker.log_dirs_run import PATHS, Broker, batch, fill, image_of

SMALL = {(TOPIC_RESOURCE, "orders", "internal.segment.bytes"): "300"}
COMPACT = {
    **SMALL,
    (TOPIC_RESOURCE, "orders", "cleanup.policy"): "compact",
    (TOPIC_RESOURCE, "orders", "min.cleanable.dirty.ratio"): "0.1",
}


# -- configs ------------------------------------------------------------------------------------


def test_a_topics_config_wins_over_the_brokers_and_changes_open_logs() -> None:
    static = (("log.retention.hours", "2"), ("min.insync.replicas", "2"))
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}), static=static)
    hosted = broker.host("orders")
    assert hosted.log.config.retention_ms == 2 * 3_600_000
    assert hosted.replica.config.min_insync_replicas == 2
    assert hosted.log.config.of_topic
    configs = {
        (BROKER_RESOURCE, "", "log.retention.ms"): "5000",
        (BROKER_RESOURCE, "", "message.max.bytes"): "2000",
        (TOPIC_RESOURCE, "orders", "max.message.bytes"): "3000",
        (TOPIC_RESOURCE, "orders", "cleanup.policy"): "compact,delete",
        (TOPIC_RESOURCE, "orders", "max.compaction.lag.ms"): "7000",
        (TOPIC_RESOURCE, "orders", "message.timestamp.type"): "LogAppendTime",
        (TOPIC_RESOURCE, "orders", "compression.type"): "zstd",
        (TOPIC_RESOURCE, "orders", "min.insync.replicas"): "3",
    }
    image = image_of({"orders": 1}, configs=configs)
    broker.manager.configs_changed(image, [(TOPIC_RESOURCE, "others")])
    assert hosted.log.config.retention_ms == 2 * 3_600_000
    broker.manager.configs_changed(image, [(TOPIC_RESOURCE, "orders")])
    assert hosted.log.config.retention_ms == 5000
    assert hosted.log.config.batch_bytes_max == 3000
    assert hosted.log.config.segment.segment_ms == 7000
    assert hosted.replica.config.min_insync_replicas == 3
    assert hosted.accepts.compacted
    assert hosted.accepts.log_append_time
    assert hosted.accepts.compression == 4
    (kept,) = broker.manager.kept.values()
    assert kept.settings.compaction is not None
    assert kept.settings.is_deleted


def test_the_keeper_goes_by_what_the_broker_was_told_last() -> None:
    static = (("log.cleaner.backoff.ms", "100"), ("log.retention.check.interval.ms", "200"))
    configs = {
        (BROKER_RESOURCE, "", "log.cleaner.backoff.ms"): "300",
        (BROKER_RESOURCE, "1", "log.cleaner.io.max.bytes.per.second"): "1.5e6",
        (BROKER_RESOURCE, "2", "log.cleaner.backoff.ms"): "400",
        (BROKER_RESOURCE, "1", "producer.id.expiration.ms"): "nonsense",
    }
    image = image_of({}, configs=configs)
    broker = Broker(SimulatedFiles(), image, static=static)
    config = KeeperConfig.of(broker.manager.broker_values(image))
    assert config.log_cleaner_backoff_ms == 300
    assert config.log_cleaner_io_max_bytes_per_second == 1.5e6
    assert config.log_retention_check_interval_ms == 200
    assert config.producer_id_expiration_ms == KeeperConfig().producer_id_expiration_ms


def test_a_compacted_topic_is_not_deleted_by_age() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}, configs=COMPACT))
    assert broker.host("orders").log.config.retention_ms is None


# -- retention and DeleteRecords ----------------------------------------------------------------


def test_old_segments_go_but_never_beyond_the_high_watermark() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}, configs=SMALL))
    hosted = broker.host("orders")
    now_ms = broker.clock.now_ms()
    fill(hosted, *[batch(b"k", value=bytes(100), at_ms=now_ms)] * 6)
    assert len(hosted.log.segment_bases) == 6
    broker.clock.advance(8 * 24 * 3_600_000)
    hosted.replica.high_watermark = 2
    assert broker.keeper.apply_retention() == 2
    assert hosted.log.start_offset == 2
    hosted.replica.high_watermark = 6
    assert broker.keeper.apply_retention() == 4
    assert (hosted.log.start_offset, hosted.log.end_offset) == (6, 6)


def test_deleted_records_are_gone_and_stay_gone() -> None:
    image = image_of({"orders": 1}, configs=SMALL)
    broker = Broker(SimulatedFiles(), image)
    hosted = broker.host("orders")
    fill(hosted, *[batch(b"k", value=bytes(100), at_ms=broker.clock.now_ms())] * 5)
    hosted.replica.high_watermark = 4
    hosted.log.move_start_offset(3)
    assert broker.keeper.apply_retention() == 3
    broker.keeper.checkpoint_starts()
    assert Broker(broker.killed(), image).host("orders").log.start_offset == 3


@pytest.mark.parametrize(("configs", "allowed"), [(SMALL, True), (COMPACT, False)])
def test_a_log_that_is_only_compacted_deletes_no_records(configs: Any, allowed: bool) -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}, configs=configs))
    assert broker.manager.allows_deletion(broker.host("orders")) is allowed


# -- flushing and recovery ----------------------------------------------------------------------


def test_recovery_begins_where_the_last_segment_does() -> None:
    """Without a flush of its own a log is synced whenever it begins a segment."""
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}, configs=SMALL))
    hosted = broker.host("orders")
    fill(hosted, *[batch(b"k", value=bytes(100))] * 5)
    assert hosted.log.flushed_end_offset == 0
    broker.keeper.flush_due()
    assert hosted.log.flushed_end_offset == 5
    fill(hosted, batch(b"k"))
    broker.keeper.flush_due()
    assert hosted.log.flushed_end_offset == 5, "within a segment nothing is due"


def test_a_flush_that_fails_takes_the_directory_offline() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 2}, configs=SMALL))
    for hosted in broker.host_all():
        fill(hosted, *[batch(b"k", value=bytes(100))] * 3)
    broker.files.fail_sync(path=lambda path: path.startswith(PATHS[1]))
    broker.keeper.flush_due()
    assert [each.is_online for each in broker.manager.dirs] == [True, False]
    assert len(broker.failures.failed) == 1


# -- producers ----------------------------------------------------------------------------------


def produced(sequence: int) -> bytearray:
    return batch(b"k", producer_id=5, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("orderly", [True, False])
def test_producers_are_known_again(orderly: bool) -> None:
    image = image_of({"orders": 1})
    broker = Broker(SimulatedFiles(), image)
    hosted = broker.host("orders")
    fill(hosted, produced(0), produced(1))
    broker.keeper.checkpoint_starts()
    fill(hosted, produced(2))
    files = broker.files
    if orderly:
        broker.stop()
    else:
        files = broker.killed()
    again = Broker(files, image).host("orders")
    assert again.producers.producers[5].last_sequence == 2
    assert again.producers.end_offset == 3


def test_a_cut_log_forgets_what_producers_wrote_there() -> None:
    image = image_of({"orders": 1})
    broker = Broker(SimulatedFiles(), image)
    hosted = broker.host("orders")
    fill(hosted, produced(0), produced(1), produced(2))
    broker.keeper.checkpoint_starts()
    hosted.log.truncate_to(1)
    broker.manager.rebuild_producers(hosted)
    assert hosted.producers.producers[5].last_sequence == 0
    fill(hosted, batch(b"x"), batch(b"y"))
    again = Broker(broker.killed(), image).host("orders")
    assert again.producers.producers[5].last_sequence == 0


def test_old_snapshots_of_producers_go() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}))
    hosted = broker.host("orders")
    for sequence in range(5):
        fill(hosted, produced(sequence))
        assert save_producers(broker.files, hosted.log, hosted.producers)
    assert not save_producers(broker.files, hosted.log, hosted.producers)
    names = broker.files.names(hosted.log.directory)
    assert [n for n in names if n.endswith(".snapshot")] == [f"{i:020d}.snapshot" for i in (4, 5)]


# -- compaction ---------------------------------------------------------------------------------


def keys(broker: Broker) -> list[bytes | None]:
    hosted = broker.host("orders")
    batches = hosted.log.batches(hosted.log.start_offset)
    return [record.key for _, data in batches for record in iter_records(data)]


def test_dirty_logs_are_compacted_and_it_is_remembered_up_to_where() -> None:
    image = image_of({"orders": 1}, configs=COMPACT)
    broker = Broker(SimulatedFiles(), image)
    hosted = broker.host("orders")
    fill(hosted, *[batch(b"a", b"b", value=bytes(60))] * 5, batch(b"c"))
    assert broker.keeper.clean_one()
    assert broker.keeper.cleanings == 1
    assert keys(broker) == [b"a", b"b", b"a", b"b", b"c"]
    assert not broker.keeper.clean_one(), "it is clean now"
    counters = broker.keeper.counters
    assert (counters.records_read, counters.records_kept) == (8, 2)
    assert counters.bytes_written < counters.bytes_read
    again = Broker(broker.killed(), image)
    assert keys(again) == [b"a", b"b", b"a", b"b", b"c"]
    assert not again.keeper.clean_one()


def test_nothing_is_compacted_that_is_not_committed() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}, configs=COMPACT))
    hosted = broker.host("orders")
    fill(hosted, *[batch(b"a", value=bytes(150))] * 5, commit=False)
    assert not broker.keeper.clean_one()
    hosted.replica.high_watermark = 3
    assert broker.keeper.clean_one()
    assert len(keys(broker)) == 3


def test_a_topic_deleted_while_it_is_compacted_harms_nobody() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}, configs=COMPACT), paths=PATHS[:1])
    hosted = broker.host("orders")
    fill(hosted, *[batch(b"a", value=bytes(150))] * 5)
    chosen = broker.keeper.choose()
    assert chosen is not None
    broker.manager.remove(hosted)
    broker.keeper.finish(*chosen, broker.keeper.work(*chosen))
    assert broker.manager.dirs[0].is_online


def test_a_log_that_cannot_be_compacted_is_left_alone() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}, configs=COMPACT), paths=PATHS[:1])
    hosted = broker.host("orders")
    fill(hosted, *[batch(b"a", value=bytes(150))] * 5)
    broker.files.corrupt(f"{hosted.log.directory}/{'0' * 20}.log", 100, 1)
    with structlog.testing.capture_logs() as events:
        assert broker.keeper.clean_one()
        assert not broker.keeper.clean_one()
    assert [each["event"] for each in events] == ["cleaning_failed"]
    assert broker.manager.dirs[0].is_online
    assert not any(name.endswith(".cleaned") for name in broker.files.names(hosted.log.directory))


def test_all_duties_are_done_in_their_turns_until_the_end() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}, configs=COMPACT), paths=PATHS[:1])
    hosted = broker.host("orders")
    fill(hosted, *[batch(b"a", value=bytes(150), at_ms=broker.clock.now_ms())] * 5)
    broker.keeper.config = KeeperConfig(
        log_cleaner_backoff_ms=1,
        log_flush_start_offset_checkpoint_interval_ms=1,
        log_retention_check_interval_ms=1,
        replica_high_watermark_checkpoint_interval_ms=1,
        housekeeping_interval_ms=1,
    )

    def is_all_done() -> bool:
        names = broker.files.names(PATHS[0])
        snapshots = [n for n in broker.files.names(hosted.log.directory) if "snapshot" in n]
        done = {"replication-offset-checkpoint", "cleaner-offset-checkpoint"} <= set(names)
        return done and bool(snapshots) and hosted.log.flushed_end_offset == 5

    async def run() -> None:
        task = asyncio.create_task(broker.keeper.run())
        async with asyncio.timeout(20):
            while not is_all_done():
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(run())
    assert broker.keeper.cleanings == 1
    assert broker.manager.dirs[0].is_online


# -- DescribeLogDirs ----------------------------------------------------------------------------


def test_directories_are_described_with_what_they_hold() -> None:
    broker = Broker(SimulatedFiles(capacity_bytes=1 << 20), image_of({"orders": 2}))
    hosted = broker.host_all()
    fill(hosted[0], batch(b"1"))
    first, second = broker.keeper.describe()
    assert (first.path, first.failure, first.total_bytes) == (PATHS[0], None, 1 << 20)
    assert 0 < first.usable_bytes < first.total_bytes
    assert first.replicas == (("orders", 0, hosted[0].log.size_bytes, 0),)
    assert second.replicas == (("orders", 1, 0, 0),)
    broker.manager.fail_directory(broker.manager.dirs[1], DiskFault("gone"))
    failed = broker.keeper.describe()[1]
    assert (failed.failure, failed.replicas, failed.total_bytes) == ("gone", (), -1)
