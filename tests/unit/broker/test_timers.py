"""Deadlines fire once, never early, never when cancelled, and in order, however far away."""

import asyncio
import random

import pytest

from kraftpy.broker.timers import Deadline, Timer, TimingWheels
from kraftpy.clock import SystemClock


def run(wheels: TimingWheels, until: int, step: int) -> list[tuple[int, int]]:
    """(when it was due, when it fired) of all that fires."""
    fired = []
    for tick in range(step, until + step, step):
        due = wheels.advance(tick)
        while due:
            deadline = next(iter(due))
            deadline.cancel()
            fired.append((deadline.at_tick, tick))
    return fired


@pytest.mark.parametrize("step", [1, 7, 64, 1000])
def test_each_deadline_fires_once_and_not_early(step: int) -> None:
    rng = random.Random(step)
    wheels = TimingWheels()
    ticks = [rng.randrange(1, 4 ** rng.randrange(1, 9)) for _ in range(2000)]
    for tick in ticks:
        wheels.add(Deadline(tick, lambda: None))
    fired = run(wheels, 70_000, step)
    assert sorted(at for at, _ in fired) == sorted(ticks)
    assert all(at <= when < at + step for at, when in fired)
    assert wheels.next_tick() is None


def test_a_cancelled_deadline_does_not_fire_even_in_the_turn_in_which_it_is_due() -> None:
    wheels = TimingWheels()
    first, second = Deadline(5, lambda: None), Deadline(5, lambda: None)
    wheels.add(first)
    wheels.add(second)
    due = wheels.advance(5)
    second.cancel()
    assert list(due) == [first]
    second.cancel()  # Again changes nothing.


def test_what_is_due_already_fires_at_the_next_tick() -> None:
    wheels = TimingWheels(100)
    wheels.add(Deadline(3, lambda: None))
    assert wheels.next_tick() == 101
    assert len(wheels.advance(101)) == 1


def test_deadlines_beyond_the_last_wheel_are_kept() -> None:
    wheels = TimingWheels()
    wheels.add(Deadline(10 * 64**6, lambda: None))
    assert not wheels.advance(64**6)
    assert wheels.next_tick() is not None


def test_the_loop_is_woken_for_the_first_and_a_call_may_set_the_next() -> None:
    async def story() -> list[str]:
        said: list[str] = []
        done = asyncio.Event()
        timer = Timer(SystemClock(), asyncio.get_running_loop())

        def first() -> None:
            said.append("first")
            timer.after(0, second)

        def second() -> None:
            said.append("second")
            done.set()

        timer.after(40, lambda: said.append("late")).cancel()
        timer.after(20, first)
        await asyncio.wait_for(done.wait(), 30)
        timer.close()
        return said

    assert asyncio.run(story()) == ["first", "second"]
