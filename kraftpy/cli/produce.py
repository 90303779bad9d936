"""`kraftpy produce`: lines of a pipe, a file or a keyboard become messages.

Nothing is read faster than the cluster takes it. The exit code is 0 only if every message has been
acknowledged; the first one that was not is told with its line.
"""

import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import click
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kraftpy.cli.client import Connection, Refused, assignments, client_options
from kraftpy.cli.messages import TextMessage, from_json, from_line, numbered
from kraftpy.cli.undelivered import why_not
from kraftpy.errors import ConfigError

_POLL_S: Final = 0.1
_DELIVERY_TIMEOUT_MS: Final = 1000


class Delivery:
    """What became of the messages so far."""

    def __init__(self, *, verbose: bool) -> None:
        self.acknowledged = 0
        self.failed: tuple[int, int | None, KafkaError] | None = None
        self._verbose = verbose

    def of(self, number: int) -> Any:
        """A callback for the message of one line."""

        def done(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed = self.failed or (number, message.partition(), error)
                return
            self.acknowledged += 1
            if self._verbose:
                click.echo(f"{message.topic()}-{message.partition()} offset {message.offset()}")

        return done


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key-separator", "-K", metavar="TEXT", help="A line is KEY, this, VALUE.")
@click.option("--key", "-k", metavar="TEXT", help="The key of every message.")
@click.option("--header", "-H", "headers", multiple=True, metavar="KEY=VALUE")
@click.option("--partition", "-p", type=click.IntRange(0), help="Default: by the key's hash.")
@click.option("--timestamp", type=click.IntRange(0), metavar="MS", help="Default: now.")
@click.option("--json", "as_json", is_flag=True, help="Lines are JSON, as `consume --json` writes.")
@click.option("--null", "empty_is_null", is_flag=True, help="What is empty is not there.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option("--verbose", "-v", is_flag=True, help="Print partition and offset of each message.")
@client_options
def produce(connection: Connection, topic: str, file: BinaryIO, **options: Any) -> None:
    """Send each line of FILE, or of the input, as a message to TOPIC."""
    if options["as_json"] and (options["key_separator"] is not None or options["empty_is_null"]):
        raise ConfigError(
            "--json lines have their keys and nulls: leave --key-separator and --null"
        )
    delivery = Delivery(verbose=options["verbose"])
    producer = connection.producer(
        acks=options["acks"],
        compression_type=options["compression"],
        message_timeout_ms=int(connection.timeout_s * _DELIVERY_TIMEOUT_MS),
    )
    headers = list(assignments(options["headers"], "--header").items())
    for number, message in _messages(file, options):
        try:
            _send(producer, topic, message, headers, options, delivery.of(number))
        except KafkaException as refusal:
            raise Refused(f"line {number}: {connection.refused(refusal.args[0])}") from None
        if delivery.failed is not None:
            break
    producer.flush()
    if delivery.failed is not None:
        number, partition, error = delivery.failed
        why = why_not(connection, producer, topic, partition, error)
        raise Refused(f"line {number} was not acknowledged: {why}")
    if sys.stderr.isatty():
        click.echo(f"{delivery.acknowledged} messages acknowledged", err=True)


def _messages(file: BinaryIO, options: dict[str, Any]) -> Iterator[tuple[int, TextMessage]]:
    separator = options["key_separator"]
    for number, line in numbered(iter(file)):
        try:
            if options["as_json"]:
                if line.strip():
                    yield number, from_json(line.decode())
                continue
            data = None if separator is None else separator.encode()
            yield number, from_line(line, data, empty_is_null=options["empty_is_null"])
        except ValueError as error:
            raise ConfigError(f"line {number}: {error}") from None


def _send(
    producer: Producer,
    topic: str,
    message: TextMessage,
    headers: list[tuple[str, Any]],
    options: dict[str, Any],
    done: Any,
) -> None:
    key = message.key
    if key is None and options["key"] is not None:
        key = options["key"].encode()
    partition = message.partition if options["partition"] is None else options["partition"]
    timestamp = message.timestamp_ms if options["timestamp"] is None else options["timestamp"]
    named = {
        "key": key,
        "value": message.value,
        "headers": [*message.headers, *headers],
        "on_delivery": done,
        "partition": partition,
    }
    if timestamp >= 0:
        named["timestamp"] = timestamp
    while True:
        try:
            producer.produce(topic, **named)
            break
        except BufferError:  # The cluster is slower than the input: wait for it.
            producer.poll(_POLL_S)
    producer.poll(0)
