"""One recorder and one cluster of each kind for all tests of a process."""

import json
from collections.abc import Iterator

import pytest

from tests.interop.clusters import Served, dev_cluster, record_path, three_brokers
from tests.interop.recorder import Recorder


@pytest.fixture(scope="session")
def recorder() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder
        if path := record_path():
            with open(path, "w") as out:
                json.dump(sorted(recorder.served), out)


@pytest.fixture(scope="session")
def _dev(tmp_path_factory: pytest.TempPathFactory, recorder: Recorder) -> Iterator[Served]:
    # Kafka's least session is six seconds: too long to wait for each member that was killed.
    short = ("--set", "group.min.session.timeout.ms=2000")
    with dev_cluster(tmp_path_factory.mktemp("dev"), recorder, *short) as served:
        yield served


@pytest.fixture(scope="session")
def _three(tmp_path_factory: pytest.TempPathFactory, recorder: Recorder) -> Iterator[Served]:
    with three_brokers(tmp_path_factory.mktemp("three"), recorder) as served:
        yield served


@pytest.fixture
def dev(_dev: Served) -> Iterator[Served]:
    """A cluster of one process. Every request of the test must have been served."""
    yield from all_served(_dev)


@pytest.fixture
def three(_three: Served) -> Iterator[Served]:
    """One controller and three brokers. Every request of the test must have been served."""
    yield from all_served(_three)


def all_served(served: Served) -> Iterator[Served]:
    before = len(served.recorder.refused)
    yield served
    assert served.recorder.refused[before:] == []
