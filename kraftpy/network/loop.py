"""The event loop of a node: uvloop's, or Python's own where that is not installed."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

# Objects made, and not gone by themselves, before Python looks for cycles among them. Requests make
# many that soon go by themselves: with Python's 700, a third of the time of a small Produce went
# into looking. Cycles are rare here, and small.
OBJECTS_BEFORE_COLLECTION: Final = (50_000, 20, 50)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop for `asyncio.Runner(loop_factory=...)`."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, in a process that serves requests."""
    gc.set_threshold(*OBJECTS_BEFORE_COLLECTION)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
