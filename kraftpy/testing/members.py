"""What a forked process of a test cluster is: a controller, a broker, both, or the links.

A spec says which, with its settings; they are all that counts, the environment does not. A member
reports when it is ready: a controller when it listens, a broker when it may lead. SIGTERM ends it
as it would end `kraftpy quorum` or `kraftpy broker`.

Routes are where a node's connections to others go instead of where their addresses say: to the
links between the nodes, which can be cut.
"""

import asyncio
import dataclasses
import gc
import random
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvloop

from kraftpy import logs
from kraftpy.broker.node import running as broker_running
from kraftpy.broker.node_config import BrokerConfig
from kraftpy.clock import SystemClock
from kraftpy.config import Given, Settings, resolve
from kraftpy.errors import KraftError
from kraftpy.network.loop import OBJECTS_BEFORE_COLLECTION
from kraftpy.quorum.node import running as quorum_running
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.quorum.voters import Voter
from kraftpy.storage.file_layer import OsFiles
from kraftpy.testing.links import serve_links
from kraftpy.testing.single import single_running

Spec = dict[str, Any]
Report = Callable[[dict[str, Any]], None]
Address = tuple[str, int]
Routes = dict[Address, Address]

_REFUSED: Final = 1


def run_member(spec: Spec, told_fd: int, report: Report) -> int:
    """Be the member that the spec describes, until a signal; its exit code."""
    logs.configure(log_format="text", level="info", stream=sys.stderr, clock=SystemClock())
    gc.set_threshold(*OBJECTS_BEFORE_COLLECTION)
    routes = {(a, b): (c, d) for a, b, c, d in spec.get("routes", ())}
    with asyncio.Runner(loop_factory=lambda: _RoutedLoop(routes)) as runner:
        try:
            runner.run(_serve(spec, routes, told_fd, report))
        except KraftError as error:
            print(f"kraftpy: {error}", file=sys.stderr)  # noqa: T201 -- It is the node's output.
            return _REFUSED
    return 0


async def _serve(spec: Spec, routes: Routes, told_fd: int, report: Report) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)

    def ready(**facts: Any) -> None:
        report({"key": spec["key"], "event": "ready", "facts": facts})

    if spec["kind"] == "links":
        await serve_links(spec, told_fd, report)
        return
    settings = settings_of(spec["settings"])
    match spec["kind"]:
        case "controller":
            await _controller(settings, routes, stopped, ready)
        case "broker":
            await _broker(settings, stopped, ready)
        case "both":
            await _both(settings, stopped, ready)
        case kind:
            raise AssertionError(f"there is no member of kind {kind}")


def settings_of(values: dict[str, str]) -> Settings:
    """What is given, and defaults; ConfigError says which is wrong."""
    return resolve([Given(key, text, "the cluster") for key, text in values.items()], [], [])


async def _controller(
    settings: Settings, routes: Routes, stopped: asyncio.Event, ready: Callable[..., None]
) -> None:
    config = NodeConfig.of(settings)
    dialed = tuple(
        Voter(each.node_id, *routes.get((each.host, each.port), (each.host, each.port)))
        for each in config.voters
    )
    config = dataclasses.replace(config, dialed_voters=dialed)
    async with quorum_running(config, OsFiles(), SystemClock(), random.Random()) as node:
        ready(port=node.server.port)
        await _first(stopped.wait(), node.failed())


async def _broker(settings: Settings, stopped: asyncio.Event, ready: Callable[..., None]) -> None:
    config = BrokerConfig.of(settings)
    async with broker_running(config, OsFiles(), SystemClock(), random.Random()) as node:
        await _first(node.unfenced(), stopped.wait(), node.failed())
        ready(port=node.port)
        await _first(stopped.wait(), node.failed())


async def _both(settings: Settings, stopped: asyncio.Event, ready: Callable[..., None]) -> None:
    files, clock, rng = OsFiles(), SystemClock(), random.Random()
    async with single_running(settings, files, clock, rng) as (controller, broker):
        ready(port=broker.port, controller_port=controller.server.port)
        await _first(stopped.wait(), controller.failed(), broker.failed())


async def _first(*awaited: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.ensure_future(each) for each in awaited]
    _, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()


class _RoutedLoop(uvloop.Loop):
    """An event loop whose connections take the routes."""

    def __init__(self, routes: Routes) -> None:
        super().__init__()
        self._routes = routes

    async def create_connection(
        self,
        protocol_factory: Callable[[], Any],
        host: Any = None,
        port: Any = None,
        **others: Any,
    ) -> Any:
        where = host, port
        host, port = self._routes.get(where, where)
        return await super().create_connection(protocol_factory, host, port, **others)
