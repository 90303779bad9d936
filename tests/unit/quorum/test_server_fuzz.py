"""A live controller listener under random frames: it goes on serving, and lets nobody pile up."""

import random
import socket
import struct
from dataclasses import replace
from datetime import timedelta

from kraftpy.wire import apis
from kraftpy.wire.codec import encode
from kraftpy.wire.headers import request_frame
from tests.unit.quorum.served import Served, fetch_request, partition_of, wait_until
from tests.unit.wire.fuzz import mutated, served_types
from tests.unit.wire.messages import random_message

CONNECTIONS = 600


def test_random_frames_close_their_connection_at_most() -> None:
    rng = random.Random(8)
    types = served_types()
    with Served(1) as served:
        served.cluster.commit(3)
        server = served.servers[1].server
        for _ in range(CONNECTIONS):
            with served.connect() as sock:
                for _ in range(rng.randrange(1, 4)):
                    send(sock, noise(rng, types))
        assert partition_of(served.ask(apis.FETCH, fetch_request(), 12)).records
        wait_until(lambda: server.connection_count == 0)
        assert server.counts["malformed"] > CONNECTIONS / 3
        assert server.counts["failed"] == 0
        assert server.counts["adopted"] == len(served.peers)
        assert not served.views[1]._waiting


def test_requests_with_any_values_are_answered_or_refused() -> None:
    """Well-formed, and senseless: every number and name is random."""
    rng = random.Random(9)
    with Served(1) as served:
        served.cluster.commit(3)
        server = served.servers[1].server
        for key, version, entity in served_types() * 20:
            message = random_message(entity, rng)
            if key == apis.FETCH:
                message = replace(message, max_wait=timedelta(0))
            with served.connect() as sock:
                sock.sendall(request_frame(message, key, version, 5, "x"))
                size, number = struct.unpack(">ii", exactly(sock, 8))
                assert number == 5
                exactly(sock, size - 4)
        assert server.counts["failed"] == 0
        assert server.counts["malformed"] == 0


def noise(rng: random.Random, types: list[tuple[int, int, type]]) -> bytes:
    key, version, entity = rng.choice(types)
    kind = rng.random()
    if kind < 0.2:
        return rng.randbytes(rng.randrange(1, 100))
    if kind < 0.6:
        body = mutated(bytes(encode(random_message(entity, rng, 2))), rng)
        head = struct.pack(">hhi", key, version, 1) + b"\0\1x\0"
        return struct.pack(">i", len(head) + len(body)) + head + body
    return mutated(bytes(request_frame(random_message(entity, rng, 2), key, version, 1, "x")), rng)


def send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except ConnectionError:
        return  # It was closed already, as it should be.


def exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        assert more, "closed instead of answered"
        data += more
    return data
