"""How a node is told to stop, and how it waits for that."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that ask for the end."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # As nohup asks.
        return (signal.SIGINT, signal.SIGTERM)
    return (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def watch_stop_signals() -> "asyncio.Queue[signal.Signals]":
    """A queue that gets every such signal; call it before anything is opened, in the event loop:
    a signal that comes half way must still close and clean up."""
    received: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, received.put_nowait, number)
    return received


async def first(*awaited: Coroutine[Any, Any, Any]) -> Any:
    """The result of whichever ends first; the others are given up."""
    tasks = [asyncio.ensure_future(each) for each in awaited]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    return done.pop().result()
