"""Kafka's wire format, without sockets: frames, headers, versions, messages."""

from kraftpy.wire.apis import ApiTable, Request, VersionRange, read_request
from kraftpy.wire.codec import build, decode, encode
from kraftpy.wire.frames import FrameBuffer
from kraftpy.wire.headers import RequestHeader, read_response, request_frame, response_frame

__all__ = [
    "ApiTable",
    "FrameBuffer",
    "Request",
    "RequestHeader",
    "VersionRange",
    "build",
    "decode",
    "encode",
    "read_request",
    "read_response",
    "request_frame",
    "response_frame",
]
