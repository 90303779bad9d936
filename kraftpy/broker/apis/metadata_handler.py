"""Metadata at the speed that large clusters need: encoded topics are kept as long as they are true.

A topic's bytes depend on the topic, as it is in the image, and on the brokers, as a listener shows
them. Both are immutable values that are replaced when they change, so what was encoded is true for
as long as it was made from the very same ones. A request for very many topics is worked off in
portions, with the event loop's other work between them; the image is one value, so what is answered
was true at one moment.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from kraftpy.broker.apis.client_view import ClientView
from kraftpy.broker.apis.metadata import (
    Missing,
    missing_values,
    topics_to_create,
    wanted_topics,
    wants_topic_operations,
    without_topics,
)
from kraftpy.broker.apis.metadata_encoding import join_topics, topic_bytes
from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.broker.metadata.nodes import ListenerNodes
from kraftpy.limits import METADATA_ENCODED_BYTES_MAX
from kraftpy.metadata_log.image import Topic
from kraftpy.types import BrokerId, TopicId
from kraftpy.wire.apis import METADATA, Request, response_type
from kraftpy.wire.codec import build, encode
from kraftpy.wire.frames import finish_frame
from kraftpy.wire.schema import plan_of

_PARTITIONS_AT_ONCE: Final = 2000
_COST_OF_A_TOPIC: Final = 2  # In partitions, also of one whose bytes are there.


@dataclass(slots=True)
class _Kept:
    """The topics of one listener and version."""

    listener: ListenerNodes
    topics: dict[TopicId, tuple[Topic, bytes]] = field(default_factory=dict)


class MetadataHandler:
    """Answers for all listeners of one broker."""

    def __init__(self, cache: MetadataCache, cluster_id: str, broker_id: BrokerId) -> None:
        self._cache = cache
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._kept: dict[tuple[str, int], _Kept] = {}
        self._kept_bytes = 0

    def view(self, listener: str) -> ClientView:
        """The cluster right now, for pure functions that answer from it."""
        cache = self._cache
        return ClientView(
            image=cache.image,
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            listener=cache.listener(listener),
            topic_names=cache.topic_names,
        )

    async def metadata(
        self, request: Request, listener: str, *, auto_create: bool
    ) -> tuple[bytearray, tuple[str, ...]]:
        """The answer's frame, and the topics that should be created."""
        asked, version = request.message, request.header.api_version
        view = self.view(listener)
        found = wanted_topics(view, version, asked)
        if wants_topic_operations(asked):
            topics = _with_operations(view, version, found)
        else:
            topics = await self._encoded(view, (listener, version), found)
        frame = request.response(without_topics(view, version, asked))
        answer = finish_frame(join_topics(frame, version, topics))
        return answer, topics_to_create(found, asked) if auto_create else ()

    async def _encoded(
        self, view: ClientView, key: tuple[str, int], found: list[Topic | Missing]
    ) -> list[bytes]:
        """Topics as clients of a listener and version, the key, see them."""
        kept, version = self._kept_for(view, key), key[1]
        topics: list[bytes] = []
        room = _PARTITIONS_AT_ONCE
        for each in found:
            known = None if isinstance(each, Missing) else kept.topics.get(each.topic_id)
            if isinstance(each, Missing):
                topics.append(_missing_bytes(version, each))
            elif known is not None and known[0] is each:
                topics.append(known[1])
            else:
                data = topic_bytes(view, version, each, with_operations=False)
                topics.append(data)
                room -= len(each.partitions)
                self._keep(key, kept, each, data)
            room -= _COST_OF_A_TOPIC
            if room <= 0:
                room = _PARTITIONS_AT_ONCE
                await asyncio.sleep(0)
        return topics

    # -- what is kept -------------------------------------------------------------------------

    def _kept_for(self, view: ClientView, key: tuple[str, int]) -> _Kept:
        kept = self._kept.get(key)
        if kept is None or kept.listener is not view.listener:
            if kept is not None:
                self._kept_bytes -= sum(len(data) for _, data in kept.topics.values())
            kept = self._kept[key] = _Kept(view.listener)
        return kept

    def _keep(self, key: tuple[str, int], kept: _Kept, topic: Topic, data: bytes) -> None:
        if self._kept.get(key) is not kept:
            return  # The brokers have changed since this request began.
        if self._kept_bytes + len(data) > METADATA_ENCODED_BYTES_MAX:
            self._kept.clear()  # It also holds what nobody asks for any more.
            self._kept_bytes = 0
            return
        known = kept.topics.get(topic.topic_id)
        self._kept_bytes += len(data) - (0 if known is None else len(known[1]))
        kept.topics[topic.topic_id] = (topic, data)


def _with_operations(view: ClientView, version: int, found: list[Topic | Missing]) -> list[bytes]:
    """For admin clients that ask about a few topics: nothing is kept."""
    return [
        _missing_bytes(version, each)
        if isinstance(each, Missing)
        else topic_bytes(view, version, each, with_operations=True)
        for each in found
    ]


def _missing_bytes(version: int, missing: Missing) -> bytes:
    plan = plan_of(response_type(METADATA, version))
    entity = next(field.entity for field in plan.fields if field.name == "topics")
    assert entity is not None
    message: Any = build(entity, missing_values(missing))
    return bytes(encode(message))
