"""The log as it comes, and the cluster as it was, from a real directory."""

from pathlib import Path

from kraftpy.admin import history
from kraftpy.admin.history import Past, Tail
from kraftpy.metadata_log import records as r
from kraftpy.storage.file_layer import OsFiles
from tests.unit.admin.node import LookedAt, small_cluster
from tests.unit.metadata_log.makers import brokers, change


def test_a_tail_tells_each_record_once_with_the_names_of_its_own_batch(tmp_path: Path) -> None:
    node = LookedAt(tmp_path)
    tail = Tail(OsFiles(), node.metadata_dir)
    node.say(*small_cluster())
    told = tail.read(node.image.end_offset)
    assert [each["offset"] for each in told] == list(range(node.image.end_offset))
    assert "orders-1 has replicas [1, 2, 3]" in told[-1]["text"], "the topic is in the same batch"
    assert tail.read(node.image.end_offset) == []
    node.say(change(0, isr=brokers(1, 2)))
    (last,) = tail.read(node.image.end_offset)
    assert last["text"] == "orders-0: in sync [1, 2] (-3)"
    assert (last["type"], last["epoch"]) == ("PartitionChangeRecord", 1)


def test_what_is_not_committed_yet_is_not_told(tmp_path: Path) -> None:
    node = LookedAt(tmp_path)
    node.say(*small_cluster())
    committed = node.image.end_offset
    node.say(change(0, isr=brokers(1, 2)))
    tail = Tail(OsFiles(), node.metadata_dir)
    assert [each["offset"] for each in tail.read(committed)] == list(range(committed))
    assert tail.read(committed) == []
    assert [each["offset"] for each in tail.read(committed + 1)] == [committed]


def test_after_a_flood_only_its_end_is_told(tmp_path: Path) -> None:
    node = LookedAt(tmp_path)
    tail = Tail(OsFiles(), node.metadata_dir)
    tail.read(node.image.end_offset)
    node.log.append([r.NoOpRecord()] * 4000, 1)
    told = tail.read(4001)
    assert [each["offset"] for each in told] == list(range(4001 - history._SHOWN_AT_FIRST, 4001))


def test_records_of_a_metadata_transaction_have_their_names(tmp_path: Path) -> None:
    node = LookedAt(tmp_path)
    begin, end = r.BeginTransactionRecord(name="x"), r.EndTransactionRecord()
    node.say(begin, *small_cluster(), end)
    told = Tail(OsFiles(), node.metadata_dir).read(node.image.end_offset)
    assert any("orders-0 has replicas" in each["text"] for each in told)


def test_the_past_is_as_it_was_and_is_kept(tmp_path: Path) -> None:
    node = LookedAt(tmp_path)
    node.say(*small_cluster())
    then = node.image.end_offset
    node.say(change(0, isr=brokers(1, 2)))
    past = Past(OsFiles(), node.metadata_dir)
    assert past.first_offset() == 0
    assert past.at(0)["topics"] == []
    assert past.at(then)["health"]["under_replicated"] == 0
    assert past.at(then + 1)["health"]["under_replicated"] == 1
    assert past.at(then) is past.at(then)
    for offset in range(40):
        past.at(offset % (then + 2))
    assert len(past._kept) <= history._KEPT_IMAGES
