"""The controller listener: the node's only port, for Kafka's protocol and for the other voters.

Every connection is accepted here. One that begins as a voter's (its first byte is no length that
Kafka could send) is handed over to Raft's transport with what was read from it; any other is a
Kafka client: a broker that follows the metadata log, an admin tool, a consumer.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from kraftpy.clock import Clock
from kraftpy.network.limits import ServerLimits
from kraftpy.network.server import WireServer
from kraftpy.quorum.apis import describe
from kraftpy.quorum.apis.context import Api, Context, Controllers
from kraftpy.quorum.apis.envelope import envelope
from kraftpy.quorum.apis.fetch import fetch
from kraftpy.quorum.apis.fetch_snapshot import fetch_snapshot
from kraftpy.quorum.apis.observers import Observers
from kraftpy.quorum.log_view import MetadataView
from kraftpy.wire import apis
from kraftpy.wire.apis import Request, VersionRange
from kraftpy.wire.headers import API_VERSIONS

_READING_THREADS: Final = 4

READ_APIS: Final[Mapping[int, Api]] = {
    apis.FETCH: Api(VersionRange(4, 18), fetch),
    apis.LIST_OFFSETS: Api(VersionRange(1, 11), describe.list_offsets),
    apis.METADATA: Api(VersionRange(0, 13), describe.metadata),
    apis.DESCRIBE_QUORUM: Api(VersionRange(0, 2), describe.describe_quorum),
    apis.FETCH_SNAPSHOT: Api(VersionRange(0, 1), fetch_snapshot),
    apis.DESCRIBE_CLUSTER: Api(VersionRange(0, 2), describe.describe_cluster),
}
_API_VERSIONS_SERVED: Final = VersionRange(0, 4)


class ControllerServer:
    """The listener of one controller. `more_apis` are those that change something."""

    def __init__(
        self,
        view: MetadataView,
        controllers: Controllers,
        *,
        clock: Clock,
        is_peer: Callable[[bytes], bool | None],
        adopt_peer: Callable[[socket.socket, bytes], None],
        limits: ServerLimits | None = None,
        more_apis: Mapping[int, Api] | None = None,
    ) -> None:
        served = {**READ_APIS, **(more_apis or {})}
        self._apis = dict(served)
        if more_apis:
            self._apis[apis.ENVELOPE] = Api(VersionRange(0, 0), partial(envelope, served))
        self._threads = ThreadPoolExecutor(_READING_THREADS, thread_name_prefix="metadata-read")
        self._context = Context(
            view=view,
            controllers=controllers,
            observers=Observers(),
            clock=clock,
            threads=self._threads,
        )
        self.table = {key: api.versions for key, api in self._apis.items()}
        self.table[API_VERSIONS] = _API_VERSIONS_SERVED
        self._api_versions = partial(describe.api_versions, self.table)
        self.server = WireServer(
            self.table,
            self._answer,
            clock=clock,
            limits=limits,
            is_peer=is_peer,
            adopt_peer=adopt_peer,
        )

    def start(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on these listening sockets (kraftpy.network.server.listening_sockets)."""
        self.server.start(sockets)

    @property
    def port(self) -> int:
        return self.server.port

    async def close(self) -> None:
        await self.server.close()
        self._threads.shutdown(wait=True)

    async def _answer(self, request: Request, _address: str) -> bytearray | None:
        if request.header.api_key == API_VERSIONS:
            return self._api_versions(request)
        return await self._apis[request.header.api_key].handle(self._context, request)
