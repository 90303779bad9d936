"""Imports for a process that should be there soon.

Two libraries import others only because they are installed: kio offers strategies to hypothesis,
and structlog prints tracebacks with rich. No node needs either, and together they take longer than
all of asyncio. Looking for garbage while thousands of classes are made is also time for nothing.

Everything is as before when the block ends, so that whoever imports those libraries later has them.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lean_imports() -> Iterator[None]:
    """In the block, imports do only what nodes need."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with _hidden("rich"):
            import structlog  # noqa: F401
        with _hidden("hypothesis"):
            yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Whoever imports it in here finds that it is not installed; unless somebody did before."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules.pop(name, None)
