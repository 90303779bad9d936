"""AssignReplicasToDirs: tells the active controller in which directory each replica here is.

A broker with several directories chooses one for each new replica. Until the controller knows it,
the failure of a directory takes its replicas offline here and nobody moves their leaderships; so
what metadata says of a replica's directory is compared with where its log is, at every publication,
and what differs is told, many at once, one request at a time, until metadata says the same.

A directory that fails before it was told is told all the same: the controller then knows at once
that the replica is lost (kraftpy/quorum/control/directories.py). So is one whose log turned out to
be damaged: it is in no directory any more, and another replica must lead.
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.backoff import Backoff
from kraftpy.broker.controller_channel import ChannelRequest, ControllerChannel
from kraftpy.errors import KraftError
from kraftpy.limits import DIRECTORY_ASSIGNMENTS_MAX
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import Changes, ClusterImage
from kraftpy.types import BrokerId, Rng, TopicId, Uuid, to_wire_uuid
from kraftpy.wire.apis import ASSIGN_REPLICAS_TO_DIRS

log = get_logger(__name__)

Key = tuple[TopicId, int]
_TIMEOUT_S: Final = 10.0
_FIRST_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 5.0
_ATTEMPTS_BEFORE_WARNING: Final = 5


class DirectoryChannel:
    """A subscriber of the metadata. Lives in one event loop. Close it."""

    def __init__(
        self,
        broker_id: BrokerId,
        directory_of: Callable[[Key], Uuid | None],
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        rng: Rng,
    ) -> None:
        self._broker_id = broker_id
        self._directory_of = directory_of
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._backoff = Backoff(_FIRST_PAUSE_S, _PAUSE_S_MAX, rng)
        self._untold: dict[Key, Uuid] = {}
        self._image: ClusterImage | None = None
        self._failures = 0
        self._work = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def apply(self, _before: ClusterImage, after: ClusterImage, changes: Changes) -> None:
        """Compare what has changed with what is."""
        self._image = after
        for topic_id in changes.deleted_topics:
            for key in [each for each in self._untold if each[0] == topic_id]:
                del self._untold[key]
        for topic_id, indexes in changes.topics.items():
            for index in indexes:
                self._compare(after, (topic_id, index))
        if self._untold:
            self._work.set()

    def log_lost(self, key: Key) -> None:
        """Where this replica's log was, there is none any more."""
        if self._image is not None:
            self._compare(self._image, key)
            self._work.set()

    def _compare(self, image: ClusterImage, key: Key) -> None:
        partition = image.partition(*key)
        if partition is None or self._broker_id not in partition.replicas:
            self._untold.pop(key, None)
            return
        told = partition.directories[partition.replicas.index(self._broker_id)]
        # A log that is gone was in a directory that failed: what is still to be told, stays so.
        found = self._directory_of(key) or self._untold.get(key)
        if found is None or found == told:
            self._untold.pop(key, None)
        else:
            self._untold[key] = found

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            if not self._untold:
                continue
            asked = dict(islice(self._untold.items(), DIRECTORY_ASSIGNMENTS_MAX))
            if await self._tell(asked):
                self._failures = 0
                self._backoff.reset()
                for key, directory_id in asked.items():
                    # Metadata will say so, too; if it says otherwise, it is compared again.
                    if self._untold.get(key) == directory_id:
                        del self._untold[key]
            else:
                await asyncio.sleep(self._backoff.next_s())
            if self._untold:
                self._work.set()

    async def _tell(self, assigned: dict[Key, Uuid]) -> bool:
        request = ChannelRequest(
            api_key=ASSIGN_REPLICAS_TO_DIRS,
            values=_values(self._broker_id, self._broker_epoch(), assigned),
            timeout_s=_TIMEOUT_S,
            repeatable=True,
        )
        try:
            answer = await self._channel.send(request)
            why = answer.error_code.name
        except KraftError as error:
            answer, why = None, str(error)
        if answer is not None and answer.error_code is ErrorCode.none:
            return True
        self._failures += 1
        if self._failures == _ATTEMPTS_BEFORE_WARNING:
            log.warning("directories_untold", partitions=len(self._untold), why=why)
        return False


def _values(broker_id: BrokerId, broker_epoch: int, assigned: dict[Key, Uuid]) -> dict[str, Any]:
    directories: dict[Uuid, dict[TopicId, list[dict[str, int]]]] = {}
    for (topic_id, index), directory_id in assigned.items():
        topics = directories.setdefault(directory_id, {})
        topics.setdefault(topic_id, []).append({"partition_index": index})
    return {
        "broker_id": broker_id,
        "broker_epoch": broker_epoch,
        "directories": [
            {
                "id_": to_wire_uuid(directory_id),
                "topics": [
                    {"topic_id": to_wire_uuid(topic_id), "partitions": partitions}
                    for topic_id, partitions in topics.items()
                ],
            }
            for directory_id, topics in directories.items()
        ],
    }
