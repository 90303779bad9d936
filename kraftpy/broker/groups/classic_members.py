"""The members of a classic group: who is there, who waits, what all of them can speak. Pure.

What always holds: an instance id names one member at most, and that member has it; the counts of
protocols and of those who wait are what counting the members would give.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kraftpy.broker.groups.records import MemberRecord

Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the most wanted first.
Token = Any  # Names a request that waits for its answer; only its owner looks into it.


@dataclass(slots=True, kw_only=True)
class Member:
    """One consumer. `join_token` and `sync_token` are there while it waits for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False  # It has not seen the end of a rebalance yet.

    @property
    def is_joining(self) -> bool:
        return self.join_token is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def record(self, protocol: str | None, assignment: bytes) -> MemberRecord:
        return MemberRecord(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @staticmethod
    def of(record: MemberRecord, protocol: str | None) -> "Member":
        protocols = ((protocol, record.subscription),) if protocol is not None else ()
        return Member(
            member_id=record.member_id,
            instance_id=record.instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            session_timeout_ms=record.session_timeout_ms,
            protocols=protocols,
            assignment=record.assignment,
        )


class Members(Mapping[str, Member]):
    """By member id, in the order in which they came."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}  # Instance id to member id.
        self._speakers: dict[str, int] = {}  # Of each protocol: how many members know it.
        self.joining = 0

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    # -- changing -----------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        assert member.member_id not in self._members
        self._members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member.member_id
        self._count(member.protocols, 1)
        self.joining += member.is_joining

    def remove(self, member_id: str) -> Member:
        member = self._members.pop(member_id)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self._count(member.protocols, -1)
        self.joining -= member.is_joining
        return member

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def set_joining(self, member: Member, token: Token | None) -> Token | None:
        """Let it wait for the end of the rebalance, or not; who has waited so far."""
        before, member.join_token = member.join_token, token
        self.joining += (token is not None) - (before is not None)
        return before

    def _count(self, protocols: Protocols, by: int) -> None:
        for name in {name for name, _ in protocols}:
            count = self._speakers.get(name, 0) + by
            if count:
                self._speakers[name] = count
            else:
                del self._speakers[name]

    # -- looking ------------------------------------------------------------------------------

    def static_member_id(self, instance_id: str) -> str | None:
        return self._static.get(instance_id)

    def all_speak(self, protocol: str) -> bool:
        return self._speakers.get(protocol, 0) == len(self._members)

    def any_is_common(self, protocols: Iterable[tuple[str, bytes]]) -> bool:
        return any(self.all_speak(name) for name, _ in protocols)

    def elected_protocol(self) -> str | None:
        """Each member votes for the first of its list that all know; a tie goes to the protocol
        that was voted for first."""
        votes: dict[str, int] = {}
        common = {name for name in self._speakers if self.all_speak(name)}
        for member in self._members.values():
            vote = next((name for name, _ in member.protocols if name in common), None)
            if vote is not None:
                votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=votes.__getitem__, default=None)

    def rebalance_timeout_ms(self) -> int:
        """The slowest member decides."""
        return max((each.rebalance_timeout_ms for each in self._members.values()), default=0)
