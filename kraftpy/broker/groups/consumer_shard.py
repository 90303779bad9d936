"""The groups of the new protocol in one partition of __consumer_offsets. Pure.

Each is a state, which replaying the log gives, and a machine on top. A group id is used by one
protocol at a time; it passes to the other when nobody is in the group.
"""

from collections.abc import Iterator
from typing import Final

from kraftpy.broker.groups import consumer_records as kinds
from kraftpy.broker.groups.config import GroupConfig
from kraftpy.broker.groups.consumer_decisions import Topics
from kraftpy.broker.groups.consumer_group import ConsumerGroup
from kraftpy.broker.groups.consumer_records import (
    TopicSize,
    read_consumer_key,
    read_consumer_value,
)
from kraftpy.broker.groups.consumer_state import ConsumerState


class NoTopics:
    """A cluster without any."""

    def size(self, _name: str) -> TopicSize | None:
        return None

    def matching(self, _regex: str) -> frozenset[str]:
        return frozenset()


NO_TOPICS: Final = NoTopics()


class ConsumerGroups:
    """By group id."""

    def __init__(self, config: GroupConfig, topics: Topics) -> None:
        self._config = config
        self._topics = topics
        self._states: dict[str, ConsumerState] = {}
        self._groups: dict[str, ConsumerGroup] = {}

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter([self._groups[each] for each in sorted(self._groups)])

    def __len__(self) -> int:
        return len(self._groups)

    def replay(self, key: bytes, value: bytes | None) -> None:
        name = read_consumer_key(key)
        if name.kind == kinds.GROUP and value is None:
            self._replay_end(name.group)
            return
        if value is None and name.group not in self._states:
            return  # What it removes, compaction has removed before.
        state = self._states.setdefault(name.group, ConsumerState(name.group))
        state.replay(name, None if value is None else read_consumer_value(name.kind, value))

    def _replay_end(self, group_id: str) -> None:
        state = self._states.pop(group_id, None)
        group = self._groups.get(group_id)
        if state is not None and group is not None:  # Somebody has come since it was deleted.
            group.state = self._states[group_id] = ConsumerState(group_id)

    def loaded(self) -> None:
        """The log has been read to its end: make the machines."""
        for group_id in self._states:
            self.find_or_make(group_id).loaded()

    def state(self, group_id: str) -> ConsumerState | None:
        return self._states.get(group_id)

    def find(self, group_id: str) -> ConsumerGroup | None:
        return self._groups.get(group_id)

    def find_or_make(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if group is None:
            state = self._states.setdefault(group_id, ConsumerState(group_id))
            group = self._groups[group_id] = ConsumerGroup(state, self._config, self._topics)
        return group

    def drop(self, group_id: str) -> None:
        """Its machine goes; its state, if it has one in the log, goes when its tombstones come."""
        group = self._groups.pop(group_id, None)
        if group is not None and not group.state.epoch:
            self._states.pop(group_id, None)

    def revive(self, group_id: str) -> None:
        """Its deletion was not committed."""
        if group_id in self._states:
            self.find_or_make(group_id)
