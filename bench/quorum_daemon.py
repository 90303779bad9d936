"""A controller that also takes Produce on `__cluster_metadata`: `python -m bench.quorum_daemon`.

Controllers write what they decide, never what a client sends; to measure and to torture the quorum
alone, somebody must be able to write. The request's batch is proposed as it is, at the end of the
leader's log, and answered when it is committed: one request, one batch, one Raft entry.
"""

import asyncio
import cProfile
import os
import random
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import click
from kio.schema.errors import ErrorCode

from kraftpy.cli.settings import settings_options_and
from kraftpy.cli.signals import watch_stop_signals
from kraftpy.clock import SystemClock
from kraftpy.config import Settings
from kraftpy.errors import KraftError, NotController, OutcomeUnknown, WireError
from kraftpy.network.connection import Connection
from kraftpy.network.loop import run
from kraftpy.quorum.apis.context import Api, Context
from kraftpy.quorum.consensus import Consensus
from kraftpy.quorum.node import running
from kraftpy.quorum.node_config import NodeConfig
from kraftpy.quorum.raft.driver import RaftDriver
from kraftpy.quorum.raft.engine import RaftEngine
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.record_batch import read_header
from kraftpy.wire.apis import Request, VersionRange
from kraftpy.wire.frames import finish_frame

PRODUCE = 0
PRODUCE_VERSION = 7


class Completions:
    """Outcomes of the engine's thread, for the event loop: one wake-up for all that a tick has."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: deque[tuple[asyncio.Future[int], Future[int]]] = deque()

    def of(self, proposed: Future[int]) -> asyncio.Future[int]:
        waiting: asyncio.Future[int] = self._loop.create_future()
        proposed.add_done_callback(lambda done: self._add(waiting, done))
        return waiting

    def _add(self, waiting: asyncio.Future[int], done: Future[int]) -> None:
        self._done.append((waiting, done))
        if len(self._done) == 1:  # If there are more, whoever added the first has woken the loop.
            with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        while self._done:
            waiting, done = self._done.popleft()
            if waiting.done():
                continue
            error = done.exception()
            if error is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(done.result())


class Producer:
    """Gives each batch the next offset. Proposals in flight are counted on.

    Requests are read by hand: a general codec takes longer than the quorum does.
    """

    def __init__(self, engine: RaftEngine) -> None:
        self._engine = engine
        self._completions = Completions()
        self._epoch = -1
        self._next_offset = -1

    async def produce(self, frame: bytes) -> bytearray:
        """One batch for one partition, or the error that tells what became of it."""
        correlation_id, topic, batch = read_produce(frame)
        error_code, offset = await self._write(batch)
        answer = bytearray(4) + struct.pack(">iih", correlation_id, 1, len(topic)) + topic
        answer += struct.pack(">iihqqqi", 1, 0, error_code.value, offset, -1, 0, 0)
        return finish_frame(answer)

    async def _write(self, batch: bytes) -> tuple[ErrorCode, int]:
        # The engine's thread may change all of this at any moment; it then refuses the proposal.
        engine = self._engine
        if engine.leader_id != engine.node_id:
            return ErrorCode.not_leader_or_follower, -1
        if engine.epoch != self._epoch:
            self._epoch = engine.epoch
            self._next_offset = engine.journal.end_offset
        offset = self._next_offset
        self._next_offset += read_header(batch).last_offset_delta + 1
        proposed = engine.propose(batch, epoch=self._epoch, base_offset=offset)
        try:
            await self._completions.of(proposed)
        except NotController:
            self._epoch = -1  # The log ends elsewhere than was counted: look again.
            return ErrorCode.not_leader_or_follower, -1
        except OutcomeUnknown:
            return ErrorCode.request_timed_out, -1
        except KraftError:
            return ErrorCode.unknown_server_error, -1
        return ErrorCode.none, offset


def read_produce(frame: bytes) -> tuple[int, bytes, bytes]:
    """(correlation id, topic, batch) of a request of version 7 with one batch."""
    try:
        _, version, correlation_id, length = struct.unpack_from(">hhih", frame)
        at = 10 + max(length, 0)
        (length,) = struct.unpack_from(">h", frame, at)  # The transaction's name.
        at += 2 + max(length, 0) + 2 + 4  # Acks and timeout, which are always the same here.
        topics, length = struct.unpack_from(">ih", frame, at)
        topic = frame[at + 6 : at + 6 + length]
        at += 6 + length
        partitions, _, length = struct.unpack_from(">iii", frame, at)
    except struct.error as error:
        raise WireError(f"malformed Produce: {error}") from None
    batch = frame[at + 12 :]
    if (version, topics, partitions, length) != (PRODUCE_VERSION, 1, 1, len(batch)):
        raise WireError("not a Produce of version 7 with one batch")
    return correlation_id, topic, batch


def answer_produce(server: Any, producer: Producer) -> None:
    """Let a WireServer answer Produce before anything else looks at it."""
    general = server.answer

    async def answer(frame: bytes, connection: Connection) -> bytearray | None:
        if frame[:2] == b"\0\0":
            return await producer.produce(frame)
        found: bytearray | None = await general(frame, connection)
        return found

    server.answer = answer


async def never(_context: Context, _request: Request) -> bytearray:
    """Handles Produce for the table of versions, which alone knows of it."""
    raise WireError("Produce is answered elsewhere")


PRODUCE_API: Mapping[int, Api] = {
    PRODUCE: Api(VersionRange(PRODUCE_VERSION, PRODUCE_VERSION), never)
}


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
            return PRODUCE_API

        async with running(config, OsFiles(), SystemClock(), random.Random(), more_apis) as node:
            answer_produce(node.server.server, Producer(node.consensus.engine))
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
