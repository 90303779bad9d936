"""Which versions of which API a broker can serve, and how that is told to clients. Pure.

The ranges are those of Apache Kafka 4.4 as far as kio has the messages. Whoever wires a broker says
which of the APIs it really serves: what is listed is used, so nothing is listed that is not there.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kraftpy.wire.apis import ApiTable, VersionRange
from kraftpy.wire.headers import API_VERSIONS
from kraftpy.wire.produce import PRODUCE

KNOWN: Final[ApiTable] = {
    key: VersionRange(low, high)
    for key, low, high in (
        (PRODUCE, 3, 13),
        (1, 4, 18),  # Fetch
        (2, 1, 11),  # ListOffsets
        (3, 0, 13),  # Metadata
        (8, 2, 10),  # OffsetCommit
        (9, 1, 10),  # OffsetFetch
        (10, 0, 6),  # FindCoordinator
        (11, 0, 9),  # JoinGroup
        (12, 0, 4),  # Heartbeat
        (13, 0, 5),  # LeaveGroup
        (14, 0, 5),  # SyncGroup
        (15, 0, 6),  # DescribeGroups
        (16, 0, 5),  # ListGroups
        (17, 0, 1),  # SaslHandshake
        (API_VERSIONS, 0, 4),
        (19, 2, 7),  # CreateTopics
        (20, 1, 6),  # DeleteTopics
        (21, 0, 2),  # DeleteRecords
        (22, 0, 5),  # InitProducerId
        (23, 2, 4),  # OffsetForLeaderEpoch
        (24, 0, 5),  # AddPartitionsToTxn
        (25, 0, 4),  # AddOffsetsToTxn
        (26, 0, 5),  # EndTxn
        (27, 1, 2),  # WriteTxnMarkers
        (28, 0, 5),  # TxnOffsetCommit
        (29, 1, 3),  # DescribeAcls
        (30, 1, 3),  # CreateAcls
        (31, 1, 3),  # DeleteAcls
        (32, 1, 4),  # DescribeConfigs
        (33, 0, 2),  # AlterConfigs
        (34, 1, 2),  # AlterReplicaLogDirs
        (35, 1, 5),  # DescribeLogDirs
        (36, 0, 2),  # SaslAuthenticate
        (37, 0, 3),  # CreatePartitions
        (38, 1, 3),  # CreateDelegationToken
        (39, 1, 2),  # RenewDelegationToken
        (40, 1, 2),  # ExpireDelegationToken
        (41, 1, 3),  # DescribeDelegationToken
        (42, 0, 2),  # DeleteGroups
        (43, 0, 2),  # ElectLeaders
        (44, 0, 1),  # IncrementalAlterConfigs
        (45, 0, 1),  # AlterPartitionReassignments
        (46, 0, 0),  # ListPartitionReassignments
        (47, 0, 0),  # OffsetDelete
        (48, 0, 1),  # DescribeClientQuotas
        (49, 0, 1),  # AlterClientQuotas
        (50, 0, 0),  # DescribeUserScramCredentials
        (51, 0, 0),  # AlterUserScramCredentials
        (55, 0, 2),  # DescribeQuorum
        (57, 0, 2),  # UpdateFeatures
        (60, 0, 2),  # DescribeCluster
        (61, 0, 0),  # DescribeProducers
        (64, 0, 0),  # UnregisterBroker
        (65, 0, 0),  # DescribeTransactions
        (66, 0, 2),  # ListTransactions
        (68, 0, 1),  # ConsumerGroupHeartbeat
        (69, 0, 1),  # ConsumerGroupDescribe
        (74, 0, 1),  # ListConfigResources
        (75, 0, 0),  # DescribeTopicPartitions
    )
}

# Advertised from a lower version on than is served, as Kafka does (KAFKA-18659): librdkafka before
# 2.11 looks for exactly these versions and otherwise, without a word, sends uncompressed. It never
# sends them; a client that does is refused.
_ADVERTISED_FROM: Final[Mapping[int, int]] = {PRODUCE: 0}


def served(api_keys: Iterable[int]) -> ApiTable:
    """The table of a broker that serves these APIs and ApiVersions."""
    return {key: KNOWN[key] for key in sorted({*api_keys, API_VERSIONS})}


def advertised(table: ApiTable) -> ApiTable:
    """What ApiVersions says of a table."""
    return {
        key: versions._replace(min_version=_ADVERTISED_FROM.get(key, versions.min_version))
        for key, versions in table.items()
    }
