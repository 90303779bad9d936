"""The first records of a new cluster."""

from typing import Final

from kraftpy.metadata_log.control_records import leader_change
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.metadata_log import MetadataLog
from kraftpy.metadata_log.records import METADATA_VERSION, FeatureLevelRecord

# Kafka's level that has every record type and version of records.py (UnregisterController: 4.4).
METADATA_VERSION_LEVEL: Final = 33
_FIRST_EPOCH: Final = 1


def open_alone(metadata_log: MetadataLog, node_id: int) -> ClusterImage:
    """The image of a log whose owner is the only voter, so that all of it is committed.

    A new log gets its first epoch and its metadata.version; a crash between the two is made good.
    """
    log = metadata_log.log
    if log.end_offset == 0:
        metadata_log.append_control(leader_change(node_id, [node_id], [node_id]), _FIRST_EPOCH)
    image = metadata_log.load_image()
    if METADATA_VERSION in image.features:
        return image
    record = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL)
    metadata_log.append([record], max(log.epochs.latest, image.epoch))
    return metadata_log.replay(image, log.end_offset)
