"""A standby makes itself known to the active controller, and gives up when that makes no sense."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from kraftpy.errors import Unreachable
from kraftpy.limits import CONTROLLER_REGISTRATION_ATTEMPTS_MAX
from kraftpy.metadata_log import EMPTY, ClusterImage
from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.records import RegisterControllerRecord
from kraftpy.network.loop import run
from kraftpy.quorum import registration
from kraftpy.quorum.log_view import Progress
from kraftpy.quorum.registration import Registrar, registration_values
from kraftpy.quorum.voters import Voter
from kraftpy.types import BrokerId, Uuid

VOTERS = tuple(Voter(node_id, "127.0.0.1", 9000 + node_id) for node_id in (1, 2, 3))
INCARNATION = Uuid(b"I" * 16)


class View:
    """What the engine told a standby, and tells it next."""

    node_id = 1

    def __init__(self, leader_id: int | None = 2) -> None:
        self.progress = Progress(leader_id, 5, 10)
        self.changes = 0
        self.on_change: Callable[[], None] = lambda: None

    async def changed(self, since: Progress) -> None:
        await asyncio.sleep(0)
        if self.progress == since:
            self.changes += 1
            assert self.changes < 100, "nothing changes any more"
            self.on_change()

    def elect(self, leader_id: int | None) -> None:
        self.progress = Progress(leader_id, self.progress.epoch + 1, 20)


class Stage:
    """A registrar whose requests the test answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, view: View) -> None:
        self.view = view
        self.image: ClusterImage = EMPTY
        self.asked: list[int] = []
        self.answers: list[Any] = []
        self.last: Any = ErrorCode.none  # When there are no answers left.
        values = registration_values(VOTERS[0], INCARNATION)
        self.registrar = Registrar(view, VOTERS, values, lambda: self.image)  # type: ignore
        monkeypatch.setattr(self.registrar, "_ask", self._answer)
        monkeypatch.setattr(registration, "_FIRST_PAUSE_S", 0.0)
        monkeypatch.setattr(registration, "_PAUSE_S_MAX", 0.0)

    async def _answer(self, leader: Voter) -> Any:
        self.asked.append(leader.node_id)
        outcome = self.answers.pop(0) if self.answers else self.last
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is ErrorCode.none:
            self.register()
        return SimpleNamespace(error_code=outcome, error_message=None)

    def register(self, incarnation_id: Uuid = INCARNATION) -> None:
        record = RegisterControllerRecord(
            controller_id=BrokerId(1),
            incarnation_id=incarnation_id,
            zk_migration_ready=False,
            end_points=(),
            features=(),
        )
        self.image = replay_all(self.image, [record])

    def run(self) -> list[Any]:
        with capture_logs() as logged:
            run(self.registrar.run())
        return list(logged)


def test_a_standby_registers_once_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, View())
    assert stage.run() == []
    assert stage.asked == [2]


def test_who_is_registered_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, View())
    stage.register()
    stage.run()
    assert stage.asked == []


def test_an_earlier_incarnation_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, View())
    stage.register(Uuid(b"E" * 16))
    stage.run()
    assert stage.asked == [2]


def test_the_active_controller_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes its own record."""
    view = View(leader_id=1)
    stage = Stage(monkeypatch, view)
    view.on_change = stage.register
    stage.run()
    assert stage.asked == []


def test_it_waits_until_somebody_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View(leader_id=None)
    view.on_change = lambda: view.elect(3)
    stage = Stage(monkeypatch, view)
    stage.run()
    assert stage.asked == [3]


def test_what_passes_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, View())
    stage.answers = [Unreachable("gone"), ErrorCode.not_controller, ErrorCode.request_timed_out]
    assert stage.run() == []
    assert stage.asked == [2] * 4


def test_attempts_are_bounded_and_the_next_leader_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = View()
    stage = Stage(monkeypatch, view)
    stage.answers = [Unreachable("gone")] * CONTROLLER_REGISTRATION_ATTEMPTS_MAX
    view.on_change = lambda: view.elect(3)
    logged = stage.run()
    assert stage.asked == [2] * CONTROLLER_REGISTRATION_ATTEMPTS_MAX + [3]
    assert [(each["event"], each["log_level"]) for each in logged] == [
        ("registration_failed", "warning")
    ]


def test_a_refusal_that_will_not_change_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View()
    stage = Stage(monkeypatch, view)
    stage.answers = [ErrorCode.unsupported_version]
    view.on_change = lambda: view.elect(3)
    (line,) = stage.run()
    assert stage.asked == [2, 3]
    assert line["why"] == "unsupported_version"


def test_a_leader_that_is_gone_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View()
    stage = Stage(monkeypatch, view)

    async def fails_once(leader: Voter) -> Any:
        if not stage.asked:
            view.elect(3)
            stage.asked.append(leader.node_id)
            raise Unreachable("gone")
        return await stage._answer(leader)

    monkeypatch.setattr(stage.registrar, "_ask", fails_once)
    assert stage.run() == []
    assert stage.asked == [2, 3]
