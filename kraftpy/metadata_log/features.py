"""The features that this release knows, and the levels of each that it supports. Pure.

A feature's level says what every node may write and must understand, so brokers and controllers
put the same table into their registrations.

metadata.version has the one level whose records we write: every record goes into the log in its
newest version, which is what 33 (Kafka 4.4) stands for. group.version 1 is the consumer protocol of
KIP-848. transaction.version has no level above 0 until a coordinator honours it. kraft.version is
0, a fixed set of voters; its level belongs to Raft and is never in a metadata record.
"""

from collections.abc import Mapping
from typing import Final

from kraftpy.metadata_log.records import METADATA_VERSION, Feature
from kraftpy.wire.apis import VersionRange

GROUP_VERSION: Final = "group.version"
ELR_FEATURE: Final = "eligible.leader.replicas.version"
METADATA_VERSION_LEVEL: Final = 33
SUPPORTED: Final[Mapping[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
    ELR_FEATURE: VersionRange(0, 1),
    GROUP_VERSION: VersionRange(0, 1),
    "transaction.version": VersionRange(0, 0),
    "kraft.version": VersionRange(0, 0),
}


def supported_features() -> tuple[Feature, ...]:
    """What a node of this release puts into its registration."""
    return tuple(
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in sorted(SUPPORTED.items())
    )
