"""Admin requests: passed on to the active controller, as the client that asked.

The request travels as it came, in an Envelope (KIP-590) that says who the client is. Its answer is
the controller's, and leaves when this broker's own metadata has reached what was committed by then:
whoever created a topic here finds it here. That wait is bounded; after it the answer leaves anyway,
since it is true, only not visible here yet.

A client hears NOT_CONTROLLER if nothing happened, and may ask again; REQUEST_TIMED_OUT if the
request was sent and nobody knows what became of it. It is not repeated here then: creating a topic
for the second time would turn success into a refusal.
"""

from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.broker.apis.forwarding_errors import error_values
from kraftpy.broker.controller_channel import ChannelRequest, ControllerChannel
from kraftpy.broker.controller_finder import METADATA_TOPIC
from kraftpy.broker.metadata.cache import MetadataCache
from kraftpy.errors import OutcomeUnknown, Unreachable
from kraftpy.limits import FORWARDED_REQUEST_BYTES_MAX
from kraftpy.logs import get_logger
from kraftpy.wire import apis
from kraftpy.wire.apis import Request
from kraftpy.wire.envelope import ANONYMOUS, Principal, address_bytes, principal_bytes
from kraftpy.wire.frames import finish_frame

log = get_logger(__name__)

# They change nothing, so there is nothing to wait for.
_READS: Final = {apis.LIST_PARTITION_REASSIGNMENTS, apis.DESCRIBE_QUORUM}
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who asks, and from where."""

    address: str
    principal: Principal = ANONYMOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingTiming:
    """How long a request may take in all, one controller may be silent, and its result may take to
    be seen here."""

    request_s: float = 30.0
    attempt_s: float = 10.0
    visible_s: float = 5.0


class Forwarder:
    """Shared by all connections of a broker."""

    def __init__(
        self,
        channel: ControllerChannel,
        cache: MetadataCache,
        timing: ForwardingTiming | None = None,
    ) -> None:
        self._channel = channel
        self._cache = cache
        self._timing = timing or ForwardingTiming()

    async def forward(self, request: Request, frame: bytes, client: Client) -> bytearray:
        """The answer's frame. `frame` is the request as it came, without its length."""
        if len(frame) > FORWARDED_REQUEST_BYTES_MAX:
            why = f"a request of more than {FORWARDED_REQUEST_BYTES_MAX} bytes"
            return _refusal(request, ErrorCode.invalid_request, why)
        try:
            answer = await self._channel.send(self._envelope(frame, client))
        except Unreachable as error:
            return _refusal(request, ErrorCode.not_controller, str(error))
        except OutcomeUnknown as error:
            return _refusal(request, ErrorCode.request_timed_out, str(error))
        if answer.error_code is not ErrorCode.none or not _is_answer(answer, request):
            name = apis.api_name(request.header.api_key)
            log.warning("envelope_refused", api=name, error=answer.error_code.name)
            why = "the controller does not take it from this broker"
            return _refusal(request, ErrorCode.unknown_server_error, why)
        if request.header.api_key not in _READS:
            await self._until_visible()
        return finish_frame(bytearray(_LENGTH_BYTES) + answer.response_data)

    def _envelope(self, frame: bytes, client: Client) -> ChannelRequest:
        values = {
            "request_data": frame,
            "request_principal": principal_bytes(client.principal),
            "client_host_address": address_bytes(client.address),
        }
        return ChannelRequest(
            api_key=apis.ENVELOPE,
            values=values,
            timeout_s=self._timing.request_s,
            attempt_s=self._timing.attempt_s,
        )

    async def _until_visible(self) -> None:
        """The answer came after its commit, so the high watermark now is at or behind it."""
        try:
            answer = await self._channel.send(_high_watermark(self._timing.visible_s))
        except (Unreachable, OutcomeUnknown):
            return
        for topic in answer.topics:
            for partition in topic.partitions:
                await self._cache.reached(partition.high_watermark, self._timing.visible_s)


def _high_watermark(timeout_s: float) -> ChannelRequest:
    partition = {"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
    return ChannelRequest(
        api_key=apis.DESCRIBE_QUORUM,
        values={"topics": [partition]},
        timeout_s=timeout_s,
        repeatable=True,
    )


def _is_answer(answer: Any, request: Request) -> bool:
    data = answer.response_data
    if data is None or len(data) < _LENGTH_BYTES:
        return False
    return int.from_bytes(data[:_LENGTH_BYTES], "big", signed=True) == request.header.correlation_id


def _refusal(request: Request, error_code: ErrorCode, why: str) -> bytearray:
    return request.response(error_values(request.header.api_key, request.message, error_code, why))
