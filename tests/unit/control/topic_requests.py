"""Requests about topics, and a cluster of three brokers in three racks to put them to."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log import MetadataRecord
from kraftpy.quorum.control.topics import APIS
from kraftpy.wire.apis import CREATE_TOPICS, DELETE_TOPICS, response_type
from kraftpy.wire.codec import build, decode, encode
from tests.unit.control.cluster import Cluster, broker, wire

LATEST = 7
NONE = ErrorCode.none
TIMEOUT = timedelta(seconds=1)


def three_brokers(*more: MetadataRecord, **settings: Any) -> Cluster:
    brokers = (broker(each, rack=f"rack-{each}") for each in (1, 2, 3))
    return Cluster(*brokers, *more, **settings)


def creatable(
    name: str = "orders",
    partitions: int = -1,
    factor: int = -1,
    assigned: Mapping[int, tuple[int, ...]] | None = None,
    **configs: str | None,
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers}
            for index, brokers in (assigned or {}).items()
        ],
        "configs": [
            {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
        ],
    }


def create(
    cluster: Cluster, *topics: dict[str, Any], version: int = LATEST, validate_only: bool = False
) -> Any:
    return cluster.ask(
        APIS, CREATE_TOPICS, version, topics=topics, validate_only=validate_only
    ).topics


def delete(cluster: Cluster, *topics: tuple[str | None, bytes | None]) -> list[Any]:
    asked = [
        {"name": name, "topic_id": None if topic_id is None else wire(topic_id)}
        for name, topic_id in topics
    ]
    decision = cluster.decide(APIS, DELETE_TOPICS, 6, topics=asked, timeout=TIMEOUT)
    cluster.apply(decision.records)
    entity: Any = response_type(DELETE_TOPICS, 6)  # Older versions cannot answer without a name.
    return list(decode(entity, bytes(encode(build(entity, decision.response)))).responses)
