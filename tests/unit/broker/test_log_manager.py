"""A broker's logs: found again, never taken for others, and only what fails goes offline."""

from contextlib import suppress

import pytest
import structlog

from kraftpy.broker.checkpoints import format_offsets, parse_offsets
from kraftpy.broker.log_keeper import HIGH_WATERMARK, PolicyForbids
from kraftpy.broker.partition_dirs import find_partition_dirs, put_aside, read_topic_id
from kraftpy.broker.producer_files import save_producers
from kraftpy.errors import ConfigError, CorruptRecord, DiskFault, OffsetOutOfRange, StorageError
from kraftpy.metadata_log.records import BROKER_RESOURCE, TOPIC_RESOURCE
from kraftpy.storage.record_batch import iter_records
from kraftpy.testing import PowerLoss, SimulatedFiles
from tests.unit.broker.log_dirs_run import PATHS, Broker, batch, fill, image_of, topic_id

SMALL = {(TOPIC_RESOURCE, "orders", "internal.segment.bytes"): "300"}
COMPACT = {
    **SMALL,
    (TOPIC_RESOURCE, "orders", "cleanup.policy"): "compact",
    (TOPIC_RESOURCE, "orders", "min.cleanable.dirty.ratio"): "0.1",
}


def contents(broker: Broker) -> dict[str, int]:
    return {str(each): each.log.end_offset for each in broker.host_all()}


# -- opening ------------------------------------------------------------------------------------


@pytest.mark.parametrize("orderly", [True, False])
def test_what_was_written_is_found_again(orderly: bool) -> None:
    image = image_of({"orders": 3, "others": 1})
    broker = Broker(SimulatedFiles(), image)
    for number, hosted in enumerate(broker.host_all(), start=1):
        fill(hosted, *[batch(b"k")] * number)
    broker.keeper.checkpoint_high_watermarks()
    files = broker.files
    if orderly:
        assert broker.stop()
    else:
        files = broker.killed()
    again = Broker(files, image)
    assert [each.was_clean for each in again.manager.dirs] == [orderly] * 2
    assert contents(again) == {"orders-0": 1, "orders-1": 2, "orders-2": 3, "others-0": 4}
    assert [each.replica.high_watermark for each in again.host_all()] == [1, 2, 3, 4]


def test_new_partitions_go_where_the_fewest_are() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 5}))
    broker.host_all()
    assert [len(broker.names(path)) for path in PATHS] == [3, 2]


def test_metadata_may_say_where_a_partition_belongs() -> None:
    files = SimulatedFiles()
    second = Broker(files, image_of({})).manager.dirs[1].directory_id
    image = image_of({"orders": 2}, directories={("orders", 0): second, ("orders", 1): second})
    broker = Broker(files.process_crash(), image)
    broker.host_all()
    assert broker.names(PATHS[1]) == ["orders-0", "orders-1"]


def test_a_topic_of_the_same_name_is_not_the_same_topic() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}))
    fill(broker.host("orders"), batch(b"old"))
    broker.stop()
    image = image_of({"orders": 1}, incarnations={"orders": 1})
    with structlog.testing.capture_logs() as events:
        again = Broker(broker.files, image)
    assert [each["event"] for each in events if "stray" in each["event"]] == ["stray_partition"]
    hosted = again.host("orders")
    assert hosted.log.end_offset == 0
    (stray,) = [name for name in again.names(PATHS[0]) if name.endswith("-stray")]
    kept = f"{PATHS[0]}/{stray}"
    assert read_topic_id(again.files, kept) == topic_id("orders", 0)
    assert any(again.files.read_whole(f"{kept}/{'0' * 20}.log"))


def test_a_directory_that_appears_later_is_not_reused_either() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}))
    for path in PATHS:
        broker.files.make_directory(f"{path}/orders-0")
        broker.files.replace(f"{path}/orders-0/{'0' * 20}.log", b"somebody's")
    assert broker.host("orders").log.end_offset == 0
    assert [name.endswith("-stray") for name in broker.names(PATHS[0])] == [False, True]


def test_partitions_of_no_topic_are_put_aside_and_others_left_alone() -> None:
    files = SimulatedFiles()
    broker = Broker(files, image_of({"orders": 1}))
    broker.host("orders")
    files.make_directory(f"{PATHS[0]}/unknown-3")
    files.make_directory(f"{PATHS[0]}/__cluster_metadata-0")
    again = Broker(files.process_crash(), image_of({"orders": 1}))
    names = again.names(PATHS[0])
    assert [name for name in names if name.startswith("unknown-3.")] == names[-1:]
    assert {"__cluster_metadata-0", "orders-0"} <= set(names)


def test_a_partition_in_two_directories_stops_the_start() -> None:
    files = SimulatedFiles()
    broker = Broker(files, image_of({"orders": 1}))
    broker.host("orders")
    files.make_directory(f"{PATHS[1]}/orders-0")
    metadata = files.read_whole(f"{PATHS[0]}/orders-0/partition.metadata")
    files.replace(f"{PATHS[1]}/orders-0/partition.metadata", metadata)
    with pytest.raises(ConfigError, match="both in"):
        Broker(files.process_crash(), image_of({"orders": 1}))


def test_names_that_are_no_partitions_are_not_taken_for_them() -> None:
    files = SimulatedFiles()
    for name in ("a-b-7", "a-01", "a-", "-1", "a", "a-1.x-delete", "a-1.x-stray", "a b-1", "b-0"):
        files.make_directory(f"/disk1/{name}")
    found = find_partition_dirs(files, "/disk1", "b-0")
    assert [(each.topic, each.partition) for each in found] == [("a-b", 7)]


def test_a_long_name_is_shortened_when_it_is_put_aside() -> None:
    broker = Broker(SimulatedFiles(), image_of({"n" * 249: 1}))
    hosted = broker.host("n" * 249)
    path = put_aside(broker.files, hosted.log.directory, "-delete", broker.rng)
    assert len(path.rpartition("/")[2]) == 255


def test_a_damaged_log_costs_its_partition_only() -> None:
    image = image_of({"orders": 2})
    broker = Broker(SimulatedFiles(), image, paths=PATHS[:1])
    for hosted in broker.host_all():
        fill(hosted, batch(b"1"), batch(b"2"))
    broker.stop()
    broker.files.corrupt(f"{PATHS[0]}/orders-1/{'0' * 20}.log", 30, 1)
    broker.files.remove(f"{PATHS[0]}/orders-1/log-state")
    with structlog.testing.capture_logs() as events:
        again = Broker(broker.files, image, paths=PATHS[:1])
    assert [each["partition"] for each in events if each["event"] == "log_unusable"] == ["orders-1"]
    assert again.host("orders", 0).log.end_offset == 2
    with pytest.raises(CorruptRecord):
        again.host("orders", 1)
    assert not again.failures.failed
    assert not again.stop(), "a broker with a damaged log does not say that all is in order"


# -- deleting -----------------------------------------------------------------------------------


def test_a_deleted_partition_frees_its_name_at_once_and_its_bytes_later() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}), paths=PATHS[:1])
    hosted = broker.host("orders")
    fill(hosted, batch(b"1"))
    broker.manager.remove(hosted)
    (name,) = broker.names(PATHS[0])
    assert name.startswith("orders-0.")
    assert name.endswith("-delete")
    broker.image = image_of({"orders": 1}, incarnations={"orders": 1})
    assert broker.host("orders").log.end_offset == 0
    broker.keeper.remove_doomed()
    assert len(broker.names(PATHS[0])) == 2
    broker.clock.advance(60_000)
    broker.keeper.remove_doomed()
    assert broker.names(PATHS[0]) == ["orders-0"]


def test_what_was_to_be_removed_is_removed_after_a_restart() -> None:
    image = image_of({"orders": 1})
    broker = Broker(SimulatedFiles(), image, paths=PATHS[:1])
    broker.manager.remove(broker.host("orders"))
    again = Broker(broker.killed(), image_of({}), paths=PATHS[:1])
    assert len(again.names(PATHS[0])) == 1
    again.keeper.remove_doomed()
    assert again.names(PATHS[0]) == []


# -- directories that fail ----------------------------------------------------------------------


def test_a_failing_disk_takes_its_own_partitions_only() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 4}))
    hosted = broker.host_all()
    for each in hosted:
        fill(each, batch(b"1"))
    broken = broker.manager.dirs[0]
    broker.files.fail_sync(path=lambda path: path.startswith(f"{broken.path}/orders"))
    with pytest.raises(DiskFault) as caught:
        hosted[0].log.flush()
    broker.manager.failed(hosted[0], caught.value)
    assert broker.failures.failed == [(broken.directory_id, ["orders-0", "orders-2"])]
    assert broker.failures.none_left == 0
    assert sorted(str(kept.hosted) for kept in broker.manager.kept.values()) == [
        "orders-1",
        "orders-3",
    ]
    fill(hosted[1], batch(b"2"))
    broker.keeper.checkpoint_high_watermarks()
    assert not broker.stop()


def test_the_last_directory_that_fails_ends_the_process() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 2}))
    hosted = broker.host_all()
    broker.files.fail_sync(1, lambda path: "replication-offset" in path)
    broker.files.fail_sync(2, lambda path: "replication-offset" in path)
    fill(hosted[0], batch(b"1"))
    fill(hosted[1], batch(b"1"))
    broker.keeper.checkpoint_high_watermarks()
    assert len(broker.failures.failed) == 2
    assert broker.failures.none_left == 1


def test_no_empty_log_takes_the_place_of_one_on_a_failed_disk() -> None:
    files = SimulatedFiles()
    first = Broker(files, image_of({})).manager.dirs[0].directory_id
    image = image_of({"orders": 1}, directories={("orders", 0): first})
    broker = Broker(files.process_crash(), image)
    broker.manager.fail_directory(broker.manager.dirs[0], DiskFault("gone"))
    with pytest.raises(DiskFault):
        broker.host("orders")
    broker.image = image_of({"orders": 1}, partition_epoch=3)  # Assigned to none that we know.
    with pytest.raises(DiskFault):
        broker.host("orders")
    broker.image = image_of({"orders": 1}, partition_epoch=0)  # New: there is nothing to lose.
    assert broker.host("orders").log.directory.startswith(PATHS[1])


def test_a_disk_that_fails_while_a_log_is_made_is_passed_over() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}))
    broker.files.fail_sync(path=lambda path: path.startswith(PATHS[0]))
    assert broker.host("orders").log.directory.startswith(PATHS[1])
    assert [each.is_online for each in broker.manager.dirs] == [False, True]


# -- checkpoints --------------------------------------------------------------------------------


def test_checkpoints_are_kafkas() -> None:
    offsets = {("b-c", 0): 7, ("a", 1): 0}
    assert format_offsets(offsets) == b"0\n2\na 1 0\nb-c 0 7\n"
    assert parse_offsets(format_offsets(offsets)) == offsets
    for wrong in (b"", b"1\n0\n", b"0\n1\n", b"0\n1\na 1\n", b"0\n1\na 1 x\n", b"0\n1\na 0 -1\n"):
        with pytest.raises(StorageError):
            parse_offsets(wrong)


def test_a_damaged_checkpoint_is_as_good_as_none() -> None:
    image = image_of({"orders": 1})
    broker = Broker(SimulatedFiles(), image, paths=PATHS[:1])
    fill(broker.host("orders"), batch(b"1"))
    broker.stop()
    broker.files.replace(f"{PATHS[0]}/replication-offset-checkpoint", b"\xff\n")
    with structlog.testing.capture_logs() as events:
        again = Broker(broker.files, image, paths=PATHS[:1])
    assert "checkpoint_ignored" in [each["event"] for each in events]
    assert again.host("orders").replica.high_watermark == 0


def checkpointed(crash_at: int | None = None) -> SimulatedFiles:
    """High watermark 1 is on disk, and 2 on its way there."""
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}), paths=PATHS[:1])
    hosted = broker.host("orders")
    fill(hosted, batch(b"1"), batch(b"2"))
    hosted.log.flush()
    hosted.replica.high_watermark = 1
    broker.keeper.checkpoint_high_watermarks()
    before = len(broker.files.boundaries)
    broker.files.crash_at = None if crash_at is None else before + crash_at
    hosted.replica.high_watermark = 2
    with suppress(PowerLoss):
        broker.keeper.checkpoint_high_watermarks()
    del broker.files.boundaries[:before]
    return broker.files


def test_checkpoints_survive_a_crash_at_any_moment() -> None:
    steps = len(checkpointed().boundaries)
    assert steps > 3
    for crash_at in range(1, steps + 1):
        files = checkpointed(crash_at)
        for disk in [files.process_crash(), *files.outcomes(20)]:
            again = Broker(disk, image_of({"orders": 1}), paths=PATHS[:1])
            assert again.host("orders").replica.high_watermark in (1, 2)


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
    for wrong in (5, -2):
        with pytest.raises(OffsetOutOfRange):
            broker.keeper.delete_records(hosted, wrong)
    assert broker.keeper.delete_records(hosted, 3) == 3
    assert broker.keeper.delete_records(hosted, 1) == 3
    assert broker.keeper.apply_retention() == 3
    broker.keeper.checkpoint_starts()
    assert Broker(broker.killed(), image).host("orders").log.start_offset == 3
    assert broker.keeper.delete_records(hosted, HIGH_WATERMARK) == 4


def test_a_log_that_is_only_compacted_deletes_no_records() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}, configs=COMPACT))
    with pytest.raises(PolicyForbids):
        broker.keeper.delete_records(broker.host("orders"), 0)


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
