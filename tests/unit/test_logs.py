"""Events come out one per line, name first, in the form that was asked for."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from kraftpy import logs
from kraftpy.clock import ManualClock


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def configured(log_format: logs.Format, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    clock = ManualClock(now_ms=1_700_000_000_123)
    logs.configure(log_format=log_format, level=level, stream=stream, clock=clock)
    return stream


def test_text_puts_the_event_name_before_its_fields() -> None:
    stream = configured("text")
    logs.get_logger("kraftpy.quorum").info("controller_resigned", epoch=7, new_epoch=8)
    assert stream.getvalue() == (
        "2023-11-14T22:13:20.123Z INFO kraftpy.quorum event=controller_resigned "
        "epoch=7 new_epoch=8\n"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('"', '"\\""'),
        ("a\nb", '"a\\nb"'),
        ("", '""'),
    ],
)
def test_text_quotes_what_would_read_as_something_else(value: str, shown: str) -> None:
    stream = configured("text")
    logs.get_logger("x").info("named", field=value)
    assert stream.getvalue().endswith(f" field={shown}\n")


def test_json_is_one_object_per_line_with_the_event_first() -> None:
    stream = configured("json")
    logs.get_logger("kraftpy.quorum").warning("torn_tail_cut", offset=12, path="a\nb")
    assert stream.getvalue().count("\n") == 1
    assert list(json.loads(stream.getvalue()).items()) == [
        ("event", "torn_tail_cut"),
        ("time", "2023-11-14T22:13:20.123Z"),
        ("level", "warning"),
        ("module", "kraftpy.quorum"),
        ("offset", 12),
        ("path", "a\nb"),
    ]


def test_events_below_the_level_are_not_written() -> None:
    stream = configured("text", level="warning")
    logger = logs.get_logger("x")
    logger.info("quiet")
    logger.warning("loud")
    assert "quiet" not in stream.getvalue()
    assert "event=loud" in stream.getvalue()


def test_a_logger_made_before_configuration_follows_it() -> None:
    logger = logs.get_logger("early")
    stream = configured("json")
    logger.info("later")
    assert json.loads(stream.getvalue())["module"] == "early"


def test_messages_of_libraries_come_out_in_the_same_form() -> None:
    stream = configured("json")
    logging.getLogger("some.library").warning("it is %s", "late")
    event = json.loads(stream.getvalue())
    assert (event["event"], event["module"]) == ("library_message", "some.library")
    assert event["message"] == "it is late"


def test_an_exception_is_part_of_its_event() -> None:
    stream = configured("json")
    try:
        raise ValueError("why")
    except ValueError:
        logs.get_logger("x").exception("failed")
    assert "ValueError: why" in json.loads(stream.getvalue())["exception"]


class _Gone(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


@pytest.mark.parametrize("closed", [False, True])
def test_an_event_that_cannot_be_written_disturbs_nobody(closed: bool) -> None:
    stream = io.StringIO() if closed else _Gone()
    logs.configure(log_format="text", level="info", stream=stream, clock=ManualClock())
    if closed:
        stream.close()
    logs.get_logger("x").info("lost")
    logging.getLogger("some.library").warning("lost as well")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("wanted", "stream", "chosen"),
    [
        ("auto", _Terminal(), "text"),
        ("auto", io.StringIO(), "json"),
        ("text", io.StringIO(), "text"),
        ("json", _Terminal(), "json"),
    ],
)
def test_auto_is_text_only_on_a_terminal(wanted: str, stream: io.StringIO, chosen: str) -> None:
    assert logs.choose_format(wanted, stream) == chosen
