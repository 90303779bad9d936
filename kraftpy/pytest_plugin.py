"""Fixtures for pytest, found by it wherever kraftpy is installed.

    kraftpy_cluster        one cluster for the whole session
    kraftpy                a space of its own in that cluster for each test: use this one
    fresh_kraftpy_cluster  a cluster for one test; `@pytest.mark.kraftpy(brokers=3)` says which

The session's cluster is as large as `kraftpy_brokers` and `kraftpy_controllers` in pytest's
configuration say, one each by default. A test may kill, pause and partition its nodes: after each
test it is made whole again. Nothing of kraftpy is imported before a test asks for a fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kraftpy.testing import Cluster, Space


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two lines that may stand in pytest's configuration."""
    parser.addini("kraftpy_brokers", "Brokers of the session's cluster.", default="1")
    parser.addini("kraftpy_controllers", "Controllers of the session's cluster.", default="1")


def pytest_configure(config: pytest.Config) -> None:
    """The marker, so that --strict-markers knows it."""
    config.addinivalue_line(
        "markers",
        "kraftpy(brokers=1, controllers=1, settings=None): what fresh_kraftpy_cluster starts",
    )


@pytest.fixture(scope="session")
def kraftpy_cluster(pytestconfig: pytest.Config) -> "Iterator[Cluster]":
    """One cluster for all tests of this session, or of this worker of pytest-xdist's."""
    from kraftpy.testing import kraftpy_cluster

    brokers = int(pytestconfig.getini("kraftpy_brokers"))
    controllers = int(pytestconfig.getini("kraftpy_controllers"))
    with kraftpy_cluster(brokers=brokers, controllers=controllers) as cluster:
        yield cluster


@pytest.fixture
def kraftpy(kraftpy_cluster: "Cluster") -> "Iterator[Space]":
    """A space of its own in the session's cluster."""
    from kraftpy.testing import Space

    space = Space(kraftpy_cluster)
    yield space
    kraftpy_cluster.restore()
    space.close()


@pytest.fixture
def fresh_kraftpy_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A cluster for this test alone."""
    from kraftpy.testing import kraftpy_cluster

    marker = request.node.get_closest_marker("kraftpy")
    with kraftpy_cluster(**(marker.kwargs if marker else {})) as cluster:
        yield cluster
