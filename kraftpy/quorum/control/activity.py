"""Which brokers count: who may lead and who may be in sync. Pure."""

from typing import Final

from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.records import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from kraftpy.types import BrokerId

_NO_DIRECTORY: Final = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)


def is_active(image: ClusterImage, broker_id: BrokerId) -> bool:
    """Registered, unfenced and not shutting down: it may lead, and join an ISR (KIP-841)."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def active_brokers(image: ClusterImage) -> list[BrokerId]:
    return sorted(broker_id for broker_id in image.brokers if is_active(image, broker_id))


def is_directory_online(image: ClusterImage, broker_id: BrokerId, directory: bytes) -> bool:
    """Whether a replica in this directory can be used.

    A directory that is not named yet counts as online: the broker says so if it is not.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or directory == LOST_DIRECTORY:
        return False
    return directory in _NO_DIRECTORY or not broker.log_dirs or directory in broker.log_dirs
