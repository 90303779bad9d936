"""What the writer writes, the reader reads; what is not a history is refused by its line."""

import io
import json
from typing import Any

import pytest
from jepsen_like.history import BadHistory, Header, HistoryWriter, Op, pairs, parse_history

HEADER = Header(workload="log", nemesis=("kill",), seed=3, clients=2, nodes={"b101": "h:1"})


def written(*lines: tuple[int, int | str, str, str, Any]) -> str:
    file = io.StringIO()
    writer = HistoryWriter(file, HEADER, start_ns=100)
    for now, process, kind, what, fields in lines:
        writer.write(now, process, kind, what, **fields)  # type: ignore[arg-type]
    return file.getvalue()


SEND = (110, 0, "invoke", "send", {"k": "t-0", "v": 5})
SENT = (120, 0, "ok", "send", {"k": "t-0", "v": 5, "off": 0, "lepoch": 2, "node": "b101"})


def test_what_is_written_is_read_again() -> None:
    history = parse_history(io.StringIO(written(SEND, SENT)))
    assert history.header == HEADER
    assert history.ops == [
        Op(0, 10, 0, "invoke", "send", k="t-0", v=5),
        Op(1, 20, 0, "ok", "send", k="t-0", v=5, off=0, lepoch=2, node="b101"),
    ]


def test_time_never_falls_even_if_a_thread_read_it_early() -> None:
    late = (115, 1, "invoke", "send", {"k": "t-0", "v": 6})
    ops = parse_history(io.StringIO(written(SEND, SENT, late))).ops
    assert [op.t for op in ops] == [10, 20, 20]


def test_a_last_line_that_was_cut_short_is_left_out() -> None:
    text = written(SEND, SENT)
    assert len(parse_history(io.StringIO(text[:-9])).ops) == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"type": "maybe"}, "line 2: type 'maybe'"),
        ({"i": 4}, "line 2: i is 4, not 0"),
        ({"t": -1}, "time goes back"),
        ({"f": None, "p": None, "t": "x"}, "line 2"),
    ],
)
def test_a_line_that_is_not_an_operation_is_refused(
    change: dict[str, object], complaint: str
) -> None:
    first, second = written(SEND).splitlines()
    line = json.dumps({**json.loads(second), **change})
    with pytest.raises(BadHistory, match=complaint):
        parse_history([first + "\n", line + "\n"])


@pytest.mark.parametrize("text", ["", "[]\n", "{}\n", '{"format": 2, "workload": "log"}\n', "{\n"])
def test_a_file_without_a_header_is_refused(text: str) -> None:
    with pytest.raises(BadHistory, match="line 1"):
        parse_history(io.StringIO(text))


def test_each_beginning_is_given_its_end() -> None:
    other = (125, 1, "invoke", "poll", {"k": "t-0", "off": 0})
    fault = (126, "nemesis", "ok", "kill", {"v": {"fault": 1}})
    ops = parse_history(io.StringIO(written(SEND, other, fault, SENT))).ops
    assert list(pairs(ops)) == [(ops[0], ops[3]), (ops[1], None)]


def test_an_end_without_a_beginning_is_refused() -> None:
    with pytest.raises(BadHistory, match="did not begin"):
        list(pairs(parse_history(io.StringIO(written(SENT))).ops))
