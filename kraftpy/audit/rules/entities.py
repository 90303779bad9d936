"""Everything that a metadata log tells, as a table of entities: to compare snapshots with. Pure.

A key is (kind, name); a value is the record that would create the entity as it is now. Replay is
lenient, as in View, which does the part of it that rules look at; the rest is kept here. Two nodes,
or a snapshot and a log, agree exactly if their tables are equal.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

from kraftpy.audit.rules.book import RULES
from kraftpy.audit.rules.rule import KAFKA_DEFAULTS, Defaults, PartitionKey, Violation
from kraftpy.audit.rules.view import View
from kraftpy.metadata_log import records as r
from kraftpy.metadata_log.image import EMPTY
from kraftpy.types import uuid_text

Entity: TypeAlias = tuple[str, str]
_SHOWN_MAX = 160


class Entities:
    """Replays records; `table` is what they made."""

    def __init__(self, defaults: Defaults = KAFKA_DEFAULTS) -> None:
        self.view = View(EMPTY, defaults)
        self._others: dict[Entity, Any] = {}
        self._saved: tuple[Any, dict[Entity, Any]] | None = None

    def replay(self, record: r.MetadataRecord) -> None:
        match record:
            case r.BeginTransactionRecord():
                self._saved = (self.view.save(), dict(self._others))
            case r.EndTransactionRecord():
                self._saved = None
            case r.AbortTransactionRecord():
                if self._saved is not None:
                    self.view.restore(self._saved[0])
                    self._others = self._saved[1]
                    self._saved = None
            case _:
                self.view.replay(record)
                self._other(record)

    @property
    def is_in_transaction(self) -> bool:
        return self._saved is not None

    def _other(self, record: r.MetadataRecord) -> None:
        others = self._others
        match record:
            case r.RegisterControllerRecord():
                others["controller", str(record.controller_id)] = _in_order(record)
            case r.UnregisterControllerRecord():
                others.pop(("controller", str(record.controller_id)), None)
            case r.AccessControlEntryRecord():
                others["acl", uuid_text(record.id)] = record
            case r.RemoveAccessControlEntryRecord():
                others.pop(("acl", uuid_text(record.id)), None)
            case r.UserScramCredentialRecord():
                others["scram", f"{record.name}/{record.mechanism}"] = record
            case r.RemoveUserScramCredentialRecord():
                others.pop(("scram", f"{record.name}/{record.mechanism}"), None)
            case r.DelegationTokenRecord():
                others["token", record.token_id] = record
            case r.RemoveDelegationTokenRecord():
                others.pop(("token", record.token_id), None)
            case r.ClientQuotaRecord():
                self._quota(record)

    def _quota(self, record: r.ClientQuotaRecord) -> None:
        names = sorted(
            (each.entity_type, each.entity_name or "<default>") for each in record.entity
        )
        key = "quota", ",".join(f"{kind}={name}" for kind, name in names) + f"/{record.key}"
        if record.remove:
            self._others.pop(key, None)
        else:
            self._others[key] = record.value

    def table(self) -> dict[Entity, Any]:
        """Every entity. Base images are not used here, so what changed is all there is."""
        view = self.view
        found = dict(self._others)
        for broker_id, broker in view.all_brokers():
            found["broker", str(broker_id)] = _in_order(broker)
        for name, level in view.all_features():
            found["feature", name] = level
        for resource, values in view.configs.changed.items():
            for name, value in (values or {}).items():
                found["config", f"{resource[0]}/{resource[1]}/{name}"] = value
        for topic_id, topic in view.topics.changed.items():
            if topic is not None:
                found["topic", topic.name] = uuid_text(topic_id)
                for key in view.keys_of(topic_id):
                    found["partition", _partition_name(topic.name, key)] = view.partition(key)
        if view.next_producer_id > 0:
            found["producer ids", "next"] = view.next_producer_id
        return found


def _in_order(
    node: r.RegisterBrokerRecord | r.RegisterControllerRecord,
) -> r.RegisterBrokerRecord | r.RegisterControllerRecord:
    """Kafka writes these two lists in any order."""
    return replace(
        node,
        end_points=tuple(sorted(node.end_points, key=lambda each: each.name)),
        features=tuple(sorted(node.features, key=lambda each: each.name)),
    )


def _partition_name(topic: str, key: PartitionKey) -> str:
    return f"{topic}-{key[1]}"


def entities_of(records: Iterable[r.MetadataRecord], defaults: Defaults) -> dict[Entity, Any]:
    """The table of a snapshot."""
    entities = Entities(defaults)
    for record in records:
        entities.replay(record)
    return entities.table()


def differences(
    replayed: dict[Entity, Any], stored: dict[Entity, Any]
) -> Iterator[tuple[Entity, str, str]]:
    """(entity, what replay gives, what the snapshot holds), in order."""
    for key in sorted({*replayed, *stored}):
        ours, theirs = replayed.get(key), stored.get(key)
        if ours != theirs:
            yield key, _shown(ours, theirs), _shown(theirs, ours)


def _shown(value: Any, other: Any) -> str:
    """Of two records of the same kind, only what is not the same."""
    if value is None:
        return "none"
    if not is_dataclass(value) or type(value) is not type(other):
        return str(value)[:_SHOWN_MAX]
    names = [each.name for each in fields(value)]
    apart = [name for name in names if getattr(value, name) != getattr(other, name)]
    return ", ".join(f"{name}={getattr(value, name)}" for name in apart)[:_SHOWN_MAX]


def snapshot_is_the_log(
    replayed: dict[Entity, Any],
    stored: dict[Entity, Any],
    *,
    node: int,
    end_offset: int,
    epoch: int,
) -> Iterator[Violation]:
    """A50, for one snapshot and the log replayed up to where it ends."""
    for (kind, name), ours, theirs in differences(replayed, stored):
        topic, partition = None, None
        if kind == "partition":
            topic, _, number = name.rpartition("-")
            partition = int(number)
        elif kind == "topic":
            topic = name
        yield Violation(
            rule=RULES[50],
            node=node,
            offset=end_offset,
            epoch=epoch,
            expected=f"{kind} {name}: {ours}",
            actual=theirs,
            topic=topic,
            partition=partition,
        )
