"""The settings of a topic that decide elections: its own, else the cluster's. Pure.

Kafka looks in this order: the topic's config, the cluster's default for all brokers (broker
resource with an empty name), what the controller was started with. A broker's own config does not
count, since one value must hold for all replicas.
"""

from typing import Final

from kraftpy.metadata_log.features import ELR_FEATURE as ELR_FEATURE
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.records import BROKER_RESOURCE, TOPIC_RESOURCE
from kraftpy.quorum.control.settings import ControllerSettings

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
_DEFAULT_BROKERS: Final = (BROKER_RESOURCE, "")


def min_insync_replicas(image: ClusterImage, settings: ControllerSettings, topic_name: str) -> int:
    value = _value(image, topic_name, MIN_INSYNC_REPLICAS)
    return settings.min_insync_replicas if value is None else int(value)


def unclean_election_enabled(
    image: ClusterImage, settings: ControllerSettings, topic_name: str
) -> bool:
    """Whether losing acknowledged records is preferred to having no leader."""
    value = _value(image, topic_name, UNCLEAN_ELECTION)
    if value is None:
        return settings.unclean_leader_election_enable
    return value.strip().lower() == "true"


def elr_enabled(image: ClusterImage) -> bool:
    """KIP-966: replicas that left the ISR below min.insync.replicas are remembered as eligible."""
    return image.features.get(ELR_FEATURE, 0) >= 1


def _value(image: ClusterImage, topic_name: str, key: str) -> str | None:
    for resource in ((TOPIC_RESOURCE, topic_name), _DEFAULT_BROKERS):
        configs = image.configs.get(resource)
        if configs is not None and key in configs:
            return configs[key]
    return None
