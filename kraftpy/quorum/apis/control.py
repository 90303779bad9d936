"""The APIs that the active controller decides, as handlers of the controller listener."""

from collections.abc import Callable, Mapping
from functools import partial

from kraftpy.quorum.apis.context import Api, Context
from kraftpy.quorum.control.decision import ControlApi
from kraftpy.quorum.controller_loop import ControllerLoop
from kraftpy.wire.apis import Request


def handlers(
    controller: ControllerLoop,
    control_apis: Mapping[int, ControlApi],
    notes: Mapping[int, Callable[[Request], None]] | None = None,
) -> Mapping[int, Api]:
    """One handler per API, all of the same kind: what differs is decided in kraftpy.quorum.control.

    None has a deadline: a leader that cannot commit steps down, and then everything is answered.
    `notes`: who is told of requests of an API before they are decided.
    """
    return {
        key: Api(api.versions, partial(_answer, controller, api, (notes or {}).get(key)))
        for key, api in control_apis.items()
    }


async def _answer(
    controller: ControllerLoop,
    api: ControlApi,
    note: Callable[[Request], None] | None,
    _context: Context,
    request: Request,
) -> bytearray:
    if note is not None:
        note(request)
    return request.response(await controller.ask(api, request.message))
