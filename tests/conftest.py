"""For every test: events are written as if nobody had configured them."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _events_as_usual() -> Iterator[None]:
    """A command that ran in this process may have left a level that drops what others look for."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
