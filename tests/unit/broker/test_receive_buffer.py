"""Requests come out of the buffer whole, wherever reads cut them; memory is given out in order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.broker.receive_buffer import ReceiveBuffer
from kraftpy.broker.request_memory import RequestMemory
from kraftpy.errors import WireError


@settings(deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 100, 4000, 70_000]), max_size=8),
    cuts=st.lists(st.sampled_from([3, 50, 999, 100_000]), min_size=1),
    capacity=st.sampled_from([8, 64, 5000]),
)
def test_frames_come_out_whole(sizes: list[int], cuts: list[int], capacity: int) -> None:
    frames = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    buffer = ReceiveBuffer(200_000)
    buffer.resize(capacity)
    found = []
    at = turn = 0
    while at < len(stream):
        room = buffer.room()
        assert len(room) > 0
        count = min(cuts[turn % len(cuts)], len(room), len(stream) - at)
        turn += 1
        room[:count] = stream[at : at + count]
        at += count
        buffer.received(count)
        while (frame := buffer.next_frame()) is not None:
            found.append(bytes(frame))
        if not buffer.make_room():
            buffer.resize(buffer.wanted)
    assert found == frames
    assert len(buffer) == 0


@pytest.mark.parametrize("length", [-1, 5001, 2**31 - 1, -(2**31)])
def test_a_length_beyond_the_limit_is_refused_before_anything_follows(length: int) -> None:
    buffer = ReceiveBuffer(5000)
    buffer.resize(10)
    buffer.room()[:4] = length.to_bytes(4, "big", signed=True)
    buffer.received(4)
    with pytest.raises(WireError, match="at most 5000"):
        buffer.next_frame()


def test_a_large_request_is_received_to_its_end_and_no_further() -> None:
    buffer = ReceiveBuffer(200_000)
    buffer.resize(200_004)
    buffer.room()[:4] = (100_000).to_bytes(4, "big")
    buffer.received(4)
    assert buffer.next_frame() is None
    assert buffer.make_room()
    assert len(buffer.room()) == 100_000


def test_memory_is_given_in_the_order_in_which_it_was_asked_for() -> None:
    memory = RequestMemory(100)
    given: list[str] = []
    waits = {name: (lambda name=name: given.append(name)) for name in "abcd"}
    assert memory.take(60, waits["a"])
    assert memory.try_take(40)
    assert not memory.take(50, waits["b"])
    assert not memory.take(1, waits["c"])  # It would fit sooner, but is not the first.
    assert not memory.take(30, waits["d"])
    assert not memory.try_take(0)
    memory.give_back(40)
    assert given == []
    memory.give_back(60)
    assert (given, memory.held, memory.is_wanted) == (["b", "c", "d"], 81, False)


def test_whoever_gives_up_lets_the_next_one_through() -> None:
    memory = RequestMemory(100)
    given: list[str] = []

    def large() -> None:
        given.append("large")

    def small() -> None:
        given.append("small")

    assert memory.take(60, large)
    assert not memory.take(90, large)
    assert not memory.take(30, small)
    memory.give_up(large)
    assert (given, memory.held) == (["small"], 90)


def test_a_request_larger_than_everything_gets_through_alone() -> None:
    memory = RequestMemory(100)
    given: list[int] = []
    assert memory.take(500, lambda: None)
    assert not memory.take(1, lambda: given.append(1))
    memory.give_back(500)
    assert given == [1]
