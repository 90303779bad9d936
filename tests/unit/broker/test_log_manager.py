"""A broker's logs: found again, never taken for others, and only what fails goes offline."""

import asyncio
from contextlib import suppress

import pytest
import structlog

from kraftpy.broker.checkpoints import format_offsets, parse_offsets
from kraftpy.broker.partition_dirs import find_partition_dirs, put_aside, read_topic_id
from kraftpy.errors import ConfigError, CorruptRecord, DiskFault, StorageError
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import Changes
from kraftpy.testing import PowerLoss, SimulatedFiles
from tests.unit.broker.log_dirs_run import PATHS, Broker, batch, fill, image_of, topic_id


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


def test_logs_made_ahead_are_those_that_are_hosted() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}))
    first = broker.host("orders")
    broker.image = image_of({"orders": 5})
    changes = Changes(topics={topic_id("orders"): frozenset(range(5))})
    asyncio.run(broker.manager.prepare(broker.image, changes))
    assert [len(broker.names(path)) for path in PATHS] == [3, 2]
    effects = len(broker.files.boundaries)
    hosted = [broker.host("orders", index) for index in range(1, 5)]
    assert len(broker.files.boundaries) == effects, "all was there already"
    assert first.log not in [each.log for each in hosted]
    asyncio.run(broker.manager.prepare(broker.image, changes))
    assert len(broker.files.boundaries) == effects


def test_what_cannot_be_made_ahead_is_made_elsewhere_when_it_is_hosted() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 1}))
    broker.files.fail_sync(1, path=lambda path: path.startswith(f"{PATHS[0]}/orders"))
    broker.files.fail_sync(2, path=lambda path: path.startswith(f"{PATHS[0]}/orders"))
    changes = Changes(topics={topic_id("orders"): frozenset({0})})
    asyncio.run(broker.manager.prepare(broker.image, changes))
    assert not broker.manager.kept
    assert not broker.failures.failed
    assert broker.host("orders").log.directory.startswith(PATHS[1])
    assert len(broker.failures.failed) == 1


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


def test_a_log_that_turns_out_to_be_damaged_is_lost_to_the_controller() -> None:
    broker = Broker(SimulatedFiles(), image_of({"orders": 2}), paths=PATHS[:1])
    hosted = broker.host("orders", 0)
    key = (hosted.topic_id, 0)
    directory = broker.manager.directory_of(key)
    assert directory not in (None, r.LOST_DIRECTORY)
    broker.manager.failed(hosted, CorruptRecord("a file", 0, 0, "rot"))
    assert broker.failures.lost == [key]
    assert broker.manager.directory_of(key) == r.LOST_DIRECTORY
    assert broker.manager.directory_of((hosted.topic_id, 1)) is None
    with pytest.raises(StorageError):
        broker.host("orders", 0)


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


def test_a_disk_that_fails_at_the_start_is_told_of_when_all_is_open() -> None:
    image = image_of({"orders": 2})
    broker = Broker(SimulatedFiles(), image)
    for hosted in broker.host_all():
        fill(hosted, batch(b"1"))
    files = broker.killed()
    files.fail_sync(path=lambda path: path.startswith(f"{PATHS[1]}/orders"))
    again = Broker(files, image)
    assert again.failures.failed == [(again.manager.dirs[1].directory_id, [])]
    assert again.host("orders", 0).log.end_offset == 1
    again.image = image_of({"orders": 2}, partition_epoch=1)
    with pytest.raises(DiskFault):
        again.host("orders", 1)


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
