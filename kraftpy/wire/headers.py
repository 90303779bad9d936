"""Request and response headers, v0 to v2 and v0 to v1, and the frames around them. Pure.

Which header version a message has follows from the message: with tagged fields (KIP-482) it is the
newest. One exception is Kafka's own: a response to ApiVersions never has tags in its header, since
a client reads it before it knows what the server speaks.
"""

import struct
from typing import Any, Final, NamedTuple

from kraftpy.errors import WireError
from kraftpy.limits import RESPONSE_ELEMENTS_MAX
from kraftpy.wire.codec import decode, encode
from kraftpy.wire.frames import finish_frame
from kraftpy.wire.generated import MALFORMED
from kraftpy.wire.primitives import skip_tags

API_VERSIONS: Final = 18

_START: Final = struct.Struct(">hhi")
_RESPONSE_START: Final = struct.Struct(">ii")
_CORRELATION: Final = struct.Struct(">i")
_TEXT_LENGTH: Final = struct.Struct(">h")


class RequestHeader(NamedTuple):
    """Who asks for what. `client_id` is what the client calls itself, if anything."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_start(frame: bytes) -> RequestHeader:
    """What every header begins with, whatever its version; the client id is left out."""
    if len(frame) < _START.size:
        raise WireError(f"a request of {len(frame)} bytes")
    api_key, api_version, correlation_id = _START.unpack_from(frame)
    return RequestHeader(api_key, api_version, correlation_id, None)


def read_header(frame: bytes, *, flexible: bool) -> tuple[RequestHeader, int]:
    """The header, v1 or v2, and where the message begins."""
    start = read_start(frame)
    try:
        (length,) = _TEXT_LENGTH.unpack_from(frame, _START.size)
        at = _START.size + _TEXT_LENGTH.size
        end = at + max(length, 0)
        if end > len(frame):
            raise WireError("the client id is longer than the request")
        client_id = None if length < 0 else str(frame[at:end], "utf-8")
        return start._replace(client_id=client_id), skip_tags(frame, end) if flexible else end
    except MALFORMED as error:
        raise WireError(f"malformed request header: {error}") from None


def request_frame(
    message: Any, api_key: int, api_version: int, correlation_id: int, client_id: str
) -> bytearray:
    """A request, with its length in front."""
    name = client_id.encode()
    head = bytes(4) + _START.pack(api_key, api_version, correlation_id)
    head += _TEXT_LENGTH.pack(len(name)) + name
    return finish_frame(encode(message, head + b"\0" if type(message).__flexible__ else head))


def response_frame(message: Any, api_key: int, correlation_id: int) -> bytearray:
    """A response, with its length in front."""
    head = _RESPONSE_START.pack(0, correlation_id)
    if type(message).__flexible__ and api_key != API_VERSIONS:
        head += b"\0"
    return finish_frame(encode(message, head))


def read_response(frame: bytes, entity: type, api_key: int) -> tuple[int, Any]:
    """(correlation id, message)."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        at = _CORRELATION.size
        flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
        if flexible and api_key != API_VERSIONS:
            at = skip_tags(frame, at)
    except MALFORMED as error:
        raise WireError(f"malformed response header: {error}") from None
    return correlation_id, decode(entity, frame, at, elements_max=RESPONSE_ELEMENTS_MAX)
