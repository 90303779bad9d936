"""What an open page hears: how everything is, each second; topics and records as they change.

One task looks, while anybody listens, and tells all of them the same; without listeners nothing
runs. A listener that does not keep up is let go: its page connects again and begins anew. The
first thing that a listener hears is everything.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from kraftpy.admin.cluster_view import TopicRows, all_topics, broker_rows, health
from kraftpy.admin.history import Past, Tail
from kraftpy.admin.sources import NodeSource
from kraftpy.clock import Clock
from kraftpy.errors import KraftError
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.network.quorum_status import find_status
from kraftpy.storage.file_layer import FileLayer

log = get_logger(__name__)

LISTENERS_MAX: Final = 32
_UNHEARD_MAX: Final = 64
_LOOK_S: Final = 0.25
_STATUS_EVERY: Final = 4  # Looks.
_KEPT_RECORDS: Final = 400
_KEPT_SAMPLES: Final = 300
_ASK_S: Final = 2.0


class Event(NamedTuple):
    """One message to a page."""

    name: str
    data: Any


class TooManyListeners(KraftError):
    """As many pages are open as a node serves."""


class Feed:
    """Lives in the node's event loop."""

    def __init__(self, source: NodeSource, files: FileLayer, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._files = files
        self.past = Past(files, source.metadata_dir)
        self._tail: Tail
        self._rows = TopicRows()
        self._records: deque[dict[str, Any]] = deque(maxlen=_KEPT_RECORDS)
        self._samples: deque[dict[str, Any]] = deque(maxlen=_KEPT_SAMPLES)
        self._listeners: set[asyncio.Queue[Event | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._seen: ClusterImage | None = None
        self._status: dict[str, Any] = {}

    async def close(self) -> None:
        for queue in tuple(self._listeners):
            _end(queue)
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    # -- status -------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """Everything about the node, its quorum and its cluster, but not partition by partition."""
        source, image = self._source, self._source.image
        loop = asyncio.get_running_loop()
        quorum = await self._quorum()
        counts, brokers = await loop.run_in_executor(None, _summary, image)
        return {
            "node_id": source.node_id,
            "role": source.role,
            "state": source.state(),
            "ready": source.is_ready(),
            "cluster_id": source.cluster_id,
            "time_ms": self._clock.now_ms(),
            "end_offset": image.end_offset,
            "quorum": quorum,
            "health": counts,
            "brokers": brokers,
            "features": dict(sorted(image.features.items())),
            "numbers": dict(source.numbers()),
            "node": dict(source.details()),
        }

    async def _quorum(self) -> dict[str, Any]:
        try:
            return asdict(await find_status(self._source.controllers, _ASK_S))
        except KraftError as error:  # An election, say: it is part of the picture.
            return {"error": str(error)}

    # -- listeners ----------------------------------------------------------------------------

    async def listen(self) -> AsyncGenerator[Event, None]:
        """Everything, and then what is new, until the feed or the listener ends."""
        if len(self._listeners) >= LISTENERS_MAX:
            raise TooManyListeners(f"{LISTENERS_MAX} pages are open already")
        queue: asyncio.Queue[Event | None] = asyncio.Queue(_UNHEARD_MAX)
        self._listeners.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look())
        else:
            for known in self._everything():
                queue.put_nowait(known)
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._listeners.discard(queue)

    def _everything(self) -> list[Event]:
        topics = Event("topics", {**all_topics(self._seen or self._source.image), "all": True})
        return [
            topics,
            Event("records", list(self._records)),
            Event("samples", list(self._samples)),
            Event("status", self._status),
        ]

    def _tell(self, name: str, data: Any) -> None:
        for queue in tuple(self._listeners):
            try:
                queue.put_nowait(Event(name, data))
            except asyncio.QueueFull:
                self._listeners.discard(queue)
                _end(queue)

    # -- the task -----------------------------------------------------------------------------

    async def _look(self) -> None:
        self._seen = None
        self._tail = Tail(self._files, self._source.metadata_dir)
        self._records.clear()
        self._tell("samples", list(self._samples))
        looks = 0
        try:
            while self._listeners:
                await self._look_once(with_status=looks % _STATUS_EVERY == 0)
                looks += 1
                await asyncio.sleep(_LOOK_S)
        except (KraftError, OSError) as error:
            # The log was taken away under us, or is damaged: the node itself says more.
            log.warning("dashboard_stopped", why=str(error))
            for queue in tuple(self._listeners):
                _end(queue)

    async def _look_once(self, *, with_status: bool) -> None:
        image = self._source.image
        if image is not self._seen:
            changes = self._rows.changes(image)
            if self._seen is None:
                self._tell("topics", {**all_topics(image), "all": True})
            elif changes is not None:
                self._tell("topics", changes)
            self._seen = image
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(None, self._tail.read, image.end_offset)
            if found:
                self._records.extend(found)
                self._tell("records", found)
        if with_status:
            self._status = await self.status()
            self._sample(self._status["quorum"])
            self._tell("status", self._status)

    def _sample(self, quorum: Mapping[str, Any]) -> None:
        sample = {
            "time_ms": self._clock.now_ms(),
            "leader_id": quorum.get("leader_id"),
            "epoch": quorum.get("leader_epoch"),
            "lags": {
                str(replica["replica_id"]): replica["lag"]
                for kind in ("voters", "observers")
                for replica in quorum.get(kind, ())
            },
        }
        self._samples.append(sample)
        self._tell("samples", [sample])


def _summary(image: ClusterImage) -> tuple[dict[str, int], list[dict[str, Any]]]:
    return asdict(health(image)), broker_rows(image)


def _end(queue: "asyncio.Queue[Event | None]") -> None:
    """Let a listener go; what it has not heard is dropped, as it begins anew."""
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
