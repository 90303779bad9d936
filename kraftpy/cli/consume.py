"""`kraftpy consume`: messages of a topic, in the form that the next program wants.

Without --group it reads the partitions by itself and leaves no trace; with one it joins, and
commits what it has written to the output. It ends after --count messages, at the end of the
partitions with --exit, or when interrupted.
"""

import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import click
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from kraftpy.cli.client import Connection, Refused, client_options
from kraftpy.cli.messages import TextMessage, template, to_json
from kraftpy.errors import ConfigError

_POLL_S: Final = 0.2
_BATCH: Final = 500
_NO_GROUP: Final = "kraftpy-cli"  # librdkafka wants one, also where nobody joins it.


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    default="end",
    show_default=True,
    metavar="WHERE",
    help="beginning, end, an offset, -N (the last N), or @ and a time: ms, or ISO 8601.",
)
@click.option("--partition", "-p", "partitions", type=click.IntRange(0), multiple=True)
@click.option("--count", "-n", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--exit", "-e", "until_end", is_flag=True, help="Stop at the end of all partitions.")
@click.option("--format", "-f", "form", default="%v\\n", metavar="TEMPLATE", help="See below.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--group", "-g", metavar="ID", help="Join a consumer group, and commit.")
@client_options
def consume(connection: Connection, topic: str, form: str, as_json: bool, **options: Any) -> None:
    """Write the messages of TOPIC to the output.

    A template has %t topic, %p partition, %o offset, %T timestamp, %k key, %v value, %h headers,
    %K and %S the lengths of key and value, and \\n, \\t; the default is '%v\\n'.
    """
    start, group = parse_start(options["start"]), options["group"]
    if group is not None and options["partitions"]:
        raise ConfigError("a group shares the partitions out by itself: leave --partition")
    write: Callable[[TextMessage], bytes] = _json_line if as_json else template(form)
    consumer = connection.consumer(
        group_id=group or _NO_GROUP,
        enable_auto_commit=False,
        enable_partition_eof=True,
        auto_offset_reset="earliest" if start == OFFSET_BEGINNING else "latest",
    )
    out = sys.stdout.buffer
    try:
        if group is not None:
            consumer.subscribe([topic])
        else:
            consumer.assign(_places(connection, consumer, topic, start, options["partitions"]))
        for messages in _chunks(connection, consumer, options["count"], options["until_end"]):
            for message in messages:
                out.write(write(_text_message(message)))
            out.flush()
            if group is not None:  # What is written is done, and nothing else is.
                consumer.commit(offsets=_behind(messages), asynchronous=False)
    finally:
        consumer.close()


def _json_line(message: TextMessage) -> bytes:
    return json.dumps(to_json(message), ensure_ascii=False).encode() + b"\n"


def _chunks(
    connection: Connection, consumer: Consumer, count: int | None, until_end: bool
) -> Iterator[list[Message]]:
    """Messages as they come, until there are enough or all partitions have been read."""
    at_end: set[tuple[str | None, int | None]] = set()
    left = count
    while left is None or left > 0:
        wanted = _BATCH if left is None else min(left, _BATCH)
        found = []
        for message in consumer.consume(wanted, _POLL_S):
            error = message.error()
            where = message.topic(), message.partition()
            if error is None:
                at_end.discard(where)
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(where)
            elif error.fatal() or not error.retriable():
                raise connection.refused(error)
        if found:
            left = None if left is None else left - len(found)
            yield found
        assigned = {(each.topic, each.partition) for each in consumer.assignment()}
        if until_end and assigned and assigned <= at_end:
            return


def _behind(messages: list[Message]) -> list[TopicPartition]:
    """Where each partition goes on."""
    last: dict[tuple[Any, Any], int] = {}
    for message in messages:
        last[message.topic(), message.partition()] = (message.offset() or 0) + 1
    return [TopicPartition(topic, index, offset) for (topic, index), offset in last.items()]


def _text_message(message: Message) -> TextMessage:
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers() or ()
    return TextMessage(
        topic=message.topic() or "",
        partition=_known(message.partition()),
        offset=_known(message.offset()),
        timestamp_ms=timestamp_ms if kind else -1,
        key=_as_bytes(message.key()),
        value=_as_bytes(message.value()),
        headers=tuple(headers),
    )


def _known(number: int | None) -> int:
    return -1 if number is None else number


def _as_bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


# -- where to begin -----------------------------------------------------------------------------

Start = int | datetime | tuple[str, int]


def _places(
    connection: Connection, consumer: Consumer, topic: str, start: Start, wanted: tuple[int, ...]
) -> list[TopicPartition]:
    found = consumer.list_topics(topic, timeout=connection.timeout_s).topics[topic]
    if found.error is not None:
        missing = found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        raise Refused(f"there is no topic {topic}") if missing else connection.refused(found.error)
    for each in wanted:
        if each not in found.partitions:
            raise Refused(
                f"{topic} has the partitions 0 to {len(found.partitions) - 1}, not {each}"
            )
    places = [TopicPartition(topic, each) for each in sorted(set(wanted) or found.partitions)]
    if isinstance(start, datetime):
        for place in places:
            place.offset = int(start.timestamp() * 1000)
        return consumer.offsets_for_times(places, timeout=connection.timeout_s)
    for place in places:
        if isinstance(start, tuple):
            low, high = consumer.get_watermark_offsets(place, timeout=connection.timeout_s)
            place.offset = max(high - start[1], low)
        else:
            place.offset = start
    return places


def parse_start(text: str) -> Start:
    """An offset, a time, or how many from the end; ConfigError for anything else."""
    if text in ("beginning", "start", "earliest"):
        return OFFSET_BEGINNING
    if text in ("end", "latest"):
        return OFFSET_END
    if text.startswith("@"):
        return _time(text[1:])
    if text.startswith("-") and text[1:].isdecimal():
        return "last", int(text[1:])
    if text.isdecimal():
        return int(text)
    raise ConfigError(f"--from: expected beginning, end, an offset, -N or @time, not {text!r}")


def _time(text: str) -> datetime:
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"--from: {text!r} is neither milliseconds nor ISO 8601") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
