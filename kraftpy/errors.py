"""What can go wrong, by what the caller must do about it.

KraftError
├── ConfigError     a flag, setting or directory is wrong: one line to the user, exit 2
│   └── AddressInUse    somebody else listens there
├── ApiError        an expected refusal, one Kafka error code each
│   ├── NotController       definite: nothing was written here, and nothing will be
│   └── OutcomeUnknown      what was asked for may yet commit
├── Unreachable     another node does not answer, or not in time
├── WireError       a peer's bytes are malformed: close that connection, nothing more
│   └── InvalidBatch    a batch offered to a log is malformed: nothing of the request is written
├── StorageError    the log refuses, and nothing was changed
│   ├── CorruptRecord       bytes at rest are damaged: file, position and offset are named
│   ├── RecordDecodeError   a metadata record cannot be understood; never guessed at
│   ├── OffsetOutOfRange    the offset is not in the log
│   └── DirectoryInUse      another process holds the directory's lock
└── FatalFault      the node must stop: what was acknowledged is safe, the rest is not known
    ├── DiskFault       a write or fsync failed; it is never retried
    ├── ReplayError     a committed record is illegal for the image it meets
    └── IllegalDecision a decision would take a partition where its states do not lead
"""


class KraftError(Exception):
    """Everything kraftpy raises on purpose."""


class ConfigError(KraftError):
    """A flag, setting or directory that the user must change; the message is one line."""


class AddressInUse(ConfigError):
    """Somebody else listens at the address that a setting names."""


class ApiError(KraftError):
    """An expected refusal. `code` is Kafka's number for it."""

    code = -1


class NotController(ApiError):
    """This node does not lead the quorum in that epoch. Nothing was written."""

    code = 41


class OutcomeUnknown(ApiError):
    """The write was accepted, but the leader lost its place before it committed: it may yet."""

    code = 7


class Unreachable(KraftError):
    """Another node cannot be connected to, closes the connection or does not answer in time."""


class WireError(KraftError):
    """A peer sent bytes that are not what the protocol says."""


class InvalidBatch(WireError):
    """A record batch offered for append is malformed: none of the request was written."""


class StorageError(KraftError):
    """The log refuses; nothing was changed."""


class CorruptRecord(StorageError):
    """Damage at rest. `offset` is the first offset that cannot be trusted."""

    def __init__(self, path: str, position: int, offset: int, reason: str) -> None:
        super().__init__(f"{path}: corrupt at position {position} (offset {offset}): {reason}")
        self.path = path
        self.position = position
        self.offset = offset
        self.reason = reason


class RecordDecodeError(StorageError):
    """A metadata record's bytes do not decode; `offset` is -1 where the caller has none."""

    def __init__(self, reason: str, offset: int = -1) -> None:
        super().__init__(f"metadata record at offset {offset}: {reason}")
        self.reason = reason
        self.offset = offset


class OffsetOutOfRange(StorageError):
    """The offset lies before the log's start or after its end."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is not in [{start_offset}, {end_offset}]")
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class DirectoryInUse(StorageError):
    """Another process holds the lock of a data directory."""


class FatalFault(KraftError):
    """The node must stop; its caller logs CRITICAL and exits."""


class DiskFault(FatalFault):
    """A write or fsync failed. What the page cache holds is unknown, so it is never retried."""


class ReplayError(FatalFault):
    """A record is illegal for the image it meets. The image is as it was before."""

    def __init__(self, record: object, offset: int, rule: str) -> None:
        super().__init__(f"cannot replay {record!r} at offset {offset}: {rule}")
        self.record = record
        self.offset = offset
        self.rule = rule


class IllegalDecision(FatalFault):
    """A decision that breaks the rules of the states it changes. It was not written."""
