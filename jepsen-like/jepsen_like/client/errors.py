"""What an error means for the operation: did it happen?

`fail` is only for what certainly did not happen and never will. A time-out, a connection that broke
after the request was written, and NOT_ENOUGH_REPLICAS_AFTER_APPEND leave it open: the record was
appended, or may be. When in doubt it is `info`.
"""

from typing import Final

NAMES: Final = {
    -1: "UNKNOWN_SERVER_ERROR",
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    9: "REPLICA_NOT_AVAILABLE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    22: "ILLEGAL_GENERATION",
    25: "UNKNOWN_MEMBER_ID",
    27: "REBALANCE_IN_PROGRESS",
    35: "UNSUPPORTED_VERSION",
    36: "TOPIC_ALREADY_EXISTS",
    37: "INVALID_PARTITIONS",
    38: "INVALID_REPLICATION_FACTOR",
    40: "INVALID_CONFIG",
    41: "NOT_CONTROLLER",
    42: "INVALID_REQUEST",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    56: "KAFKA_STORAGE_ERROR",
    59: "UNKNOWN_PRODUCER_ID",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    84: "ELECTION_NOT_NEEDED",
    85: "NO_REASSIGNMENT_IN_PROGRESS",
    89: "THROTTLING_QUOTA_EXCEEDED",
    100: "UNKNOWN_TOPIC_ID",
}
NONE: Final = 0
TOPIC_ALREADY_EXISTS: Final = 36
UNKNOWN_TOPIC: Final = 3
NOT_LEADER: Final = 6
DUPLICATE_SEQUENCE: Final = 46

# Refused before anything was written. KAFKA_STORAGE_ERROR and UNKNOWN_SERVER_ERROR are not among
# them: the disk may have taken it. NOT_LEADER_OR_FOLLOWER is what a leader also says of a record
# that it has appended and then was replaced, so for a Produce that waited it is open, see below.
# For the same reason NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE are not among them: so says a
# coordinator of a commit that it has appended, when it loses its partition, its disk, or followers.
_DEFINITE: Final = frozenset(
    {2, 3, 5, 8, 9, 14, 19, 22, 25, 27, 35, 36, 37, 38, 40, 41, 42, 45, 47, 59, 74, 75, 100}
)


def name_of(code: int) -> str:
    return NAMES.get(code, f"ERROR_{code}")


def is_definite(code: int) -> bool:
    """Whether an answer with this error says that nothing was done."""
    return code in _DEFINITE


class Unsent(Exception):
    """There was no connection: the request never left. Definite."""


class Unanswered(Exception):
    """The request left, and no answer came. Nobody knows."""
