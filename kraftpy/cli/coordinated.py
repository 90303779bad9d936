"""What the coordinators of groups are asked, while they may be moving from broker to broker.

librdkafka hands on the refusal of a broker that coordinates a group no more, or not yet; here it is
asked again, until the time for it is over. Offsets are read and written by a Consumer that is no
member of the group: an AdminClient of librdkafka 2.16 that is refused offsets ends the process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kraftpy.cli.client import Connection, Refused
from kraftpy.cli.group_offsets import Place
from kraftpy.clock import SystemClock

Answers = Mapping[Any, "Future[Any]"]

_MOVING: Final = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_AGAIN_MS: Final = 100
_PLACES_AT_ONCE: Final = 10_000


def settled(
    connection: Connection, ask: Callable[[list[str]], Answers], names: Sequence[str]
) -> dict[Any, Any]:
    """What an AdminClient is told of these groups, as Connection.results gives it."""
    pauses = _pauses(connection)
    answers = dict(ask(list(names)))
    while moving := [name for name, each in answers.items() if _is_moving(connection, each)]:
        if not next(pauses, False):
            break
        answers |= ask(moving)
    return connection.results(answers)


def _pauses(connection: Connection) -> Iterator[bool]:
    """True after each pause before it is asked again, for as long as there is time."""
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + connection.timeout_s * 1000
    while clock.monotonic_ms() + _AGAIN_MS < deadline_ms:
        Event().wait(_AGAIN_MS / 1000)
        yield True


def _is_moving(connection: Connection, answer: "Future[Any]") -> bool:
    try:
        error = answer.exception(connection.timeout_s)
    except TimeoutError:
        return False
    return isinstance(error, KafkaException) and error.args[0].code() in _MOVING


def committed(connection: Connection, name: str, places: Sequence[Place]) -> dict[Place, int]:
    """The offsets that the group has, of these partitions."""
    found: list[TopicPartition] = []
    with _outsider(connection, name) as consumer:
        for start in range(0, len(places), _PLACES_AT_ONCE):
            asked = [TopicPartition(*place) for place in places[start : start + _PLACES_AT_ONCE]]
            ask = partial(consumer.committed, asked, timeout=connection.timeout_s)
            found += _insist(connection, ask)
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def commit(connection: Connection, name: str, new: Mapping[Place, int]) -> None:
    """Set offsets of a group that has no members."""
    with _outsider(connection, name) as consumer:
        asked = [TopicPartition(*place, offset) for place, offset in new.items()]
        _insist(connection, lambda: consumer.commit(offsets=asked, asynchronous=False))


@contextmanager
def _outsider(connection: Connection, name: str) -> Iterator[Consumer]:
    """Of the group by name, but no member: it subscribes to nothing."""
    consumer = connection.consumer(group_id=name, enable_auto_commit=False)
    try:
        yield consumer
    finally:
        consumer.close()


def _insist(
    connection: Connection, ask: Callable[[], Sequence[TopicPartition]]
) -> Sequence[TopicPartition]:
    """What is said of all partitions, if none of them is refused."""
    pauses = _pauses(connection)
    while True:
        try:
            return _accepted(ask())
        except KafkaException as error:
            if error.args[0].code() not in _MOVING or not next(pauses, False):
                raise


def _accepted(found: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
    for each in found:
        if each.error is not None and each.error.code() in _MOVING:
            raise KafkaException(each.error)
        if each.error is not None:
            raise Refused(f"{each.topic}-{each.partition}: {each.error.str()}")
    return found
