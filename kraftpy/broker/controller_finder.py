"""Which controller is active: any of them can tell, and the latest epoch is right.

Every configured controller is asked at once. The first answer that names a leader is taken, unless
the leader is the one that has just failed its asker: then the others are waited for, as one that is
cut off goes on naming an old leader. What is known of epochs never goes back.

A change of the active controller is one line of the log; a healthy quorum costs no line.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple
from uuid import UUID

from kraftpy.broker.backoff import Backoff
from kraftpy.errors import KraftError
from kraftpy.limits import CONTROLLER_PLACES_MAX
from kraftpy.logs import get_logger
from kraftpy.network.client import WireClient
from kraftpy.network.places import Place
from kraftpy.types import NO_EPOCH, Rng
from kraftpy.wire.apis import METADATA

log = get_logger(__name__)

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = UUID(int=1)  # Kafka's.

_ANSWER_S: Final = 2.0
_FIRST_PAUSE_S: Final = 0.005
_PAUSE_S_MAX: Final = 1.0
_ROUNDS_BEFORE_WARNING: Final = 10


class ActiveController(NamedTuple):
    """The leader of the quorum in one epoch, as a controller named it."""

    node_id: int
    epoch: int
    place: Place
    cluster_id: str


class ControllerFinder:
    """Shared by all that talk to the active controller. Lives in one event loop."""

    def __init__(
        self, controllers: Sequence[Place], rng: Rng, *, answer_s: float = _ANSWER_S
    ) -> None:
        assert controllers, "there is nobody to ask"
        self._places = list(controllers)
        self._rng = rng
        self._answer_s = answer_s
        self._newest: ActiveController | None = None
        self._warned = False

    @property
    def newest(self) -> ActiveController | None:
        """The last one that was found; it may have failed since."""
        return self._newest

    async def find(self, failed: ActiveController | None = None) -> ActiveController:
        """Look until there is one; the caller decides for how long.

        `failed` is the one that did not answer or denied to be active: it is taken only if nobody
        names another.
        """
        backoff = Backoff(_FIRST_PAUSE_S, _PAUSE_S_MAX, self._rng)
        rounds = 0
        while (found := await self._round(failed)) is None:
            rounds += 1
            if rounds == _ROUNDS_BEFORE_WARNING and not self._warned:
                self._warned = True
                places = ",".join(map(str, self._places))
                log.warning("no_active_controller", controllers=places)
            await asyncio.sleep(backoff.next_s())
        self._note(found)
        return found

    def _note(self, found: ActiveController) -> None:
        before = self._newest
        if before is None or (before.node_id, before.epoch) != (found.node_id, found.epoch):
            place = str(found.place)
            log.info("controller_found", leader=found.node_id, epoch=found.epoch, place=place)
        self._newest = found
        self._warned = False

    async def _round(self, failed: ActiveController | None) -> ActiveController | None:
        """Ask everybody once."""
        second_best: ActiveController | None = None
        async with aclosing(self._answers()) as answers:
            async for found in answers:
                if self._newest is not None and found.epoch < self._newest.epoch:
                    continue  # It has not heard of the newer one.
                if failed is None or found[:2] != failed[:2]:
                    return found
                second_best = found
        return second_best

    async def _answers(self) -> AsyncGenerator[ActiveController, None]:
        tasks = [asyncio.create_task(self._ask(place)) for place in self._places]
        try:
            for next_one in asyncio.as_completed(tasks):
                found = await next_one
                if found is not None:
                    yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, place: Place) -> ActiveController | None:
        try:
            client = await WireClient.connect(*place, timeout_s=self._answer_s)
            try:
                answer = await client.ask(METADATA, _whole_quorum())
            finally:
                await client.close()
        except KraftError:
            return None
        return self._read(answer)

    def _read(self, answer: Any) -> ActiveController | None:
        places = {node.node_id: Place(node.host, node.port) for node in answer.brokers}
        for place in places.values():
            if place not in self._places and len(self._places) < CONTROLLER_PLACES_MAX:
                self._places.append(place)
        partition = answer.topics[0].partitions[0] if answer.topics[0].partitions else None
        if partition is None or partition.leader_id not in places:
            return None
        epoch = max(partition.leader_epoch, NO_EPOCH)
        leader_id = int(partition.leader_id)
        return ActiveController(leader_id, epoch, places[leader_id], answer.cluster_id or "")


def _whole_quorum() -> dict[str, Any]:
    return {
        "topics": [{"name": METADATA_TOPIC, "topic_id": None}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }
