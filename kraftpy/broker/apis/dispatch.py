"""Which API is answered by what: from the metadata, from the partitions here, or by the controller.

Produce and Fetch are not here: the server hands them to the data plane in place.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from kraftpy.broker.api_table import advertised, served
from kraftpy.broker.apis import offsets
from kraftpy.broker.apis.client_view import ClientView
from kraftpy.broker.apis.describe_topics import describe_topic_partitions
from kraftpy.broker.apis.forwarding import Client, Forwarder
from kraftpy.broker.apis.log_dirs import describe_log_dirs
from kraftpy.broker.apis.metadata import describe_cluster
from kraftpy.broker.apis.metadata_handler import MetadataHandler
from kraftpy.broker.controller_channel import ChannelRequest, ControllerChannel
from kraftpy.broker.log_keeper import DirDescription
from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.broker.producer_ids import ProducerIds, init_producer_id
from kraftpy.broker.replica_manager import ReplicaManager
from kraftpy.describe.acls import describe_acls
from kraftpy.describe.api_versions import Features, api_versions
from kraftpy.describe.configs import StaticConfigs, describe_configs, list_config_resources
from kraftpy.describe.quotas import describe_client_quotas
from kraftpy.describe.scram import describe_user_scram_credentials
from kraftpy.errors import KraftError
from kraftpy.logs import get_logger
from kraftpy.metadata_log.features import supported_features
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.types import BrokerId
from kraftpy.wire import apis
from kraftpy.wire.apis import ApiTable, Request
from kraftpy.wire.envelope import FORWARDABLE
from kraftpy.wire.headers import API_VERSIONS
from kraftpy.wire.produce import PRODUCE

log = get_logger(__name__)

_DESCRIBED_PARTITIONS_MAX: Final = 2000  # max.request.partition.size.limit
_CREATE_S: Final = 10.0
_CREATED_SOON_S: Final = 0.25
_SOMEBODY_SERVES_S: Final = 8.0  # Less than the ten seconds after which a client may give up.
_LIST_OFFSETS: Final = 2
_DELETE_RECORDS: Final = 21
_INIT_PRODUCER_ID: Final = 22
_OFFSET_FOR_LEADER_EPOCH: Final = 23
_DESCRIBE_LOG_DIRS: Final = 35
_DESCRIBE_TOPIC_PARTITIONS: Final = 75

Answer = Callable[[Request, str], Awaitable[bytearray]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """What answers say of this broker itself."""

    broker_id: BrokerId
    cluster_id: str
    listener: str
    static_configs: StaticConfigs
    auto_create_topics: bool


class Dispatch:
    """Answers every API but Produce and Fetch. Lives in one event loop."""

    def __init__(
        self,
        facts: BrokerFacts,
        cache: MetadataCache,
        manager: ReplicaManager,
        channel: ControllerChannel,
        producer_ids: ProducerIds,
        describe_dirs: Callable[[], Sequence[DirDescription]],
        coordinated: Mapping[int, Answer],
    ) -> None:
        """`coordinated`: the APIs of coordinators, answered by them."""
        self._facts = facts
        self._cache = cache
        self._channel = channel
        self._forwarder = Forwarder(channel, cache)
        self._metadata_handler = MetadataHandler(cache, facts.cluster_id, facts.broker_id)
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._answers: Mapping[int, Answer] = {
            apis.METADATA: self._metadata,
            apis.DESCRIBE_CLUSTER: self._describe_cluster,
            _DESCRIBE_TOPIC_PARTITIONS: self._viewed(
                lambda view, request: describe_topic_partitions(
                    view, request.message, _DESCRIBED_PARTITIONS_MAX
                )
            ),
            apis.DESCRIBE_CONFIGS: self._imaged(self._describe_configs),
            apis.LIST_CONFIG_RESOURCES: self._imaged(list_config_resources),
            apis.DESCRIBE_ACLS: self._imaged(describe_acls),
            apis.DESCRIBE_CLIENT_QUOTAS: self._imaged(describe_client_quotas),
            apis.DESCRIBE_USER_SCRAM_CREDENTIALS: self._imaged(describe_user_scram_credentials),
            _LIST_OFFSETS: _at_once(partial(offsets.list_offsets, manager)),
            _OFFSET_FOR_LEADER_EPOCH: _at_once(partial(offsets.offset_for_leader_epoch, manager)),
            _DESCRIBE_LOG_DIRS: _at_once(
                lambda request: request.response(
                    describe_log_dirs(describe_dirs(), request.message)
                )
            ),
            _DELETE_RECORDS: _later(partial(offsets.delete_records, manager)),
            _INIT_PRODUCER_ID: _later(partial(init_producer_id, producer_ids)),
            **coordinated,
            **dict.fromkeys(FORWARDABLE, self._forward),
        }
        self.table: ApiTable = served([PRODUCE, apis.FETCH, *self._answers])

    async def answer(self, request: Request, address: str) -> bytearray:
        """For BrokerServer."""
        if request.header.api_key == API_VERSIONS:
            return api_versions(advertised(self.table), request, self._features())
        return await self._answers[request.header.api_key](request, address)

    async def close(self) -> None:
        for task in self._creating.values():
            task.cancel()
        await asyncio.gather(*self._creating.values(), return_exceptions=True)

    # -- from the metadata --------------------------------------------------------------------

    def _view(self) -> ClientView:
        return self._metadata_handler.view(self._facts.listener)

    def _viewed(self, answer: Callable[[ClientView, Request], Mapping[str, Any]]) -> Answer:
        async def from_view(request: Request, _address: str) -> bytearray:
            return request.response(answer(self._view(), request))

        return from_view

    def _imaged(self, answer: Callable[[ClusterImage, Any], Mapping[str, Any]]) -> Answer:
        async def from_image(request: Request, _address: str) -> bytearray:
            return request.response(answer(self._cache.image, request.message))

        return from_image

    def _describe_configs(self, image: ClusterImage, message: Any) -> Mapping[str, Any]:
        facts = self._facts
        return describe_configs(
            image, message, static=facts.static_configs, node_id=facts.broker_id
        )

    def _features(self) -> Features:
        image = self._cache.image
        supported = {
            each.name: (each.min_supported_version, each.max_supported_version)
            for each in supported_features()
        }
        return Features(supported, dict(image.features), image.end_offset - 1)

    async def _describe_cluster(self, request: Request, _address: str) -> bytearray:
        await self._somebody_serves()
        return request.response(describe_cluster(self._view(), request.message))

    async def _somebody_serves(self) -> None:
        """Wait until a broker is there to be named: most often this one, which has just started.

        An answer without any broker is no use to a client, and librdkafka's admin client, which has
        asked before the broker was unfenced, would not ask again before its request has timed out.
        """
        await self._cache.somebody_serves(self._facts.listener, _SOMEBODY_SERVES_S)

    async def _metadata(self, request: Request, _address: str) -> bytearray:
        await self._somebody_serves()
        facts = self._facts
        answer, topics_to_create = await self._metadata_handler.metadata(
            request, facts.listener, auto_create=facts.auto_create_topics
        )
        if not topics_to_create:
            return answer
        # A client that hears that there is no such topic waits a tenth of a second before it asks
        # again. Most often the topic is there long before that.
        creating = [self._create(name) for name in topics_to_create]
        await asyncio.wait(creating, timeout=_CREATED_SOON_S)
        answer, _ = await self._metadata_handler.metadata(
            request, facts.listener, auto_create=False
        )
        return answer

    # -- by the controller --------------------------------------------------------------------

    async def _forward(self, request: Request, address: str) -> bytearray:
        return await self._forwarder.forward(request, request.frame, Client(address=address))

    def _create(self, name: str) -> asyncio.Task[None]:
        """Have a topic created that somebody asked for; who asks again finds it."""
        found = self._creating.get(name)
        if found is None:
            found = asyncio.get_running_loop().create_task(self._create_topic(name))
            self._creating[name] = found
            found.add_done_callback(lambda _task: self._creating.pop(name, None))
        return found

    async def _create_topic(self, name: str) -> None:
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": (),
            "configs": (),
        }
        request = ChannelRequest(
            api_key=apis.CREATE_TOPICS,
            values={
                "topics": [topic],
                "timeout": timedelta(seconds=_CREATE_S),
                "validate_only": False,
            },
            timeout_s=_CREATE_S,
            repeatable=True,  # The second time it is there already.
        )
        try:
            await self._channel.send(request)
        except KraftError as error:
            log.warning("topic_not_created", topic=name, why=str(error))
            return
        while name not in self._cache.image.topic_ids:
            if not await self._cache.reached(self._cache.end_offset + 1, _CREATED_SOON_S):
                return


def _at_once(answer: Callable[[Request], bytearray]) -> Answer:
    async def at_once(request: Request, _address: str) -> bytearray:
        return answer(request)

    return at_once


def _later(answer: Callable[[Request], Awaitable[bytearray]]) -> Answer:
    async def later(request: Request, _address: str) -> bytearray:
        return await answer(request)

    return later
