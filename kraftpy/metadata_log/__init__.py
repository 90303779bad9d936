"""What is true of the cluster: metadata records, the image they make, and how they make it."""

from kraftpy.metadata_log.codec import (
    decode_record,
    decode_records,
    encode_record,
    encode_records,
)
from kraftpy.metadata_log.delta import ClusterDelta, replay, replay_all, replay_batch
from kraftpy.metadata_log.image import (
    EMPTY,
    Changes,
    ClusterImage,
    MetadataTransaction,
    Partition,
    Topic,
)
from kraftpy.metadata_log.image_json import image_to_json
from kraftpy.metadata_log.records import RECORD_TYPES, MetadataRecord
from kraftpy.metadata_log.snapshot_records import snapshot_records

__all__ = [
    "EMPTY",
    "RECORD_TYPES",
    "Changes",
    "ClusterDelta",
    "ClusterImage",
    "MetadataRecord",
    "MetadataTransaction",
    "Partition",
    "Topic",
    "decode_record",
    "decode_records",
    "encode_record",
    "encode_records",
    "image_to_json",
    "replay",
    "replay_all",
    "replay_batch",
    "snapshot_records",
]
