"""Produce, v3 to v13: requests read in place, answers written at once. Pure.

The records of a request are views of the frame they came in, and writable where it is: offsets are
stamped into the bytes that came from the socket, and those go to the disk. They are gone when the
frame's buffer is used again.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kraftpy.limits import PRODUCE_SHAPES_MAX
from kraftpy.types import TopicId, Uuid
from kraftpy.wire import hot
from kraftpy.wire.generated import MALFORMED
from kraftpy.wire.hot import CurrentLeader

PRODUCE: Final = 0

_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_ERRORS: Final = 8
_FIRST_FLEXIBLE: Final = 9
_FIRST_WITH_LEADERS: Final = 10
_FIRST_WITH_TOPIC_IDS: Final = 13

_ACKS: Final = struct.Struct(">hi")
# Index, error, base offset, append time, and since v5 log start offset.
_RESULT: Final = struct.Struct(">ihqqq")
_OLD_RESULT: Final = struct.Struct(">ihqq")
_NO_THROTTLE: Final = bytes(4)
_NO_TAGS: Final = bytes(3)  # Behind the partition, the topic and the request.
_CLIENT_ID_AT: Final = 8
_PLAIN: Final = ((), None, None)  # The end of a ProduceResult that is like most.


@dataclass(slots=True)  # Not frozen: that would double the time it takes to make one.
class ProducePartition:
    """Batches for one partition, named by its topic's name or, since v13, by its id."""

    topic: str | None
    topic_id: TopicId | None
    index: int
    records: memoryview | None


class ProduceRequest(NamedTuple):
    """One request. `topics` is how the answer names them: bytes, and how many partitions.

    `shape` is what it shares with others of its connection, if it is of the usual kind.
    """

    version: int
    correlation_id: int
    client_id: str | None
    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[ProducePartition]
    topics: list[tuple[bytes, int]]
    shape: "_Shape | None" = None


class RecordError(NamedTuple):
    """A record that is why its batch was refused (KIP-467)."""

    batch_index: int
    message: str | None = None


class ProduceResult(NamedTuple):
    """What became of one partition's batches. -1: not known, or not so."""

    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    leader: CurrentLeader | None = None


def read_produce(frame: memoryview) -> ProduceRequest:
    """A request in a version that is served; WireError if it is not one."""
    return _read_and_place(frame)[0]


def _read_and_place(frame: memoryview) -> tuple[ProduceRequest, "_Places"]:
    try:
        return _read(frame)
    except MALFORMED as error:
        raise hot.malformed("ProduceRequest", error) from None


class ProduceReader:
    """Reads the requests of one connection, which are much alike.

    Most name one partition, and up to the length of their records they are, but for their number,
    byte for byte what an earlier one was: then it is known what those bytes say, and how the answer
    begins and ends. It is what `read_produce` gives, at a third of the cost.
    """

    __slots__ = ("_length", "_shapes")

    def __init__(self) -> None:
        self._length = 0  # Of what the last one had before its records.
        self._shapes: dict[bytes, _Shape] = {}

    def read(self, frame: memoryview) -> ProduceRequest:
        """As `read_produce`."""
        length = self._length
        shape = self._shapes.get(bytes(frame[_CLIENT_ID_AT:length]))
        if shape is not None:
            try:
                found = shape.read(frame, length)
            except MALFORMED as error:
                raise hot.malformed("ProduceRequest", error) from None
            if found is not None:
                return found
        request, places = _read_and_place(frame)
        if len(places) == 1:
            self._learn(frame, request, *places[0])
        return request

    def _learn(self, frame: memoryview, request: ProduceRequest, length: int, end: int) -> None:
        """Remember a request to one partition whose records, with their length, lie there."""
        tail = _NO_TAGS if request.version >= _FIRST_FLEXIBLE else b""
        if frame[end:] != tail:
            return  # It is right, if unusual.
        if len(self._shapes) >= PRODUCE_SHAPES_MAX:
            self._shapes.clear()
        self._length = length
        self._shapes[bytes(frame[_CLIENT_ID_AT:length])] = _Shape(request)


class _Shape:
    """A request to one partition without its number and its records; and what answers share."""

    __slots__ = ("_flexible", "_request", "answer_head", "answer_tail", "version")

    def __init__(self, request: ProduceRequest) -> None:
        self._request = request._replace(
            partitions=[replace(request.partitions[0], records=None)], shape=self
        )
        self.version = version = request.version
        self._flexible = version >= _FIRST_FLEXIBLE
        answer = produce_response(request, [ProduceResult()])
        head = answer.index(_fixed_part(version, request.partitions[0].index, ProduceResult()))
        self.answer_head = answer[hot.RESPONSE_HEAD.size : head + 4]  # With the partition's index.
        fixed = _RESULT if version >= _FIRST_WITH_LOG_START else _OLD_RESULT
        self.answer_tail = answer[head + fixed.size :]

    def read(self, frame: memoryview, at: int) -> ProduceRequest | None:
        """The request whose records begin, with their length, at `at`; None if it is unusual."""
        _, version, number, _ = hot.HEAD.unpack_from(frame)
        if version != self.version:
            return None
        if self._flexible:
            size, at = hot.FLEXIBLE.size(frame, at)
            end = at + size
            if frame[end:] != _NO_TAGS:
                return None
        else:
            size, at = hot.PLAIN.size(frame, at)
            end = at + size
            if end != len(frame):
                return None
        if size < 0:
            return None  # No records at all.
        _, _, client_id, transactional_id, acks, timeout_ms, (like,), topics, _ = self._request
        records = ProducePartition(like.topic, like.topic_id, like.index, frame[at:end])
        return ProduceRequest(
            version,
            number,
            client_id,
            transactional_id,
            acks,
            timeout_ms,
            [records],
            topics,
            self,
        )


# Where the length of each partition's records is, and where they end.
_Places = list[tuple[int, int]]


def _read(frame: memoryview) -> tuple[ProduceRequest, _Places]:
    _, version, correlation_id, length = hot.HEAD.unpack_from(frame)
    client_id, at = hot.text(frame, hot.HEAD.size, length)
    reading = hot.FLEXIBLE if version >= _FIRST_FLEXIBLE else hot.PLAIN
    at = reading.skip_tags(frame, at)
    length, at = reading.text(frame, at)
    transactional_id, at = hot.text(frame, at, length)
    acks, timeout_ms = _ACKS.unpack_from(frame, at)
    budget = hot.Budget()
    count, at = budget.array(frame, at + _ACKS.size, reading.size)
    partitions: list[ProducePartition] = []
    topics = []
    places: _Places = []
    for _ in range(count):
        before = len(partitions)
        if version >= _FIRST_WITH_TOPIC_IDS:
            end = hot.end_of(frame, at, hot.UUID_BYTES)
            key = bytes(frame[at:end])
            named: _Named = (None, TopicId(Uuid(key)))
        else:
            length, start = reading.text(frame, at)
            end = hot.end_of(frame, start, length)
            key = bytes(frame[at:end])
            named = (str(frame[start:end], "utf-8"), None)
        at = _read_partitions(frame, end, reading, budget, named, partitions, places)
        topics.append((key, len(partitions) - before))
    reading.skip_tags(frame, at)  # What follows it is not looked at, as in Kafka.
    head = (version, correlation_id, client_id, transactional_id, acks, timeout_ms)
    return ProduceRequest(*head, partitions, topics), places


_Named = tuple[str | None, TopicId | None]


def _read_partitions(
    frame: memoryview,
    at: int,
    reading: hot.Reading,
    budget: hot.Budget,
    named: _Named,
    partitions: list[ProducePartition],
    places: _Places,
) -> int:
    """The partitions of one topic, and where it ends."""
    topic, topic_id = named
    count, at = budget.array(frame, at, reading.size)
    for _ in range(count):
        (index,) = hot.INT32.unpack_from(frame, at)
        place = at + 4
        length, at = reading.size(frame, place)
        records = None
        if length >= 0:
            end = hot.end_of(frame, at, length)
            records = frame[at:end]
            at = end
        places.append((place, at))
        at = reading.skip_tags(frame, at)
        partitions.append(ProducePartition(topic, topic_id, index, records))
    return reading.skip_tags(frame, at)


def produce_response(
    request: ProduceRequest, results: Sequence[ProduceResult], throttle_ms: int = 0
) -> bytes:
    """The answer's frame; one result per partition, in the order of the request."""
    assert len(results) == len(request.partitions)
    version = request.version
    shape = request.shape
    if shape is not None and results[0][4:] == _PLAIN and not throttle_ms:
        fixed = _fixed_part(version, 0, results[0])[4:]
        size = len(shape.answer_head) + len(fixed) + len(shape.answer_tail) + 4
        head = hot.RESPONSE_HEAD.pack(size, request.correlation_id)
        return b"".join((head, shape.answer_head, fixed, shape.answer_tail))
    flexible = version >= _FIRST_FLEXIBLE
    out = [b"\0" if flexible else b"", hot.array_head(len(request.topics), flexible=flexible)]
    at = 0
    for key, count in request.topics:
        out += (key, hot.array_head(count, flexible=flexible))
        for number in range(at, at + count):
            result = results[number]
            out.append(_fixed_part(version, request.partitions[number].index, result))
            if version >= _FIRST_WITH_ERRORS:
                out.append(_details(version, result))
        if flexible:
            out.append(b"\0")
        at += count
    out.append(hot.INT32.pack(throttle_ms) if throttle_ms else _NO_THROTTLE)
    if flexible:
        out.append(_last_tags(version, results))
    body = b"".join(out)
    return hot.RESPONSE_HEAD.pack(len(body) + 4, request.correlation_id) + body


def _fixed_part(version: int, index: int, result: ProduceResult) -> bytes:
    error_code, base_offset, append_time_ms, log_start_offset, _, _, _ = result
    if version < _FIRST_WITH_LOG_START:
        return _OLD_RESULT.pack(index, error_code, base_offset, append_time_ms)
    return _RESULT.pack(index, error_code, base_offset, append_time_ms, log_start_offset)


def _details(version: int, result: ProduceResult) -> bytes:
    """What is behind the numbers; nearly always nothing."""
    flexible = version >= _FIRST_FLEXIBLE
    if not (result.record_errors or result.error_message is not None or result.leader):
        return b"\x01\0\0" if flexible else b"\0\0\0\0\xff\xff"
    out = [hot.array_head(len(result.record_errors), flexible=flexible)]
    for each in result.record_errors:
        out += (
            hot.INT32.pack(each.batch_index),
            hot.text_bytes(each.message, flexible=flexible),
            b"\0" if flexible else b"",
        )
    out.append(hot.text_bytes(result.error_message, flexible=flexible))
    if flexible:
        leader = result.leader if version >= _FIRST_WITH_LEADERS else None
        out.append(hot.tags_bytes([(0, hot.leader_bytes(leader))] if leader else []))
    return b"".join(out)


def _last_tags(version: int, results: Sequence[ProduceResult]) -> bytes:
    if version < _FIRST_WITH_LEADERS:
        return b"\0"
    return hot.tags_bytes(hot.endpoints_tag(result.leader for result in results))
