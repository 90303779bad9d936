"""FindCoordinator: which broker answers for a group, or for whatever else has a coordinator.

A name belongs to the partition of an internal topic that its hash gives; the partition's leader is
its coordinator. The topic is created, through the controller, when somebody first asks.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.controller_channel import ChannelRequest, ControllerChannel
from kraftpy.broker.groups.config import GroupConfig
from kraftpy.broker.groups.coordinator import name_hash
from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.errors import KraftError
from kraftpy.logs import get_logger
from kraftpy.metadata_log.topic_names import GROUP_TOPIC
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, Request

log = get_logger(__name__)

GROUP: Final = 0
_FIRST_WITH_MANY_KEYS: Final = 4
_NOBODY: Final = {"node_id": -1, "host": "", "port": -1}
_CREATE_S: Final = 10.0
_READY_S: Final = 3.0  # How long an answer waits for a topic that is being created.


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorTopic:
    """An internal topic whose leaders coordinate, and how it is created."""

    name: str
    partitions: int
    replicas: int
    configs: Mapping[str, str]


def group_topic(config: GroupConfig) -> CoordinatorTopic:
    return CoordinatorTopic(
        name=GROUP_TOPIC,
        partitions=config.offsets_partitions,
        replicas=config.offsets_replicas,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_segment_bytes),
        },
    )


class CoordinatorFinder:
    """For all kinds of keys that have a topic; FindCoordinator calls them types."""

    def __init__(
        self,
        cache: MetadataCache,
        channel: ControllerChannel,
        listener: str,
        topics: Mapping[int, CoordinatorTopic],
    ) -> None:
        self._cache = cache
        self._channel = channel
        self._listener = listener
        self._topics = dict(topics)
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._complaints: dict[str, str] = {}  # Why a topic was not created, as last said.

    async def find_coordinator(self, request: Request, _address: str) -> bytearray:
        message, version = request.message, request.header.api_version
        key_type = getattr(message, "key_type", GROUP)
        keys = message.coordinator_keys if version >= _FIRST_WITH_MANY_KEYS else [message.key]
        found = [await self._find(key_type, key) for key in keys]
        if version >= _FIRST_WITH_MANY_KEYS:
            return request.response({"throttle_time": NO_THROTTLE, "coordinators": found})
        return request.response({"throttle_time": NO_THROTTLE, **found[0]})

    async def close(self) -> None:
        for task in self._creating.values():
            task.cancel()
        await asyncio.gather(*self._creating.values(), return_exceptions=True)

    async def _find(self, key_type: int, key: str) -> dict[str, Any]:
        topic = self._topics.get(key_type)
        if topic is None:
            return _answer(key, ErrorCode.invalid_request, f"no coordinators of type {key_type}")
        if topic.name not in self._cache.image.topic_ids:
            await self._created(topic)
        return self._leader(topic.name, key)

    def _leader(self, topic_name: str, key: str) -> dict[str, Any]:
        topic = self._cache.image.topic(topic_name)
        if topic is None:
            why = self._complaints.get(topic_name, f"{topic_name} is being created")
            return _answer(key, ErrorCode.coordinator_not_available, why)
        leader = topic.partitions[name_hash(key) % len(topic.partitions)].leader
        node = self._cache.listener(self._listener).nodes.get(leader)
        if node is None or node.fenced:
            why = "the coordinator's partition has no leader"
            return _answer(key, ErrorCode.coordinator_not_available, why)
        place = {"node_id": node.broker_id, "host": node.host, "port": node.port}
        return {**_answer(key, ErrorCode.none, None), **place}

    # -- the topic ----------------------------------------------------------------------------

    async def _created(self, topic: CoordinatorTopic) -> None:
        """Have it created, and wait a little until it can be seen here."""
        task = self._creating.get(topic.name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._create(topic))
            self._creating[topic.name] = task
            task.add_done_callback(lambda _task: self._creating.pop(topic.name, None))
        await asyncio.wait([task], timeout=_READY_S)

    async def _create(self, topic: CoordinatorTopic) -> None:
        values = {
            "name": topic.name,
            "num_partitions": topic.partitions,
            "replication_factor": topic.replicas,
            "assignments": (),
            "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
        }
        request = ChannelRequest(
            api_key=apis.CREATE_TOPICS,
            values={
                "topics": [values],
                "timeout": timedelta(seconds=_CREATE_S),
                "validate_only": False,
            },
            timeout_s=_CREATE_S,
            repeatable=True,  # The second time it is there already.
        )
        try:
            answer = await self._channel.send(request)
        except KraftError as error:
            self._complain(topic.name, str(error))
            return
        (result,) = answer.topics
        if result.error_code in (ErrorCode.none, ErrorCode.topic_already_exists):
            self._complaints.pop(topic.name, None)
            await self._seen(topic.name)
        else:
            self._complain(topic.name, result.error_message or result.error_code.name)

    async def _seen(self, name: str) -> None:
        """Until the metadata here has it, step by step."""
        reached = True
        while reached and name not in self._cache.image.topic_ids:
            reached = await self._cache.reached(self._cache.end_offset + 1, _READY_S)

    def _complain(self, name: str, why: str) -> None:
        if self._complaints.get(name) != why:  # Clients ask again and again.
            self._complaints[name] = why
            log.warning("topic_not_created", topic=name, why=why)


def _answer(key: str, error: ErrorCode, why: str | None) -> dict[str, Any]:
    return {"key": key, "error_code": error, "error_message": why, **_NOBODY}
