"""A controller that also takes Produce on `__cluster_metadata`: `python -m bench.quorum_daemon`.

Controllers write what they decide, never what a client sends; to measure and to torture the quorum
alone, somebody must be able to write. The request's batch is proposed as it is, at the end of the
leader's log, and answered when it is committed: one request, one batch, one Raft entry.
"""

import asyncio
import cProfile
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import click
from kio.schema.errors import ErrorCode

from kraftpy.cli.settings import settings_options_and
from kraftpy.cli.signals import watch_stop_signals
from kraftpy.clock import SystemClock
from kraftpy.config import Settings
from kraftpy.errors import KraftError, NotController, OutcomeUnknown
from kraftpy.network.loop import run
from kraftpy.quorum.apis.context import NO_THROTTLE, Api, Context
from kraftpy.quorum.consensus import Consensus
from kraftpy.quorum.node import running
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.quorum.raft.driver import RaftDriver
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.record_batch import read_header
from kraftpy.wire.apis import Request, VersionRange

PRODUCE = 0


class Producer:
    """Gives each batch the next offset. Proposals in flight are counted on."""

    def __init__(self, consensus: Consensus) -> None:
        assert isinstance(consensus, RaftDriver)
        self._driver = consensus
        self._epoch = -1
        self._next_offset = -1

    async def produce(self, context: Context, request: Request) -> bytearray:
        """One batch for one partition, or the error that tells what became of it."""
        topic = request.message.topic_data[0]
        partition = topic.partition_data[0]
        error_code, offset = await self._write(context, bytes(partition.records))
        answer = {"index": partition.index, "error_code": error_code, "base_offset": offset}
        times = {"log_append_time": None, "log_start_offset": 0}
        topics = [{"name": topic.name, "partition_responses": [{**answer, **times}]}]
        return request.response({"responses": topics, "throttle_time": NO_THROTTLE})

    async def _write(self, context: Context, batch: bytes) -> tuple[ErrorCode, int]:
        progress = context.view.progress
        if progress.leader_id != context.view.node_id:
            return ErrorCode.not_leader_or_follower, -1
        if progress.epoch != self._epoch:
            self._epoch = progress.epoch
            self._next_offset = self._driver.engine.journal.metadata_log.log.end_offset
        offset = self._next_offset
        self._next_offset += read_header(batch).last_offset_delta + 1
        proposed = self._driver.propose(batch, epoch=self._epoch, base_offset=offset)
        try:
            await asyncio.wrap_future(proposed)
        except NotController:
            self._epoch = -1  # The log ends elsewhere than was counted: look again.
            return ErrorCode.not_leader_or_follower, -1
        except OutcomeUnknown:
            return ErrorCode.request_timed_out, -1
        except KraftError:
            return ErrorCode.unknown_server_error, -1
        return ErrorCode.none, offset


def produce_api(consensus: Consensus) -> Mapping[int, Api]:
    return {PRODUCE: Api(VersionRange(3, 7), Producer(consensus).produce)}


@click.command()
@settings_options_and(
    ("--node-id", "node.id", "The number of this controller."),
    ("--voters", "controller.quorum.voters", "All controllers."),
)
@click.option("--profile", default=None, help="Write cProfile files of both threads here.")
def main(settings: Settings, profile: str | None) -> None:
    """Run the controller until a signal."""
    config = NodeConfig.of(settings)
    if profile is None:
        run(serve(config))
        return
    with cProfile.Profile() as found:
        run(serve(config, profile))
    found.dump_stats(os.path.join(profile, f"{config.node_id}-loop.prof"))


@contextmanager
def profiled_raft(driver: RaftDriver, path: str) -> Iterator[None]:
    """Profile the thread that ticks the engine, from its first tick on."""
    found = cProfile.Profile()
    tick = driver.engine.tick

    def first_tick(wait_s: float) -> None:
        driver.engine.tick = tick  # type: ignore[method-assign]
        found.enable()
        tick(wait_s)

    driver.engine.tick = first_tick  # type: ignore[method-assign]
    try:
        yield
    finally:
        found.dump_stats(path)  # The thread has ended.


async def serve(config: NodeConfig, profile: str | None = None) -> None:
    stopped = watch_stop_signals()
    node: Any
    with ExitStack() as profiles:

        def more_apis(consensus: Consensus) -> Mapping[int, Api]:
            if profile is not None:
                assert isinstance(consensus, RaftDriver)
                path = os.path.join(profile, f"{config.node_id}-raft.prof")
                profiles.enter_context(profiled_raft(consensus, path))
            return produce_api(consensus)

        async with running(config, OsFiles(), SystemClock(), random.Random(), more_apis) as node:
            await _until_stopped(node, stopped)


async def _until_stopped(node: Any, stopped: Any) -> None:
    click.echo(f"ready {node.server.port}")
    fault = asyncio.ensure_future(node.failed())
    stop = asyncio.ensure_future(stopped.get())
    await asyncio.wait([fault, stop], return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    fault.cancel()


if __name__ == "__main__":
    main()
