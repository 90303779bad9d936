"""The recorder notes what is served, and what is not; docs/clients.md names the tested versions."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.interop.client_versions import OTHERS, PYTHON
from tests.interop.clusters import wait_for
from tests.interop.recorder import Recorder, Sent
from tests.tidy.checks import pins

ROOT = Path(__file__).parents[2]
METADATA, API_VERSIONS, PRODUCE = 3, 18, 0
Answer = Callable[[int], bytes | None]


def request(key: int, version: int, correlation_id: int, rest: bytes = b"") -> bytes:
    body = struct.pack(">hhih", key, version, correlation_id, 2) + b"me" + rest
    return struct.pack(">i", len(body)) + body


def read_frame(sock: socket.socket) -> bytes:
    head = sock.recv(4, socket.MSG_WAITALL)  # Nothing at the end of the connection.
    return sock.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL) if head else b""


@contextmanager
def broker(answer: Answer) -> Iterator[int]:
    """One that takes one connection and closes it where there is no answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            sock, _ = server.accept()
            with closing(sock):
                while body := read_frame(sock):
                    said = answer(struct.unpack_from(">i", body, 4)[0])
                    if said is None:
                        return
                    sock.sendall(struct.pack(">i", len(said)) + said)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(30)


def talk(recorder: Recorder, answer: Answer, *frames: bytes, answers: int) -> None:
    with broker(answer) as port:
        front = recorder.front(port)
        with socket.create_connection(("127.0.0.1", front), 30) as sock:
            for frame in frames:
                sock.sendall(frame)
            for _ in range(answers):
                read_frame(sock)


def test_what_is_answered_was_served() -> None:
    with Recorder() as recorder:
        frames = [request(METADATA, 12, 7), request(API_VERSIONS, 0, 8)]
        talk(recorder, lambda n: struct.pack(">ih", n, 0), *frames, answers=2)
        assert recorder.served == {Sent("me", METADATA, 12), Sent("me", API_VERSIONS, 0)}
        assert recorder.refused == []
        assert recorder.of("me") == {(METADATA, 12), (API_VERSIONS, 0)}


def test_a_request_that_ends_the_connection_was_refused() -> None:
    with Recorder() as recorder:
        talk(recorder, lambda _: None, request(METADATA, 99, 7), answers=1)
        wait_for("the refusal", lambda: recorder.refused)
        assert recorder.refused == [(Sent("me", METADATA, 99), "connection closed")]
        assert recorder.served == set()


def test_an_answer_to_another_request_is_noticed() -> None:
    with Recorder() as recorder:
        talk(recorder, lambda n: struct.pack(">ih", n + 1, 0), request(METADATA, 1, 7), answers=1)
        assert recorder.refused == [(Sent("me", METADATA, 1), "answered as 8, not 7")]


def test_the_first_version_that_a_client_tries_may_be_too_new() -> None:
    with Recorder() as recorder:
        unsupported = 35
        frame = request(API_VERSIONS, 9, 1)
        talk(recorder, lambda n: struct.pack(">ih", n, unsupported), frame, answers=1)
        assert recorder.refused == []
        assert recorder.served == set()


@pytest.mark.parametrize(
    ("version", "rest"),
    [(3, b"\xff\xff\0\0"), (8, b"\0\1t\0\0"), (9, b"\0\0\0\0"), (13, b"\0\2t\0\0")],
)
def test_nothing_is_waited_for_where_no_acks_were_asked_for(version: int, rest: bytes) -> None:
    with Recorder() as recorder:
        talk(recorder, lambda _: None, request(PRODUCE, version, 1, rest), answers=0)
        wait_for("the request", lambda: recorder.served)
        assert recorder.refused == []


def test_the_page_of_clients_names_the_versions_that_are_tested() -> None:
    page = (ROOT / "docs" / "clients.md").read_text()
    locked = pins((ROOT / "requirements" / "test.lock").read_text())
    versions = {name: locked[package] for name, package in PYTHON.items()} | OTHERS
    missing = {n: v for n, v in versions.items() if f"| {n} | {v} |" not in page}
    assert missing == {}, "make clients writes docs/clients.md anew"
