"""An audit follows any log that replay accepts, never stops, and sees the same cluster.

Method: logs of records that are legal but follow no rule, in and out of transactions. The view of
the audit is compared with the image after each batch; so is the one that starts from each image.
"""

from hypothesis import given
from hypothesis import strategies as st

from kraftpy.audit.rules import LogAudit, check_batch, check_image
from kraftpy.audit.rules.view import View
from kraftpy.metadata_log import EMPTY, ClusterImage, MetadataRecord, replay_batch
from tests.property.strategies import legal_logs

Log = list[list[MetadataRecord]]


def sees(view: View, image: ClusterImage) -> None:
    seen = image if image.transaction is None else image.transaction.pending
    assert dict(view.all_brokers()) == dict(seen.brokers)
    assert dict(view.all_features()) == dict(seen.features)
    assert view.next_producer_id == seen.next_producer_id
    for topic_id in {*seen.topics, *view.topics.changed}:
        topic = seen.topics.get(topic_id)
        found = {key[1]: view.partition(key) for key in view.keys_of(topic_id)}
        assert found == ({} if topic is None else dict(topic.partitions))
        assert view.topic_name(topic_id) == ("" if topic is None else topic.name)
    for name in {*seen.topic_ids, *view.topic_ids.changed}:
        assert view.topic_ids.get(name) == seen.topic_ids.get(name)
    for resource in {*seen.configs, *view.configs.changed}:
        assert view.configs.get(resource) == seen.configs.get(resource)


@given(log=legal_logs())
def test_the_view_of_an_audit_is_the_image(log: Log) -> None:
    audit, image = LogAudit(), EMPTY
    for batch in log:
        base_offset = image.end_offset
        image = replay_batch(image, batch, base_offset, epoch=1)
        audit.batch(batch, base_offset=base_offset, epoch=1)
        sees(audit.view, image)


@given(log=legal_logs())
def test_an_audit_may_start_from_any_image(log: Log) -> None:
    image = EMPTY
    for batch in log:
        before, base_offset = image, image.end_offset
        image = replay_batch(image, batch, base_offset, epoch=1)
        audit = LogAudit(before)
        audit.batch(batch, base_offset=base_offset, epoch=1)
        sees(audit.view, image)
        check_image(image)
        found = check_batch(before, batch, image, base_offset=base_offset, epoch=1)
        assert not [each for each in found if each.rule.number == 6 and "Partition(" in each.actual]


@given(log=legal_logs(), data=st.data())
def test_an_audit_does_not_stop_where_replay_would(log: Log, data: st.DataObject) -> None:
    """With a batch lost, or read twice, much is wrong; it is said, not raised."""
    cut = data.draw(st.integers(0, max(0, len(log) - 1)))
    twice = data.draw(st.booleans())
    damaged = log[: cut + twice] + log[cut + (not twice) :]
    audit, offset = LogAudit(), 0
    for batch in damaged:
        audit.batch(batch, base_offset=offset, epoch=1)
        offset += len(batch)
