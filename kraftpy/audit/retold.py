"""A view of a cluster -> records that rebuild it, but for its partitions.

What always holds: lenient replay of `before_partitions`, the partitions, and `behind_partitions`
gives the same view.
"""

from collections.abc import Iterator

from kraftpy.audit.rules.view import View
from kraftpy.metadata_log import records as r
from kraftpy.types import BrokerId

_NOBODY = BrokerId(-1)


def before_partitions(view: View) -> Iterator[r.MetadataRecord]:
    """What must be known of before partitions are."""
    for name, level in sorted(view.all_features(), key=lambda each: each[0] != r.METADATA_VERSION):
        yield r.FeatureLevelRecord(name=name, feature_level=level)
    for _, broker in view.all_brokers():
        yield broker
    for topic_id, topic in sorted(view.topics.changed.items()):
        if topic is not None:
            yield r.TopicRecord(name=topic.name, topic_id=topic_id)


def behind_partitions(view: View) -> Iterator[r.MetadataRecord]:
    """Settings, and which producer ids were given away."""
    for (resource_type, resource_name), values in sorted(view.configs.changed.items()):
        for name, value in sorted((values or {}).items()):
            yield r.ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    if view.next_producer_id > 0:
        yield r.ProducerIdsRecord(
            broker_id=_NOBODY, broker_epoch=-1, next_producer_id=view.next_producer_id
        )
