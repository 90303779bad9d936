"""The groups of one partition of __consumer_offsets: what its log says, and machines on top. Pure.

The durable part is what replaying the log gives: offsets, and each group as it last was at the end
of a rebalance. Records are replayed when they are committed, here as on whoever loads them later,
so that both have the same. The machines are made of it when the log has been read; what they know
beyond it (who waits, who is about to join) is lost with the coordinator, and members join again.

A group is there as soon as somebody is in it or it has offsets.
"""

from collections.abc import Callable, Iterable
from typing import Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import records
from kraftpy.broker.groups.classic_group import ClassicGroup
from kraftpy.broker.groups.classic_states import State
from kraftpy.broker.groups.config import GroupConfig
from kraftpy.broker.groups.consumer_decisions import Topics
from kraftpy.broker.groups.consumer_group import ConsumerGroup
from kraftpy.broker.groups.consumer_records import GROUP_TYPES, MEMBER_TYPES
from kraftpy.broker.groups.consumer_shard import NO_TOPICS, ConsumerGroups
from kraftpy.broker.groups.offsets import CommittedOffsets, is_expired, tombstones
from kraftpy.broker.groups.records import (
    GroupRecord,
    LogRecord,
    OffsetKey,
    group_key,
    key_type,
    read_group,
    read_group_key,
    read_offset,
    read_offset_key,
)
from kraftpy.broker.groups.subscriptions import CONSUMER, subscribed_topics

_NOT_EMPTY: Final = (
    State.STABLE,
    State.PREPARING_REBALANCE,
    State.COMPLETING_REBALANCE,
)


class GroupShard:
    """One task owns it."""

    def __init__(self, config: GroupConfig, topics: Topics = NO_TOPICS) -> None:
        self.config = config
        self.consumers = ConsumerGroups(config, topics)
        self.offsets = CommittedOffsets()
        self.stored: dict[str, GroupRecord] = {}
        self.groups: dict[str, ClassicGroup] = {}

    # -- replay -------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one committed record. What a newer Kafka wrote, of a type unknown here, is left."""
        match key_type(key):
            case records.OFFSET_KEY | records.OLD_OFFSET_KEY:
                record = None if value is None else read_offset(value)
                self.offsets.replay(read_offset_key(key), record)
            case records.GROUP_KEY:
                group_id = read_group_key(key)
                if value is None:
                    self.stored.pop(group_id, None)
                else:
                    self.stored[group_id] = read_group(value)
            case kind if kind in GROUP_TYPES or kind in MEMBER_TYPES:
                self.consumers.replay(key, value)

    def loaded(self, now_ms: int) -> None:
        """The log has been read to its end: make the machines."""
        self.consumers.loaded()
        for group_id in {**self.stored, **dict.fromkeys(self.offsets)}:
            consumers = self.consumers.find(group_id)
            stored = self.stored.get(group_id)
            if consumers is not None and (consumers.members or not (stored and stored.members)):
                continue  # It is in use by the new protocol, or was when it was last used.
            self.consumers.drop(group_id)
            self.groups[group_id] = self._made(group_id, now_ms)
            self.groups[group_id].loaded()

    def _made(self, group_id: str, now_ms: int) -> ClassicGroup:
        group = ClassicGroup(group_id, self.config, now_ms)
        record = self.stored.get(group_id)
        if record is not None:
            group.load(record)
        return group

    # -- groups -------------------------------------------------------------------------------

    def machines(self) -> list[ClassicGroup | ConsumerGroup]:
        return [*self.groups.values(), *self.consumers]

    def find(self, group_id: str) -> ClassicGroup | None:
        return self.groups.get(group_id)

    def find_or_make(self, group_id: str, now_ms: int) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._made(group_id, now_ms)
        return group

    def forget_if_unused(self, group: ClassicGroup) -> None:
        """A group that nobody could join, and that has nothing, was never there."""
        if (
            group.state is State.EMPTY
            and not group.generation
            and not group.pending
            and group.group_id not in self.stored
            and not self.offsets.keys(group.group_id)
        ):
            self.groups.pop(group.group_id, None)

    # -- from one protocol to the other -------------------------------------------------------

    def make_consumers(self, group_id: str, now_ms: int) -> ConsumerGroup | None:
        """The group, for members of the new protocol; None if the classic one is using it."""
        classic = self.groups.get(group_id)
        if classic is not None:
            if classic.state is not State.EMPTY or classic.pending:
                return None
            classic.die(now_ms)
            del self.groups[group_id]
        return self.consumers.find_or_make(group_id)

    def forget_consumers_if_unused(self, group: ConsumerGroup, now_ms: int) -> None:
        """A group that nobody could join was never there, or is what it was before."""
        if group.is_unused and not group.state.epoch:
            self.consumers.drop(group.group_id)
            self.revive(group.group_id, now_ms)

    def end_classic(self, group_id: str) -> list[LogRecord]:
        """The record that removes what is stored of a group that the new protocol has now."""
        return [LogRecord(group_key(group_id), None)] if group_id in self.stored else []

    def end_consumers(self, group_id: str) -> list[LogRecord] | None:
        """The records that leave a group to the classic protocol; None if somebody is in it."""
        consumers = self.consumers.find(group_id)
        if consumers is None:
            return []
        return self._end(consumers) if consumers.is_unused else None

    # -- deletion -----------------------------------------------------------------------------

    def delete_group(self, group_id: str, now_ms: int) -> list[LogRecord] | ErrorCode:
        """The records that remove a group and its offsets; it is gone here at once."""
        consumers = self.consumers.find(group_id)
        if consumers is not None:
            if not consumers.is_unused:
                return ErrorCode.non_empty_group
            return [*tombstones(self.offsets.keys(group_id)), *self._end(consumers)]
        group = self.groups.get(group_id)
        if group is None or group.state is State.DEAD:
            return ErrorCode.group_id_not_found
        if group.state is not State.EMPTY:
            return ErrorCode.non_empty_group
        group.die(now_ms)
        del self.groups[group_id]
        return [*tombstones(self.offsets.keys(group_id)), LogRecord(group_key(group_id), None)]

    def revive(self, group_id: str, now_ms: int) -> None:
        """Its deletion was not committed."""
        self.consumers.revive(group_id)
        is_classic = self.consumers.find(group_id) is None
        if is_classic and (group_id in self.stored or group_id in self.offsets):
            self.find_or_make(group_id, now_ms)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> tuple[list[LogRecord], list[ErrorCode]] | ErrorCode:
        """The records that remove offsets of topics that the group does not read."""
        consumers = self.consumers.find(group_id)
        group = self.groups.get(group_id)
        if consumers is not None:
            topics: frozenset[str] | None = consumers.topics_in_use()
        elif group is None or group.state is State.DEAD:
            return ErrorCode.group_id_not_found
        elif group.state in _NOT_EMPTY and group.protocol_type != CONSUMER:
            return ErrorCode.non_empty_group
        else:
            topics = self.topics_in_use(group)
        keys, results = [], []
        known = set(self.offsets.keys(group_id))
        for topic, partition in partitions:
            if topics is None or topic in topics:
                results.append(ErrorCode.group_subscribed_to_topic)
                continue
            results.append(ErrorCode.none)
            key = OffsetKey(group_id, topic, partition)
            if key in known:
                keys.append(key)
        return tombstones(keys), results

    def topics_in_use(self, group: ClassicGroup) -> frozenset[str] | None:
        """What members read; None if that is not known, so that it may be anything."""
        if group.state is State.EMPTY:
            return frozenset()
        if group.protocol_type != CONSUMER:
            return None
        members = group.members.values()
        protocol = group.protocol
        if group.state is State.PREPARING_REBALANCE:  # They may have said something new.
            metadata = [data for each in members for _, data in each.protocols]
        else:
            metadata = [each.metadata(protocol) for each in members]
        return subscribed_topics(metadata)

    def without_topics(self, gone: Callable[[str], bool]) -> list[LogRecord]:
        """The records that remove the offsets of topics that were deleted."""
        return tombstones(
            OffsetKey(group_id, topic, partition)
            for group_id in self.offsets
            for topic, partition in self.offsets.of(group_id)
            if gone(topic)
        )

    # -- retention ----------------------------------------------------------------------------

    def expire(self, now_ms: int) -> list[LogRecord]:
        """The records that remove what has been kept for long enough; done now and then."""
        found: list[LogRecord] = []
        for group in list(self.groups.values()):
            keys = self._expired(group, now_ms)
            found += tombstones(keys)
            left = len(self.offsets.keys(group.group_id)) - len(keys)
            if group.state is State.EMPTY and not group.pending and not left:
                if group.group_id in self.stored:
                    found.append(LogRecord(group_key(group.group_id), None))
                group.die(now_ms)
                del self.groups[group.group_id]
        for consumers in self.consumers:
            group_id, topics = consumers.group_id, consumers.topics_in_use()
            keys = self._expired_offsets(group_id, topics, None, now_ms)
            found += tombstones(keys)
            if consumers.is_unused and len(self.offsets.keys(group_id)) == len(keys):
                found += self._end(consumers)
        return found

    def _end(self, consumers: ConsumerGroup) -> list[LogRecord]:
        """The records that remove it; it is gone here at once."""
        self.consumers.drop(consumers.group_id)
        return consumers.state.tombstones() if consumers.state.epoch else []

    def _expired(self, group: ClassicGroup, now_ms: int) -> list[OffsetKey]:
        topics = self.topics_in_use(group)
        if topics is None:
            return []
        # Members may come back for as long as nobody has been there: what counts is since when.
        has_had_members = group.state is State.EMPTY and group.protocol_type is not None
        since_ms = group.state_ms if has_had_members else None
        return self._expired_offsets(group.group_id, topics, since_ms, now_ms)

    def _expired_offsets(
        self, group_id: str, topics: frozenset[str], since_ms: int | None, now_ms: int
    ) -> list[OffsetKey]:
        retention_ms = self.config.offsets_retention_ms
        keys = []
        for (topic, partition), record in self.offsets.of(group_id).items():
            key = OffsetKey(group_id, topic, partition)
            if (
                topic not in topics
                and not self.offsets.is_in_flight(key)
                and is_expired(record, since_ms, retention_ms, now_ms)
            ):
                keys.append(key)
        return keys
