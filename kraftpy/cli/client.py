"""What the commands that are Kafka clients share: where to connect, how errors are told, output.

All of them talk through librdkafka, so they work with any Kafka cluster. An error is one line that
names the server and what it said; the exit code is 1.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kraftpy.config import BOOTSTRAP_VARIABLE
from kraftpy.errors import ConfigError, KraftError

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

DEFAULT_SERVER: Final = "localhost:9092"
_SILENT: Final = 0
# What librdkafka says when it has only given up; why, it has told the error callback before.
_VAGUE: Final = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
}
_FAILED: Final = re.compile(r"failed: ([^(]+)")
_AROUND: Final = re.compile(r"^\S+: (?=\S)| \(after .*\)$")  # Which client, which attempt.


class Refused(KraftError):
    """The cluster does not do it, or does not answer."""


@dataclass(slots=True)
class Connection:
    """Makes clients of one cluster, and remembers why they cannot reach it."""

    servers: str
    properties: Mapping[str, str]
    timeout_s: float
    complaint: str = field(default="", init=False)
    # librdkafka forgets what it was asked when the client that asked is gone.
    _made_so_far: list[Any] = field(default_factory=list, init=False)

    def _config(self, more: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "client.id": "kraftpy-cli",
            "log_level": _SILENT,
            "error_cb": self._complain,
            **more,
            **self.properties,
        }

    def _complain(self, error: KafkaError) -> None:
        if error.code() == KafkaError._TRANSPORT or not self.complaint:
            found = _FAILED.search(error.str())
            self.complaint = found[1].strip() if found else _AROUND.sub("", error.str())

    def admin(self) -> AdminClient:
        return self._made(AdminClient, {})

    def producer(self, **config: Any) -> Producer:
        return self._made(Producer, _dotted(config))

    def consumer(self, **config: Any) -> Consumer:
        return self._made(Consumer, _dotted(config))

    def _made(self, kind: Callable[[dict[str, Any]], T], config: Mapping[str, Any]) -> T:
        try:
            made = kind(self._config(config))
        except KafkaException as error:
            raise ConfigError(_text(error)) from None
        self._made_so_far.append(made)
        return made

    @contextmanager
    def asking(self) -> Iterator[None]:
        """What librdkafka raises in here is one line."""
        try:
            yield
        except KafkaException as error:
            raise self.refused(error.args[0]) from None

    def refused(self, error: Any) -> Refused:
        """The line for an error of librdkafka's."""
        if isinstance(error, KafkaError) and error.code() in _VAGUE:
            for client in self._made_so_far:
                if not isinstance(client, Consumer):
                    client.poll(0)  # It may not have been able to complain yet.
            why = self.complaint or f"no answer within {self.timeout_s:g} s"
            return Refused(f"{self.servers} cannot be reached: {why}")
        return Refused(error.str() if isinstance(error, KafkaError) else str(error))

    def result(self, future: "Future[Any]") -> Any:
        """What became of one request."""
        try:
            return future.result(self.timeout_s)
        except KafkaException as error:
            raise self.refused(error.args[0]) from None
        except TimeoutError:
            raise self.refused(KafkaError(KafkaError._TIMED_OUT)) from None

    def results(
        self, futures: "Mapping[Any, Future[Any]]", done: str | None = None
    ) -> dict[Any, Any]:
        """All results; Refused tells of every part that failed, `done` of each that did not."""
        found, failed = {}, []
        for name, future in futures.items():
            try:
                found[name] = self.result(future)
            except Refused as error:
                failed.append((name, error))
            else:
                if done is not None:
                    click.echo(f"{done} {_name(name)}")
        if failed:
            raise Refused("; ".join(f"{_name(name)}: {error}" for name, error in failed))
        return found


def _name(name: Any) -> str:
    return getattr(name, "name", None) or str(name)


def _dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "."): value for key, value in config.items()}


def _text(error: KafkaException) -> str:
    first = error.args[0]
    return first.str() if isinstance(first, KafkaError) else str(first)


# -- options ------------------------------------------------------------------------------------


def client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--bootstrap-server, -X and --timeout; the command receives a `connection`."""

    @functools.wraps(command)
    def with_connection(
        servers: str, properties: Sequence[str], timeout_s: float, **others: Any
    ) -> Any:
        connection = Connection(servers, assignments(properties, "-X"), timeout_s)
        with connection.asking():
            return command(connection=connection, **others)

    wrapped = click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0.1, 3600),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="How long the cluster may take to answer.",
    )(with_connection)
    wrapped = click.option(
        "-X",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any property of librdkafka.",
    )(wrapped)
    return click.option(
        "--bootstrap-server",
        "-b",
        "servers",
        metavar="HOST:PORT",
        default=DEFAULT_SERVER,
        show_default=True,
        envvar=BOOTSTRAP_VARIABLE,
        help="Any broker, or several with commas between them.",
    )(wrapped)


json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


def assignments(texts: Iterable[str], option: str) -> dict[str, str]:
    """KEY=VALUE, several; ConfigError for anything else."""
    found: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise ConfigError(f"{option}: expected KEY=VALUE, not {text!r}")
        if key in found:
            raise ConfigError(f"{option}: {key} is given twice")
        found[key] = value
    return found


# -- output -------------------------------------------------------------------------------------


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns of numbers go to the right. A pipe gets it unfolded, whatever its width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    listed = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        numbers = bool(listed) and all(isinstance(row[index], int | float) for row in listed)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in listed:
        table.add_row(*(Text(_cell(value)) for value in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)
    console.print(table)


def _cell(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
