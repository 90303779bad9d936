"""A bar on stderr for work that takes a while; nothing, where nobody would see it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(
    total: int, *, enabled: bool = True, what: str = ""
) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how much is done by now."""
    if not enabled or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
