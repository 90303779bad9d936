"""The event loop of a node: uvloop's, or Python's own where that is not installed."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop for `asyncio.Runner(loop_factory=...)`."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
