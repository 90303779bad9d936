"""A node for tests: `python -m kraftpy.testing.node quorum|broker --set key=value ...`.

It is the node that `kraftpy quorum` and `kraftpy broker` run, with a clock that can be put wrong, a
disk that can lose its power, and, if asked for, one planted bug. The command `kraftpy` knows none
of these switches and never imports this module: there is no setting, file or environment variable
that plants anything in a production node.
"""

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kraftpy import logs
from kraftpy.broker import node as broker_node
from kraftpy.broker.node_config import BrokerConfig
from kraftpy.clock import Clock, SystemClock
from kraftpy.config import Settings, from_assignment, resolve
from kraftpy.errors import ConfigError, KraftError
from kraftpy.logs import get_logger
from kraftpy.network.loop import run
from kraftpy.quorum import node as quorum_node
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.storage.file_layer import FileLayer, OsFiles
from kraftpy.testing.fault_control import FaultControl
from kraftpy.testing.faulty_files import FaultyFiles
from kraftpy.testing.mutants import MUTANTS, plant
from kraftpy.testing.skewed_clock import SkewedClock

log = get_logger(__name__)


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kraftpy.testing.node", description=__doc__)
    parser.add_argument("role", choices=("quorum", "broker"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--clock-file", help="16 bytes: offset in ms and rate")
    parser.add_argument("--fault-socket", help="where faults of the disk are asked for")
    parser.add_argument("--graveyard", help="a directory beside the node's own, for lost names")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="plant this bug")
    return parser.parse_args(words)


def surroundings(given: argparse.Namespace) -> tuple[FileLayer, Clock]:
    """The disk and the clock that were asked for."""
    clock: Clock = SystemClock()
    if given.clock_file:
        clock = SkewedClock(given.clock_file, clock)
    if not given.fault_socket:
        return OsFiles(), clock
    if not given.graveyard:
        raise ConfigError("--fault-socket needs a --graveyard")
    files = FaultyFiles(given.graveyard)
    FaultControl(given.fault_socket, files)
    return files, clock


async def serve(role: str, settings: Settings, files: FileLayer, clock: Clock) -> None:
    """Run the node until SIGTERM, SIGINT or a fault."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    rng = random.Random()
    running: Any
    if role == "quorum":
        running = quorum_node.running(NodeConfig.of(settings), files, clock, rng)
    else:
        running = broker_node.running(BrokerConfig.of(settings), files, clock, rng)
    stopped = asyncio.ensure_future(stop.wait())
    node_task = asyncio.ensure_future(_until(running, stop))
    await asyncio.wait([stopped, node_task], return_when=asyncio.FIRST_COMPLETED)
    if role == "broker" and not node_task.done():
        # A broker that has not found a controller yet waits inside of its start.
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(node_task), _STOP_S)
        node_task.cancel()
    stopped.cancel()
    with suppress(asyncio.CancelledError):
        await node_task
    log.info("node_stopped", role=role)


_STOP_S = 20.0


async def _until(running: Any, stop: asyncio.Event) -> None:
    async with running as node:
        log.info("node_started", role=type(node).__name__)
        tasks = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(node.failed())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


def main(words: Sequence[str]) -> int:
    given = arguments(words)
    try:
        settings = resolve([from_assignment(text, "--set") for text in given.settings])
        logs.configure(
            log_format="text", level=settings.logging_level, stream=sys.stderr, clock=SystemClock()
        )
        if given.mutant:
            plant(given.mutant)
            log.warning("mutant_planted", mutant=given.mutant)
        files, clock = surroundings(given)
        run(serve(given.role, settings, files, clock))
    except KraftError as error:
        sys.stderr.write(f"kraftpy: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
