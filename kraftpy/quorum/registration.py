"""How a controller makes itself known: ControllerRegistration, to whoever is active (KIP-919).

The active controller writes its own record. A standby asks the active one, a bounded number of
times per leader, and is content when the committed image shows its registration. A controller that
is not registered works; only levels of features cannot be raised without knowing what it supports.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.errors import KraftError
from kraftpy.limits import CONTROLLER_REGISTRATION_ATTEMPTS_MAX
from kraftpy.logs import get_logger
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.network.client import WireClient
from kraftpy.quorum.control.features import supported_features
from kraftpy.quorum.log_view import MetadataView, Progress
from kraftpy.quorum.voters import Voter
from kraftpy.types import BrokerId, Uuid, to_wire_uuid
from kraftpy.wire.apis import CONTROLLER_REGISTRATION, request_type
from kraftpy.wire.codec import build

log = get_logger(__name__)

_LISTENER_NAME: Final = "CONTROLLER"
_PLAINTEXT: Final = 0
_TIMEOUT_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 2.0
_RETRIABLE: Final = {
    ErrorCode.not_controller,
    ErrorCode.request_timed_out,
    ErrorCode.throttling_quota_exceeded,
}


def registration_values(voter: Voter, incarnation_id: Uuid) -> dict[str, Any]:
    """What a controller says of itself."""
    endpoint = {
        "name": _LISTENER_NAME,
        "host": voter.host,
        "port": voter.port,
        "security_protocol": _PLAINTEXT,
    }
    features = [
        {
            "name": feature.name,
            "min_supported_version": feature.min_supported_version,
            "max_supported_version": feature.max_supported_version,
        }
        for feature in supported_features()
    ]
    return {
        "controller_id": voter.node_id,
        "incarnation_id": to_wire_uuid(incarnation_id),
        "zk_migration_ready": False,
        "listeners": [endpoint],
        "features": features,
    }


def registration_message(values: dict[str, Any]) -> Any:
    """The same as the request that a Controller takes for its own."""
    return build(request_type(CONTROLLER_REGISTRATION, 0), values)


class Registrar:
    """Registers one standby."""

    def __init__(
        self,
        view: MetadataView,
        voters: tuple[Voter, ...],
        values: dict[str, Any],
        image: Callable[[], ClusterImage],
    ) -> None:
        self._view = view
        self._voters = {voter.node_id: voter for voter in voters}
        self._values = values
        self._image = image

    async def run(self) -> None:
        """Until the image shows the registration."""
        while not self._is_registered():
            progress = self._view.progress
            leader_id = progress.leader_id
            if leader_id is None or leader_id == self._view.node_id:
                await self._view.changed(progress)
            else:
                await self._register_with(self._voters[leader_id], progress)

    def _is_registered(self) -> bool:
        known = self._image().controllers.get(BrokerId(self._view.node_id))
        incarnation_id = self._values["incarnation_id"]
        return known is not None and to_wire_uuid(known.incarnation_id) == incarnation_id

    async def _register_with(self, leader: Voter, progress: Progress) -> None:
        why, pause_s = "", _FIRST_PAUSE_S
        for _ in range(CONTROLLER_REGISTRATION_ATTEMPTS_MAX):
            try:
                answer = await self._ask(leader)
            except KraftError as error:
                why = str(error)
            else:
                if answer.error_code is ErrorCode.none:
                    why = ""
                    break
                why = answer.error_message or answer.error_code.name
                if answer.error_code not in _RETRIABLE:
                    break
            if not self._still_leads(progress):
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        if why:
            log.warning("registration_failed", node=self._view.node_id, leader=leader, why=why)
        await self._until_registered_or_other_leader(progress)

    async def _ask(self, leader: Voter) -> Any:
        client = await WireClient.connect(leader.host, leader.port, timeout_s=_TIMEOUT_S)
        try:
            return await client.ask(CONTROLLER_REGISTRATION, self._values)
        finally:
            await client.close()

    def _still_leads(self, progress: Progress) -> bool:
        now = self._view.progress
        return (now.leader_id, now.epoch) == (progress.leader_id, progress.epoch)

    async def _until_registered_or_other_leader(self, progress: Progress) -> None:
        """The record that was accepted is on its way to this node's image."""
        while self._still_leads(progress) and not self._is_registered():
            await self._view.changed(self._view.progress)
