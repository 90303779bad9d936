"""Envelope (KIP-590): a client's request that a broker passes on, answered as if it had come here.

The envelope itself is refused, with an error of its own, if it does not say who the client is, or
holds something that may not be passed on or is not understood. A controller that is not active says
so on the envelope, so that the broker looks for the active one and the client never hears of it.

Who the client is and where it came from is known here, for whoever authorizes or records requests.
"""

from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.errors import WireError
from kraftpy.logs import get_logger
from kraftpy.quorum.apis.context import Api, Context
from kraftpy.wire.apis import ApiTable, Request, api_name, mentions, read_request
from kraftpy.wire.envelope import FORWARDABLE, read_address, read_principal
from kraftpy.wire.headers import read_response, read_start

log = get_logger(__name__)

_LENGTH_BYTES: Final = 4


async def envelope(apis: Mapping[int, Api], context: Context, request: Request) -> bytearray:
    """Unwrap, answer with the handler of the API, wrap the answer."""
    table = {key: api.versions for key, api in apis.items()}
    inner, problem = _unwrapped(table, request.message)
    if inner is None:
        return _refuse(request, problem)
    answer = await apis[inner.header.api_key].handle(context, inner)
    data = bytes(memoryview(answer)[_LENGTH_BYTES:])
    _, message = read_response(data, inner.response_type, inner.header.api_key)
    if mentions(message, ErrorCode.not_controller):
        return _refuse(request, ErrorCode.not_controller)
    return request.response({"response_data": data, "error_code": ErrorCode.none})


def _refuse(request: Request, error_code: ErrorCode) -> bytearray:
    return request.response({"response_data": None, "error_code": error_code})


def _unwrapped(table: ApiTable, asked: Any) -> tuple[Request | None, ErrorCode]:
    """The request inside, or None and why it is not passed on."""
    try:
        principal = read_principal(asked.request_principal or b"")
    except WireError:
        return None, ErrorCode.principal_deserialization_failure
    try:
        address = read_address(asked.client_host_address)
        start = read_start(asked.request_data)
        if start.api_key not in FORWARDABLE or start.api_key not in table:
            return None, ErrorCode.invalid_request
        low, high = table[start.api_key]
        if not low <= start.api_version <= high:
            return None, ErrorCode.unsupported_version
        inner = read_request(table, asked.request_data)
    except WireError:
        return None, ErrorCode.invalid_request
    name = api_name(start.api_key)
    log.debug("request_forwarded", api=name, principal=principal.name, address=address)
    return inner._replace(principal=principal.name), ErrorCode.none
