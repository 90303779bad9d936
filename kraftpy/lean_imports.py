"""Imports for a process that should be there soon.

Two libraries import others only because they are installed: kio offers strategies to hypothesis,
and structlog prints tracebacks with rich. crc32c wants to know its own version, which takes a
reader of e-mail headers. No node needs any of it, and together they take longer than all of
asyncio. Looking for garbage while thousands of classes are made is also time for nothing.

Everything is as before when the block ends, so that whoever imports those libraries later has them.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType


@contextmanager
def lean_imports() -> Iterator[None]:
    """In the block, imports do only what nodes need."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with _hidden("rich"):
            import structlog  # noqa: F401
        with _replaced("importlib.metadata", _unversioned()):
            import crc32c  # noqa: F401
        with _hidden("hypothesis"):
            yield
    finally:
        if was_enabled:
            gc.enable()


def _unversioned() -> ModuleType:
    """Says of every package that nobody has asked for its version."""
    module = ModuleType("importlib.metadata")
    vars(module)["version"] = lambda _name: "unknown"
    return module


def _hidden(name: str) -> AbstractContextManager[None]:
    """Whoever imports it in here finds that it is not installed; unless somebody did before."""
    return _replaced(name, None)


@contextmanager
def _replaced(name: str, module: ModuleType | None) -> Iterator[None]:
    """Whoever imports it in here gets this one, unless somebody imported it before."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = module  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules.pop(name, None)
