"""What members of the new protocol ask and are told, and what is refused at sight. Pure."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups.consumer_records import NOTHING, Partitions
from kraftpy.broker.groups.topic_patterns import PatternError, TopicPattern

JOIN: Final = 0
LEAVE: Final = -1
LEAVE_FOR_NOW: Final = -2  # Of a static member, which is going to come back.
UNCHANGED: Final = -1  # A rebalance timeout that is as it was.
TEXT_BYTES_MAX: Final = 2**15 - 1  # What the key of a record can hold.


class HeartbeatRequest(NamedTuple):
    """None: as it was."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED
    topics: tuple[str, ...] | None = None
    regex: str | None = None  # "" takes it back.
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """A member that joins, or that does not know whether it was heard, says everything."""
        has_subscription = self.topics is not None or self.regex is not None
        has_timeout = self.rebalance_timeout_ms != UNCHANGED
        return has_timeout and has_subscription and self.owned is not None


class HeartbeatAnswer(NamedTuple):
    error: ErrorCode
    why: str | None = None
    member_id: str | None = None
    epoch: int = 0
    assigned: Partitions | None = None  # None: as it was.


class Leaving(NamedTuple):
    """A member that is taken out: its time is over, or an admin wants it."""

    member_id: str


class Asked(NamedTuple):
    """A heartbeat, and who waits for its answer."""

    request: HeartbeatRequest
    token: Any
    released: Partitions = NOTHING  # What it was told to give up, before, and says it has not.


Operation = Asked | Leaving


class Refused(Exception):
    """Why a member does not get what it wants."""

    def __init__(self, error: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.answer = HeartbeatAnswer(error, why)


def check_request(asked: HeartbeatRequest, assignors: Iterable[str]) -> HeartbeatAnswer | None:
    """Why it makes no sense, whatever the group is like; None if it does."""
    why = _invalid(asked)
    if why is not None:
        return HeartbeatAnswer(ErrorCode.invalid_request, why)
    if asked.assignor is not None and asked.assignor not in assignors:
        known = ", ".join(assignors)
        why = f"ServerAssignor {asked.assignor} is not supported. Supported assignors: {known}."
        return HeartbeatAnswer(ErrorCode.unsupported_assignor, why)
    if asked.regex:
        try:
            TopicPattern(asked.regex)
        except PatternError as error:
            why = f"SubscribedTopicRegex `{asked.regex}` is not a valid regular expression: {error}"
            return HeartbeatAnswer(ErrorCode.invalid_regular_expression, why)
    return None


def _invalid(asked: HeartbeatRequest) -> str | None:
    texts = {
        "MemberId": asked.member_id,
        "InstanceId": asked.instance_id,
        "RackId": asked.rack_id,
    }
    for name, text in texts.items():
        if text is not None and not text.strip():
            return f"{name} can't be empty."
        if len((text or "").encode()) > TEXT_BYTES_MAX:
            return f"{name} is too long."
    match asked.epoch:
        case 0:
            return _invalid_join(asked)
        case -2 if asked.instance_id is None:
            return "InstanceId can't be null."
        case epoch if epoch < LEAVE_FOR_NOW:
            return "MemberEpoch is invalid."
        case _:
            return None


def _invalid_join(asked: HeartbeatRequest) -> str | None:
    if asked.rebalance_timeout_ms == UNCHANGED:
        return "RebalanceTimeoutMs must be provided in first request."
    if asked.owned is None or asked.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if asked.topics is None and asked.regex is None:
        return (
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )
    return None
