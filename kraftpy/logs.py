"""How events leave the process: one line each, on stderr, as text or as JSON.

An event has a fixed name and fields: `log.info("controller_resigned", epoch=7)`. Names are an
interface, since harness and audits parse them. Text is for people:

    2026-01-31T12:00:00.000Z INFO kraftpy.quorum event=controller_resigned epoch=7

JSON carries the same fields, `event` first. Messages of libraries that use the standard library's
logging come out the same way, as event `library_message`.

An event that cannot be written is lost, and the node goes on: a log call may stand between a
write and its fsync, where an exception about a closed terminal would be taken for a disk fault.
"""

import io
import json
import logging
from collections.abc import MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from kraftpy.clock import Clock

Format = Literal["text", "json"]

_NEEDS_QUOTES: Final = frozenset(' ="\\')


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger for the module `name`; it takes up what `configure` set when it is first used."""
    return cast(FilteringBoundLogger, structlog.get_logger(module=name))


def choose_format(wanted: str, stream: TextIO) -> Format:
    """The value of `logging.format`, with `auto` decided by what `stream` is."""
    if wanted == "json" or (wanted == "auto" and not stream.isatty()):
        return "json"
    return "text"


def configure(*, log_format: Format, level: str, stream: TextIO, clock: Clock) -> None:
    """Send every event of at least `level` to `stream`."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _Timestamp(clock),
            structlog.processors.format_exc_info,
            cast(Processor, _render_json if log_format == "json" else _render_text),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, _Lossy(stream))),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_LibraryHandler()], level=threshold, force=True)


class _Lossy(io.TextIOBase):
    """The stream, except that a reader who has gone away or a full disk is not an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: it is closed.
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


class _Timestamp:
    """Stamps events with the node's own clock, so that a test or simulation decides the time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, tz=UTC)
        event["time"] = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return event


class _LibraryHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        get_logger(record.name).log(
            record.levelno,
            "library_message",
            message=record.getMessage(),
            exc_info=record.exc_info,
        )


def _render_json(_logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]) -> str:
    first = {key: event.pop(key) for key in ("event", "time", "level", "module") if key in event}
    return json.dumps({**first, **event}, default=str)


def _render_text(_logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]) -> str:
    prefix = [event.pop("time"), event.pop("level").upper(), event.pop("module", "kraftpy")]
    name = event.pop("event")
    trace = event.pop("exception", None)
    pairs = [f"{key}={_quoted(value)}" for key, value in event.items() if value is not None]
    line = " ".join([*prefix, f"event={_quoted(name)}", *pairs])
    return f"{line}\n{trace}" if trace else line


def _quoted(value: object) -> str:
    text = str(value)
    if text and text.isprintable() and not _NEEDS_QUOTES.intersection(text):
        return text
    return json.dumps(text)
