"""What the tests of Produce and Fetch share: frames as the codec writes them, and damaged ones."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

from kraftpy.errors import WireError
from kraftpy.wire.apis import request_type
from kraftpy.wire.headers import request_frame
from kraftpy.wire.hot import CurrentLeader, NodeEndpoint
from tests.unit.wire.fuzz import mutated
from tests.unit.wire.messages import random_message

CORRELATION_ID = 77
CLIENT_ID = "cliént"
EXAMPLES = settings(max_examples=40, deadline=None)


def frame_of(message: Any, api_key: int, version: int) -> memoryview:
    """A frame in the middle of a larger buffer, as it lies in a receive buffer."""
    data = request_frame(message, api_key, version, CORRELATION_ID, CLIENT_ID)[4:]
    buffer = bytearray(b"\xff" * 7 + data + b"\xff" * 9)
    return memoryview(buffer)[7 : 7 + len(data)]


def random_frame(api_key: int, version: int, rng: random.Random) -> tuple[Any, memoryview]:
    message = random_message(request_type(api_key, version), rng)
    return message, frame_of(message, api_key, version)


def random_leader(rng: random.Random) -> CurrentLeader | None:
    if rng.random() < 0.5:
        return None
    node_id = rng.randrange(3)
    rack = rng.choice([None, "", "räck"])
    endpoint = NodeEndpoint(node_id, "höst" * rng.choice([0, 1, 50]), 9092, rack)
    return CurrentLeader(node_id, rng.randrange(100), rng.choice([None, endpoint]))


def endpoints_of(leaders: list[CurrentLeader | None]) -> list[dict[str, Any]]:
    found = {each.endpoint: None for each in leaders if each is not None and each.endpoint}
    return [each._asdict() for each in found]


def refused_at_every_length(read: Callable[[memoryview], Any], frame: memoryview) -> None:
    for end in range(min(len(frame), 600)):
        with pytest.raises(WireError):
            read(frame[:end])


def survives_damage(
    read: Callable[[memoryview], Any],
    same: Callable[[memoryview], Any],
    frame: memoryview,
    rng: random.Random,
) -> tuple[int, int]:
    """Damaged frames are read as the codec reads them, or refused as it does: how many of each."""
    counts = [0, 0]
    for _ in range(50):
        damaged = mutated(bytes(frame[4:]), rng)
        data = memoryview(bytearray(bytes(frame[:4]) + damaged))
        try:
            found = read(data)
        except WireError:
            with pytest.raises(WireError):
                same(data)
            counts[1] += 1
            continue
        counts[0] += 1
        assert found == same(data)
    return counts[0], counts[1]
