"""Every record type has a sentence, and the sentence says what changed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.admin.meaning import meaning
from kraftpy.metadata_log import EMPTY, replay_batch
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.control_records import leader_change
from kraftpy.types import NO_LEADER, BrokerId
from tests.property.strategies import records_of
from tests.unit.admin.node import small_cluster
from tests.unit.metadata_log.makers import (
    TOPIC_ID,
    brokers,
    change,
    config,
    producer_ids,
    register,
    scram,
)

IMAGE = replay_batch(EMPTY, small_cluster(), 0, epoch=1)


@pytest.mark.parametrize("record_type", r.RECORD_TYPES.values())
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_every_record_means_something_on_any_image(
    record_type: type[r.MetadataRecord], data: st.DataObject
) -> None:
    record = data.draw(records_of(record_type, record_type.MAX_VERSION))
    for image in (EMPTY, IMAGE):
        said = meaning(record, image)
        assert said
        assert said != record_type.__name__


SENTENCES = [
    (leader_change(2, [1, 2], [2]), "controller 2 leads the quorum from here on"),
    (register(1, 90), "broker 1 registers again, in a new life at (nowhere); it is fenced until"),
    (
        change(isr=brokers(2, 3), leader=BrokerId(2), leader_epoch=5),
        "orders-0: 2 leads now, was 1; in sync [2, 3] (-1)",
    ),
    (change(leader=NO_LEADER, isr=(), leader_epoch=5), "orders-0: nobody can lead it; in sync []"),
    (
        change(leader=BrokerId(3), isr=brokers(3), leader_recovery_state=r.RECOVERING),
        "orders-0: 3 leads now without having all records, was 1",
    ),
    (change(adding_replicas=brokers(4), replicas=brokers(1, 2, 3, 4)), "[4] are being added"),
    (config("retention.ms", "5"), "topic orders: retention.ms is 5"),
    (producer_ids(1000), "broker 1 may give out producer ids 0 to 999"),
    (r.FenceBrokerRecord(id=BrokerId(1), epoch=11), "broker 1 is fenced: it may lead nothing"),
    (
        r.BrokerRegistrationChangeRecord(
            broker_id=BrokerId(2), broker_epoch=12, in_controlled_shutdown=r.SHUTTING_DOWN
        ),
        "broker 2 is shutting down: its leaderships move away",
    ),
    (r.RemoveTopicRecord(topic_id=TOPIC_ID), "topic orders is deleted"),
    (scram(), "user alice has new SCRAM credentials"),
]


@pytest.mark.parametrize(("record", "words"), SENTENCES)
def test_a_sentence_says_what_changed(record: r.MetadataRecord, words: str) -> None:
    assert words in meaning(record, IMAGE)
