"""A whole cluster in one process: a controller, the only voter of its quorum, and one broker.

They talk over the wire, as they would from two machines.
"""

import asyncio
import dataclasses
import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from kraftpy.broker.node import BrokerNodeRunning
from kraftpy.broker.node import running as broker_running
from kraftpy.broker.node_config import BrokerConfig
from kraftpy.clock import Clock
from kraftpy.config import Settings
from kraftpy.errors import AddressInUse, ConfigError
from kraftpy.quorum.node import QuorumNode
from kraftpy.quorum.node import running as quorum_running
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.storage.file_layer import FileLayer
from kraftpy.storage.identity import load_identity
from kraftpy.types import random_uuid, uuid_text

CONTROLLER_ID: Final = 1
BROKER_ID: Final = 101
_HOST: Final = "127.0.0.1"
_CONTROLLER_PORT: Final = 9093
# Nobody else can be elected, so there is nothing to wait for.
_ELECTION_TIMEOUT_MS: Final = 50


@asynccontextmanager
async def single_running(
    settings: Settings, files: FileLayer, clock: Clock, rng: random.Random
) -> AsyncIterator[tuple[QuorumNode, BrokerNodeRunning]]:
    """Both, when the broker may lead. `data.dir` must be set."""
    async with AsyncExitStack() as stack:
        controller = await _start_controller(stack, settings, files, clock, rng)
        place = f"{controller.config.host}:{controller.server.port}"
        config = _broker_config(settings, place)
        broker = await stack.enter_async_context(broker_running(config, files, clock, rng))
        waits = [
            asyncio.ensure_future(each)
            for each in (broker.unfenced(), broker.failed(), controller.failed())
        ]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        yield controller, broker


async def _start_controller(
    stack: AsyncExitStack,
    settings: Settings,
    files: FileLayer,
    clock: Clock,
    rng: random.Random,
) -> QuorumNode:
    """A quorum of one, at its usual port or, if that is taken and nobody insists, at any."""
    if not settings.cluster_id and load_identity(files, settings.data_dir) is None:
        # Of its own: by default all clusters with the same addresses have the same id.
        settings = dataclasses.replace(settings, cluster_id=uuid_text(random_uuid(rng)))
    if settings.controller_quorum_voters:
        config = _controller_config(settings, settings.controller_quorum_voters)
        return await stack.enter_async_context(quorum_running(config, files, clock, rng))
    try:
        config = _controller_config(settings, f"{CONTROLLER_ID}@{_HOST}:{_CONTROLLER_PORT}")
        return await stack.enter_async_context(quorum_running(config, files, clock, rng))
    except AddressInUse:
        config = _controller_config(settings, f"{CONTROLLER_ID}@{_HOST}:{_free_port()}")
        return await stack.enter_async_context(quorum_running(config, files, clock, rng))


def _controller_config(settings: Settings, voters: str) -> NodeConfig:
    config = NodeConfig.of(
        dataclasses.replace(
            settings,
            node_id=CONTROLLER_ID,
            controller_quorum_voters=voters,
            controller_quorum_election_timeout_ms=_ELECTION_TIMEOUT_MS,
            listeners="",
        )
    )
    make_directory(os.path.dirname(config.metadata_dir), "metadata.log.dir")
    return config


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        found: int = probe.getsockname()[1]
        return found


def _broker_config(settings: Settings, controller: str) -> BrokerConfig:
    return BrokerConfig.of(
        dataclasses.replace(
            settings,
            node_id=BROKER_ID,
            data_dir=os.path.join(settings.data_dir, "broker"),
            metadata_log_dir="",
            controller_quorum_bootstrap_servers=controller,
            offsets_topic_replication_factor=1,  # There is nobody to replicate to.
            group_initial_rebalance_delay_ms=_rebalance_delay_ms(settings),
        )
    )


def _rebalance_delay_ms(settings: Settings) -> int:
    """Whoever starts a consumer on a machine of their own does not want to wait for others."""
    value = settings.group_initial_rebalance_delay_ms
    return 0 if value == Settings().group_initial_rebalance_delay_ms else value


def make_directory(path: str, key: str) -> None:
    """Make a directory that a setting names; what is in the way is the user's to move."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{key}: cannot create directory {path}: {error.strerror}") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{key}: no permission to read and write in {path}")
