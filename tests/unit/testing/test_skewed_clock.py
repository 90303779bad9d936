"""A clock that is put wrong jumps where a wall clock may, and never lets monotonic time go back."""

from pathlib import Path

import pytest

from kraftpy.clock import ManualClock
from kraftpy.testing.skewed_clock import SkewedClock, encode_skew


@pytest.fixture
def real() -> ManualClock:
    return ManualClock(now_ms=1_000_000)


def skewed(tmp_path: Path, real: ManualClock) -> tuple[SkewedClock, Path]:
    return SkewedClock(str(tmp_path / "clock"), real), tmp_path / "clock"


def write(path: Path, content: bytes) -> None:
    """In place: the clock has the file mapped."""
    with path.open("r+b") as file:
        file.write(content)


def test_a_clock_is_right_until_it_is_put_wrong(tmp_path: Path, real: ManualClock) -> None:
    clock, _ = skewed(tmp_path, real)
    real.advance(500)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000_500, 500)


def test_a_step_moves_the_wall_clock_only(tmp_path: Path, real: ManualClock) -> None:
    clock, path = skewed(tmp_path, real)
    write(path, encode_skew(-60_000, 1.0))
    real.advance(500)
    assert (clock.now_ms(), clock.monotonic_ms()) == (940_500, 500)
    write(path, encode_skew(0, 1.0))
    assert clock.now_ms() == 1_000_500


def test_a_rate_counts_from_when_it_is_seen(tmp_path: Path, real: ManualClock) -> None:
    clock, path = skewed(tmp_path, real)
    real.advance(1000)
    assert clock.monotonic_ms() == 1000
    write(path, encode_skew(0, 2.0))
    real.advance(1000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_003_000, 3000)
    write(path, encode_skew(0, 0.5))
    real.advance(1000)
    assert clock.monotonic_ms() == 3500


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_makes_no_sense_is_taken_for_one(
    tmp_path: Path, real: ManualClock, rate: float
) -> None:
    clock, path = skewed(tmp_path, real)
    write(path, encode_skew(0, rate))
    real.advance(1000)
    assert clock.monotonic_ms() == 1000
