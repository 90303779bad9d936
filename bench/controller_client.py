"""Controllers as processes, and somebody who asks whichever of them is active."""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kio.schema.errors import ErrorCode

from bench.quorum_processes import Processes
from kraftpy.errors import KraftError
from kraftpy.network.client import WireClient
from kraftpy.wire.apis import DESCRIBE_CLUSTER

TIMEOUT_S = 30.0
TURNS_MAX = 2000
CONTROLLERS = 2
_PROGRAM = "import sys; from kraftpy.cli.main import run; sys.exit(run(sys.argv[1:]))"


class ControllerProcesses(Processes):
    """`kraftpy quorum` as an operator runs it, with settings of one's own."""

    def __init__(self, directory: str, size: int = 3, **settings: object) -> None:
        pairs = [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
        super().__init__(directory, size, *(word for pair in pairs for word in ("--set", pair)))

    def command(self, node_id: int) -> list[str]:
        place = ["--voters", self.voters, "--data-dir", self.data_dir(node_id)]
        return [
            *(sys.executable, "-c", _PROGRAM, "quorum", "--node-id", str(node_id)),
            *(*place, "--log-format", "text", *self._more),
        ]


def error_of(answer: Any) -> ErrorCode:
    """The error of an answer: its own, or the first of its parts."""
    own = getattr(answer, "error_code", None)
    if own is not None and own is not ErrorCode.none:
        return ErrorCode(own)
    for field in ("topics", "results", "responses"):
        for part in getattr(answer, field, ()):
            found = getattr(part, "error_code", ErrorCode.none)
            if found is not ErrorCode.none:
                return ErrorCode(found)
    return ErrorCode.none


class ControllerClient:
    """One connection to the active controller, which is looked for whenever it is another."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._ports = dict(ports)
        self._node_ids = list(ports)
        self._client: WireClient | None = None
        self.retries = 0

    async def ask(self, api_key: int, values: Mapping[str, Any]) -> Any:
        """The first answer of a controller that is active; of others there may be any number.

        A request that broke off may have been carried out: who repeats it must be able to tell.
        """
        for _ in range(TURNS_MAX):
            with suppress(KraftError, OSError):
                answer = await self._ask(api_key, values)
                if error_of(answer) is not ErrorCode.not_controller:
                    return answer
            self.retries += 1
            await self.close()
            self._node_ids.append(self._node_ids.pop(0))
            await asyncio.sleep(0.01)
        raise AssertionError("there is no active controller")

    async def _ask(self, api_key: int, values: Mapping[str, Any]) -> Any:
        if self._client is None:
            port = self._ports[self._node_ids[0]]
            self._client = await WireClient.connect("127.0.0.1", port, timeout_s=TIMEOUT_S)
        return await self._client.ask(api_key, values)

    @property
    def node_id(self) -> int:
        """Whom it asked last."""
        return self._node_ids[0]

    async def cluster_id(self) -> str:
        values = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
        answer = await self.ask(DESCRIBE_CLUSTER, {**values, "endpoint_type": CONTROLLERS})
        return str(answer.cluster_id)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
