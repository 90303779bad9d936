"""A broker's copy of the metadata log: what it takes, what it refuses, what survives a crash.

Crashes: a script runs once to count its effects on the disk, then once per effect with the machine
dying there. Whatever is left opens, holds a beginning of the history that is not shorter than what
was synced, and gives the whole history once the rest is fetched.
"""

import random
from dataclasses import replace

import pytest

from kraftpy.broker.metadata.copy import MetadataCopy, first_step
from kraftpy.broker.metadata.image_changes import changes_between
from kraftpy.clock import ManualClock
from kraftpy.errors import FatalFault, ReplayError, WireError
from kraftpy.metadata_log.batches import record_batch
from kraftpy.metadata_log.image import EMPTY
from kraftpy.metadata_log.metadata_log import MetadataLogConfig
from kraftpy.metadata_log.snapshotter import SnapshotPolicy
from kraftpy.storage.file_layer import FileLayer
from kraftpy.testing.simulated_files import PowerLoss, SimulatedFiles
from tests.unit.broker.history import History, Written, life_of_a_cluster
from tests.unit.metadata_log.makers import topic

DIRECTORY = "/broker/__cluster_metadata-0"
HISTORY = History(life_of_a_cluster())
CONFIG = MetadataLogConfig(segment_bytes=2048, retention_bytes=4096, retention_ms=None)
SECOND_MS = 1000


def open_copy(
    files: FileLayer, clock: ManualClock | None = None, *, snapshot_bytes: int = 1 << 40
) -> MetadataCopy:
    policy = SnapshotPolicy(bytes_between=snapshot_bytes, interval_ms=None)
    return MetadataCopy(files, DIRECTORY, CONFIG, policy, clock or ManualClock(), Written)


def fetch_all(copy: MetadataCopy, history: History = HISTORY, count: int = 4) -> None:
    while copy.end_offset < history.end_offset:
        copy.take(history.after(copy.end_offset, count), history.end_offset)


def install(copy: MetadataCopy, end_offset: int, history: History = HISTORY) -> None:
    snapshot_id, data = history.snapshot(end_offset)
    copy.begin_snapshot(snapshot_id)
    for at in range(0, len(data), 500):
        copy.add_piece(data[at : at + 500])
    copy.finish_snapshot()


def at_middle(history: History = HISTORY) -> int:
    return sorted(history.images)[len(history.images) // 2]


# -- what it takes ----------------------------------------------------------------------------


def test_what_is_taken_is_the_history_and_is_replayed_at_a_restart() -> None:
    files = SimulatedFiles()
    copy = open_copy(files)
    fetch_all(copy)
    assert copy.image == HISTORY.images[HISTORY.end_offset]
    copy.close()
    again = open_copy(files)
    assert again.image == HISTORY.images[HISTORY.end_offset]
    assert again.end_offset == HISTORY.end_offset
    again.close()


def test_each_step_tells_the_changes_that_it_made() -> None:
    copy = open_copy(SimulatedFiles())
    while copy.end_offset < HISTORY.end_offset:
        before = copy.image
        image, changes = copy.take(HISTORY.after(copy.end_offset, 3), HISTORY.end_offset)
        assert image is copy.image
        assert changes == changes_between(before, image)
    copy.close()
    assert first_step(copy.image).changes == changes_between(EMPTY, copy.image)


def test_what_is_not_committed_is_refused_and_nothing_is_written() -> None:
    copy = open_copy(SimulatedFiles())
    with pytest.raises(WireError, match="beyond what is committed"):
        copy.take(HISTORY.after(0, 2), high_watermark=2)
    assert (copy.end_offset, copy.image) == (0, EMPTY)
    copy.close()


@pytest.mark.parametrize("damage", ["gap", "again", "bit", "short", "old epoch"])
def test_batches_that_do_not_continue_the_copy_are_refused(damage: str) -> None:
    copy = open_copy(SimulatedFiles())
    copy.take(HISTORY.after(0, 7), HISTORY.end_offset)
    end, image = copy.end_offset, copy.image
    good = HISTORY.after(end, 2)
    other = History(life_of_a_cluster(), per_epoch=10)
    bad = {
        "gap": HISTORY.after(end + 1, 2),
        "again": HISTORY.after(0, 1),
        "bit": good[:80] + bytes([good[80] ^ 1]) + good[81:],
        "short": good[:-1],
        "old epoch": other.after(end, 2),
    }[damage]
    with pytest.raises(WireError):
        copy.take(bad, HISTORY.end_offset)
    assert (copy.end_offset, copy.image) == (end, image)
    fetch_all(copy)
    copy.close()


def test_a_record_that_cannot_be_replayed_is_named_and_never_stored() -> None:
    copy = open_copy(SimulatedFiles())
    copy.take(History([[topic("a")]]).after(0), 1)
    again = record_batch([topic("b")], base_offset=1, epoch=1, timestamp_ms=1_700_000_000_000)
    with pytest.raises(ReplayError, match=r"TopicRecord.*offset 1"):
        copy.take(bytes(again), 2)
    assert copy.end_offset == 1
    copy.close()


# -- snapshots --------------------------------------------------------------------------------


def test_a_snapshot_takes_the_place_of_the_copy_and_the_log_goes_on_behind_it() -> None:
    files = SimulatedFiles()
    copy = open_copy(files)
    copy.take(HISTORY.after(0, 3), HISTORY.end_offset)
    install(copy, at_middle())
    assert copy.image == HISTORY.images[at_middle()]
    assert copy.start_offset == copy.end_offset == at_middle()
    fetch_all(copy)
    copy.close()
    again = open_copy(files)
    assert again.image == HISTORY.images[HISTORY.end_offset]
    again.close()


@pytest.mark.parametrize("damage", ["bit", "short", "other"])
def test_a_damaged_snapshot_is_refused_and_the_copy_stays(damage: str) -> None:
    files = SimulatedFiles()
    copy = open_copy(files)
    copy.take(HISTORY.after(0, 3), HISTORY.end_offset)
    before = copy.image
    snapshot_id, data = HISTORY.snapshot(at_middle())
    half = len(data) // 2
    bad = {
        "bit": data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :],
        "short": data[:half],
        "other": b"\0" * 100,
    }[damage]
    copy.begin_snapshot(snapshot_id)
    copy.add_piece(bad)
    with pytest.raises(WireError, match="damaged snapshot"):
        copy.finish_snapshot()
    assert copy.image is before
    assert not [name for name in files.names(DIRECTORY) if "checkpoint." in name]
    fetch_all(copy)
    copy.close()


def test_a_snapshot_that_ends_before_the_copy_stops_the_broker() -> None:
    copy = open_copy(SimulatedFiles())
    fetch_all(copy)
    snapshot_id, _ = HISTORY.snapshot(at_middle())
    with pytest.raises(FatalFault, match="has lost what was committed"):
        copy.begin_snapshot(snapshot_id)
    copy.close()


def test_its_own_snapshots_let_it_remove_old_log() -> None:
    files, clock = SimulatedFiles(), ManualClock()
    copy = open_copy(files, clock, snapshot_bytes=1500)
    while copy.end_offset < HISTORY.end_offset:
        clock.advance(SECOND_MS)
        copy.take(HISTORY.after(copy.end_offset, 2), HISTORY.end_offset)
    assert copy.start_offset > 0
    copy.close()
    again = open_copy(files)
    assert again.image == HISTORY.images[HISTORY.end_offset]
    again.close()


# -- damage at rest ---------------------------------------------------------------------------


def test_a_corrupt_copy_is_refused_with_a_way_out() -> None:
    files = SimulatedFiles()
    copy = open_copy(files)
    fetch_all(copy)
    copy.close()
    name = next(name for name in files.names(DIRECTORY) if name.endswith(".log"))
    file = files.open(f"{DIRECTORY}/{name}")
    file.write(100, [b"\xff" * 8])
    file.close()
    with pytest.raises(FatalFault, match=rf"corrupt at position .*remove {DIRECTORY}"):
        open_copy(files)
    for each in files.names(DIRECTORY):
        files.remove(f"{DIRECTORY}/{each}")
    again = open_copy(files)
    fetch_all(again)
    again.close()


# -- crashes ----------------------------------------------------------------------------------


def script(files: SimulatedFiles) -> None:
    """Batches, syncs, own snapshots, a snapshot from the controller, more batches."""
    clock = ManualClock()
    copy = open_copy(files, clock, snapshot_bytes=1200)
    for _ in range(4):
        copy.take(HISTORY.after(copy.end_offset, 2), HISTORY.end_offset)
        clock.advance(SECOND_MS)
    install(copy, sorted(HISTORY.images)[15])
    for _ in range(4):
        copy.take(HISTORY.after(copy.end_offset, 2), HISTORY.end_offset)
        clock.advance(SECOND_MS)
    copy.close()


def boundaries() -> int:
    files = SimulatedFiles(hard=False)
    script(files)
    return len(files.boundaries)


def check_left(files: SimulatedFiles) -> None:
    copy = open_copy(files)
    assert copy.image == HISTORY.images[copy.end_offset]
    fetch_all(copy)
    assert copy.image == HISTORY.images[HISTORY.end_offset]
    copy.close()


@pytest.mark.parametrize("part", range(4))
def test_wherever_it_is_stopped_a_beginning_is_left_and_the_rest_is_fetched(part: int) -> None:
    rng = random.Random(part)
    for crash_at in range(1 + part, boundaries() + 1, 4):
        files = SimulatedFiles(random.Random(crash_at), crash_at=crash_at, hard=False)
        with pytest.raises(PowerLoss):
            script(files)
        check_left(files.process_crash())
        for _ in range(3):
            check_left(files.random_outcome(rng))


def test_a_planted_order_of_effects_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is emptied before the snapshot has its name: a crash between leaves neither."""
    original = MetadataCopy.finish_snapshot

    def emptied_first(copy: MetadataCopy) -> object:
        assert copy._receiving is not None
        copy._log.log.truncate_fully_and_start_at(copy._receiving.snapshot_id.end_offset)
        return original(copy)

    monkeypatch.setattr(MetadataCopy, "finish_snapshot", emptied_first)
    lost = 0
    for crash_at in range(1, boundaries() + 1):
        files = SimulatedFiles(random.Random(crash_at), crash_at=crash_at, hard=False)
        with pytest.raises(PowerLoss):
            script(files)
        try:
            check_left(files.process_crash())
        except FatalFault:
            lost += 1
    assert lost > 0


def test_a_failed_sync_ends_the_copy() -> None:
    files, clock = SimulatedFiles(), ManualClock()
    copy = open_copy(files, clock)
    clock.advance(SECOND_MS)
    files.fail_sync(1, lambda path: path.endswith(".log"))
    with pytest.raises(FatalFault, match="cannot flush"):
        copy.take(HISTORY.after(0, 2), HISTORY.end_offset)


def test_contents_differ_only_where_the_changes_say() -> None:
    """Every pair of images of the history, in both directions."""
    images = list(HISTORY.images.values())
    for before in images[::3]:
        for after in images[::4]:
            changes = changes_between(before, after)
            for topic_id, found in after.topics.items():
                old = before.topics.get(topic_id)
                same = old is not None and old == found
                assert (topic_id in changes.topics) == (not same)
            assert changes.deleted_topics == set(before.topics) - set(after.topics)
            assert bool(changes.brokers) == (before.brokers != after.brokers)
            assert ("quotas" in changes.others) == (before.quotas != after.quotas)
            without = replace(after, end_offset=before.end_offset)
            assert changes_between(after, without) == changes_between(after, after)
