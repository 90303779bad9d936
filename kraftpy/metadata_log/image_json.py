"""An image as plain dicts, lists, strings and numbers, for tools: json.dumps takes it as it is.

UUIDs are Kafka's text form, keys are sorted, and equal images give equal text. SCRAM keys and
salts are left out: what a tool prints ends up in tickets.
"""

from dataclasses import fields
from typing import Any

from kraftpy.metadata_log.image import ClusterImage, MetadataTransaction, Topic
from kraftpy.metadata_log.records import UserScramCredentialRecord
from kraftpy.types import uuid_text


def image_to_json(image: ClusterImage) -> dict[str, Any]:
    """The whole image, provenance included."""
    topics = sorted(image.topics.values(), key=lambda topic: topic.name)
    return {
        "end_offset": image.end_offset,
        "epoch": image.epoch,
        "timestamp_ms": image.timestamp_ms,
        "transaction": _transaction(image.transaction),
        "features": dict(sorted(image.features.items())),
        "controllers": {str(k): _plain(v) for k, v in sorted(image.controllers.items())},
        "brokers": {str(k): _plain(v) for k, v in sorted(image.brokers.items())},
        "topics": {topic.name: _topic(topic) for topic in topics},
        "configs": _configs(image),
        "quotas": _quotas(image),
        "next_producer_id": image.next_producer_id,
        "scram": [_scram(v) for _, v in sorted(image.scram.items())],
        "delegation_tokens": {k: _plain(v) for k, v in sorted(image.delegation_tokens.items())},
        "acls": {uuid_text(k): _plain(v) for k, v in sorted(image.acls.items())},
        "zk_migration_state": image.zk_migration_state,
    }


def _transaction(transaction: MetadataTransaction | None) -> dict[str, Any] | None:
    if transaction is None:
        return None
    return {
        "name": transaction.name,
        "begin_offset": transaction.begin_offset,
        "pending": image_to_json(transaction.pending),
    }


def _topic(topic: Topic) -> dict[str, Any]:
    partitions = {str(k): _plain(v) for k, v in sorted(topic.partitions.items())}
    return {"topic_id": uuid_text(topic.topic_id), "partitions": partitions}


def _configs(image: ClusterImage) -> list[dict[str, Any]]:
    return [
        {"resource_type": kind, "resource_name": name, "configs": dict(sorted(configs.items()))}
        for (kind, name), configs in sorted(image.configs.items())
    ]


def _quotas(image: ClusterImage) -> list[dict[str, Any]]:
    found = [
        {"entity": [_plain(entity) for entity in key], "quotas": dict(sorted(quotas.items()))}
        for key, quotas in image.quotas.items()
    ]
    return sorted(found, key=lambda quota: str(quota["entity"]))


def _scram(credential: UserScramCredentialRecord) -> dict[str, Any]:
    return {
        "name": credential.name,
        "mechanism": credential.mechanism,
        "iterations": credential.iterations,
    }


def _plain(value: Any) -> Any:
    """Dataclasses to dicts, tuples to lists; the only bytes left here are UUIDs."""
    if isinstance(value, bytes):
        return uuid_text(value)
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return value
