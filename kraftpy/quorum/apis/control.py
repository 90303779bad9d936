"""The APIs that the active controller decides, as handlers of the controller listener."""

from collections.abc import Mapping
from functools import partial

from kraftpy.quorum.apis.context import Api, Context
from kraftpy.quorum.control.decision import ControlApi
from kraftpy.quorum.controller_loop import ControllerLoop
from kraftpy.wire.apis import Request


def handlers(
    controller: ControllerLoop, control_apis: Mapping[int, ControlApi]
) -> Mapping[int, Api]:
    """One handler per API, all of the same kind: what differs is decided in kraftpy.quorum.control.

    None has a deadline: a leader that cannot commit steps down, and then everything is answered.
    """
    return {
        key: Api(api.versions, partial(_answer, controller, api))
        for key, api in control_apis.items()
    }


async def _answer(
    controller: ControllerLoop, api: ControlApi, _context: Context, request: Request
) -> bytearray:
    return request.response(await controller.ask(api, request.message))
