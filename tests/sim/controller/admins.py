"""Simulated admins: what people and tools ask of a controller, one thing per request.

They know the cluster as it is committed, so most of what they ask makes sense by the time it
arrives. Values of registers are never used twice. Names do not collide with each other.
"""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kraftpy.metadata_log.image import ClusterImage, Partition, Topic
from kraftpy.types import to_wire_uuid
from kraftpy.wire import apis
from tests.sim.controller.oracles import CLIENT_METRICS

if TYPE_CHECKING:
    from tests.sim.controller.parties import Parties

Ask = tuple[tuple[int, int], dict[str, Any]]
_NAMES = tuple(f"topic{number}" for number in range(6))
_REGISTERS = ("gauges", "timers")
_TIMEOUT = timedelta(seconds=30)
_TOPIC, _BROKER = 2, 4
_ELR = "eligible.leader.replicas.version"


class Admins:
    """Makes up requests."""

    def __init__(self, parties: "Parties") -> None:
        self._parties = parties
        self._rng = random.Random(f"{parties.sim.plan.seed}/admins")
        self._last_value = 1000
        self._kinds: dict[Callable[[ClusterImage], Ask | None], int] = {
            self._create: 12,
            self._delete: 3,
            self._grow: 2,
            self._set_topic: 6,
            self._set_cluster: 1,
            self._write_register: 12,
            self._read_register: 6,
            self._read_topic: 4,
            self._reassign: 6,
            self._cancel: 2,
            self._list: 1,
            self._elect: 4,
            self._set_elr: 1,
            self._unregister: 1,
            self._set_quota: 1,
            self._create_acl: 1,
        }

    def request(self, image: ClusterImage, *, only_looks: bool) -> Ask | None:
        """The next one; None if there is nothing to ask it about."""
        if only_looks:
            return self._rng.choice((self._read_register, self._read_topic))(image)
        kind = self._rng.choices(list(self._kinds), list(self._kinds.values()))[0]
        return kind(image)

    # -- topics ---------------------------------------------------------------------------

    def _create(self, _image: ClusterImage) -> Ask:
        rng = self._rng
        brokers = self._parties.sim.knobs.brokers
        topic: dict[str, Any] = {
            "name": rng.choice(_NAMES),
            "num_partitions": rng.choice((1, 2, 3)),
            "replication_factor": rng.randint(1, min(3, brokers)),
            "assignments": [],
            "configs": [],
        }
        if rng.random() < 0.2:
            ids = rng.sample(range(1, brokers + 1), topic["replication_factor"])
            topic["assignments"] = [{"partition_index": 0, "broker_ids": ids}]
            topic["num_partitions"] = topic["replication_factor"] = -1
        elif rng.random() < 0.3:
            value = rng.choice(("1", "2", "3"))
            topic["configs"] = [{"name": "min.insync.replicas", "value": value}]
        return _create_topic(topic, validate_only=rng.random() < 0.1)

    def _delete(self, image: ClusterImage) -> Ask:
        name = self._rng.choice(_NAMES)
        topic_id = image.topic_ids.get(name)
        topic: dict[str, Any] = {"name": name, "topic_id": None}
        if topic_id is not None and self._rng.random() < 0.3:
            topic = {"name": None, "topic_id": to_wire_uuid(topic_id)}
        return (apis.DELETE_TOPICS, 6), {"topics": [topic], "timeout": _TIMEOUT}

    def _grow(self, image: ClusterImage) -> Ask:
        name = self._rng.choice(_NAMES)
        topic = image.topic(name)
        count = 1 if topic is None else len(topic.partitions) + self._rng.choice((0, 1))
        return (apis.CREATE_PARTITIONS, 3), {
            "topics": [{"name": name, "count": min(count, 5), "assignments": None}],
            "timeout": _TIMEOUT,
            "validate_only": False,
        }

    # -- configs --------------------------------------------------------------------------

    def _set_topic(self, _image: ClusterImage) -> Ask:
        rng = self._rng
        key, values = rng.choice(
            (
                ("min.insync.replicas", ("1", "2", "3", None)),
                ("unclean.leader.election.enable", ("true", "false", None)),
                ("retention.ms", ("1000", "2000", None)),
            )
        )
        return _configure(_TOPIC, rng.choice(_NAMES), key, rng.choice(values))

    def _set_cluster(self, _image: ClusterImage) -> Ask:
        return _configure(_BROKER, "", "min.insync.replicas", self._rng.choice(("1", "2")))

    def _write_register(self, _image: ClusterImage) -> Ask:
        self._last_value += 1
        name = self._rng.choice(_REGISTERS)
        return _configure(CLIENT_METRICS, name, "interval.ms", str(self._last_value))

    def _read_register(self, _image: ClusterImage) -> Ask:
        return _describe(CLIENT_METRICS, self._rng.choice(_REGISTERS), ["interval.ms"])

    def _read_topic(self, _image: ClusterImage) -> Ask:
        return _describe(_TOPIC, self._rng.choice(_NAMES), ["retention.ms"])

    # -- partitions -----------------------------------------------------------------------

    def _pick(
        self, image: ClusterImage, wanted: Callable[[Partition], bool]
    ) -> tuple[Topic, int] | None:
        found = [
            (topic, number)
            for topic in sorted(image.topics.values(), key=lambda each: each.topic_id)
            for number, partition in sorted(topic.partitions.items())
            if wanted(partition)
        ]
        return self._rng.choice(found) if found else None

    def _reassign(self, image: ClusterImage) -> Ask | None:
        found = self._pick(image, lambda _: True)
        brokers = self._parties.sim.knobs.brokers
        count = self._rng.randint(1, min(3, brokers))
        replicas = self._rng.sample(range(1, brokers + 1), count)
        return None if found is None else _move(found, replicas)

    def _cancel(self, image: ClusterImage) -> Ask | None:
        found = self._pick(image, lambda p: bool(p.adding_replicas or p.removing_replicas))
        return None if found is None else _move(found, None)

    def _list(self, _image: ClusterImage) -> Ask:
        return (apis.LIST_PARTITION_REASSIGNMENTS, 0), {"timeout": _TIMEOUT, "topics": None}

    def _elect(self, image: ClusterImage) -> Ask | None:
        rng = self._rng
        unclean = rng.random() < 0.3
        topics = None
        if rng.random() < 0.7:
            found = self._pick(image, lambda p: not unclean or p.leader < 0)
            if found is None:
                return None
            topics = [{"topic": found[0].name, "partitions": [found[1]]}]
        return (apis.ELECT_LEADERS, 2), {
            "election_type": int(unclean),
            "topic_partitions": topics,
            "timeout": _TIMEOUT,
        }

    # -- the rest -------------------------------------------------------------------------

    def _set_elr(self, image: ClusterImage) -> Ask:
        is_on = not image.features.get(_ELR, 0)
        update = {
            "feature": _ELR,
            "max_version_level": int(is_on),
            "upgrade_type": 1 if is_on else 2,
        }
        return (apis.UPDATE_FEATURES, 2), {
            "timeout": _TIMEOUT,
            "feature_updates": [update],
            "validate_only": False,
        }

    def _unregister(self, image: ClusterImage) -> Ask | None:
        fenced = sorted(each for each, broker in image.brokers.items() if broker.fenced)
        if not fenced:
            return None
        return (apis.UNREGISTER_BROKER, 0), {"broker_id": self._rng.choice(fenced)}

    def _set_quota(self, _image: ClusterImage) -> Ask:
        value = float(self._rng.randint(1, 9))
        entry = {
            "entity": [{"entity_type": "user", "entity_name": "alice"}],
            "ops": [{"key": "producer_byte_rate", "value": value, "remove": value > 7}],
        }
        return (apis.ALTER_CLIENT_QUOTAS, 1), {"entries": [entry], "validate_only": False}

    def _create_acl(self, _image: ClusterImage) -> Ask:
        acl = {
            "resource_type": 2,
            "resource_name": self._rng.choice(_NAMES),
            "resource_pattern_type": 3,
            "principal": "User:alice",
            "host": "*",
            "operation": self._rng.choice((3, 4)),
            "permission_type": 3,
        }
        return (apis.CREATE_ACLS, 3), {"creations": [acl]}


def new_topic(name: str) -> Ask:
    """On any one broker."""
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return _create_topic(topic, validate_only=False)


def _create_topic(topic: dict[str, Any], *, validate_only: bool) -> Ask:
    values = {"topics": [topic], "timeout": _TIMEOUT, "validate_only": validate_only}
    return (apis.CREATE_TOPICS, 7), values


def _configure(resource_type: int, name: str, key: str, value: str | None) -> Ask:
    resource = {
        "resource_type": resource_type,
        "resource_name": name,
        "configs": [{"name": key, "config_operation": int(value is None), "value": value}],
    }
    values = {"resources": [resource], "validate_only": False}
    return (apis.INCREMENTAL_ALTER_CONFIGS, 1), values


def _describe(resource_type: int, name: str, keys: list[str]) -> Ask:
    resource = {
        "resource_type": resource_type,
        "resource_name": name,
        "configuration_keys": keys,
    }
    return (apis.DESCRIBE_CONFIGS, 4), {
        "resources": [resource],
        "include_synonyms": False,
        "include_documentation": False,
    }


def _move(found: tuple[Topic, int], replicas: list[int] | None) -> Ask:
    topic, number = found
    partition = {"partition_index": number, "replicas": replicas}
    return (apis.ALTER_PARTITION_REASSIGNMENTS, 1), {
        "timeout": _TIMEOUT,
        "allow_replication_factor_change": True,
        "topics": [{"name": topic.name, "partitions": [partition]}],
    }
