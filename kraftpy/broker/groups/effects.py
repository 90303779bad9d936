"""What a group's machine asks its shell to do, in order. Pure.

Answers leave when they are given out; a Store is appended to the group's log, and the machine is
told of its outcome, by `stored`, when it is committed or will not be.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups.consumer_requests import HeartbeatAnswer
from kraftpy.broker.groups.records import LogRecord

TimerKey = tuple[str, str]  # (what it is about, member id or "")


class JoinedMember(NamedTuple):
    """A member, as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    error: ErrorCode
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncAnswer(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Answer(NamedTuple):
    """Of a request that has waited."""

    token: Any
    answer: JoinAnswer | SyncAnswer | HeartbeatAnswer


class StartTimer(NamedTuple):
    """Call `timer_fired(key)` after the time, in place of a timer of that key before."""

    key: TimerKey
    delay_ms: int


class StopTimer(NamedTuple):
    key: TimerKey


class Store(NamedTuple):
    """Append these records, then call `stored(reason, error)`."""

    records: Sequence[LogRecord]
    reason: Any


Effect = Answer | StartTimer | StopTimer | Store
