"""`kraftpy quorum status` against real listeners."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kraftpy.cli import quorum_status
from kraftpy.cli.quorum_status import parse_places, status
from kraftpy.errors import ConfigError, Unreachable, WireError
from kraftpy.wire import apis
from tests.unit.quorum.served import Served, fetch_request, wait_until


@pytest.fixture(scope="module")
def three() -> Iterator[Served]:
    with Served(3) as served:
        served.cluster.commit(5)
        served.cluster.run(500)
        served.ask(apis.FETCH, fetch_request(2, replica_id=100), 12)
        yield served


def ask(*arguments: str) -> None:
    status.main(list(arguments), standalone_mode=False)


def at(port: int) -> list[str]:
    return ["--bootstrap-controller", f"127.0.0.1:{port}"]


def test_json_is_one_object_whichever_controller_is_asked(
    three: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = three.cluster.leader
    assert leader is not None
    for port in three.ports.values():
        ask(*at(port), "--json")
        found = json.loads(capsys.readouterr().out)
        assert list(found) == [
            "leader_id",
            "leader_epoch",
            "high_watermark",
            "voters",
            "observers",
        ]
        assert (found["leader_id"], found["leader_epoch"]) == (leader.node_id, leader.epoch)
        assert found["high_watermark"] == leader.high_watermark
        assert {v["replica_id"]: v["port"] for v in found["voters"]} == three.ports
        assert [v["lag"] for v in found["voters"]] == [0, 0, 0]
        (observer,) = found["observers"]
        assert (observer["replica_id"], observer["lag"]) == (100, leader.high_watermark - 2)


def test_the_table_names_everybody(three: Served, capsys: pytest.CaptureFixture[str]) -> None:
    ask(*at(three.ports[three.followers[0]]))
    out = capsys.readouterr().out
    head, _, *rows = out.splitlines()
    leader = three.cluster.leader
    assert leader is not None
    assert head == (
        f"leader {leader.node_id}   epoch {leader.epoch}   high watermark {leader.high_watermark}"
    )
    roles = [row.split()[:3] for row in rows]
    assert sorted(role for _, role, _ in roles) == ["leader", "observer", "voter", "voter"]
    assert ["100", "observer", "-"] in roles


def test_a_controller_that_is_down_is_passed_over(
    three: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    places = f"127.0.0.1:1,127.0.0.1:{three.ports[2]}"
    ask("--bootstrap-controller", places, "--json")
    assert json.loads(capsys.readouterr().out)["leader_id"] == three.leader_id


def test_watch_goes_on_through_the_loss_of_the_leader(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def look(line: str) -> None:
        seen.append(json.loads(line))
        if seen[-1].get("leader_id") == -5:
            raise KeyboardInterrupt

    monkeypatch.setattr("kraftpy.cli.quorum_status.click.echo", look)
    with Served(3) as served:
        served.cluster.commit(1)
        first = served.leader_id
        arguments = [*at(served.ports[served.followers[0]]), "--watch", "--json"]
        watch = threading.Thread(target=ask, args=(*arguments, "--interval", "0.1"), daemon=True)
        watch.start()
        wait_until(lambda: seen and seen[-1].get("leader_id") == first)
        served.cluster.kill(first)
        engines = served.cluster.engines
        served.cluster.run_until(
            lambda: any(engines[n].leader_id == n for n in engines if n != first)
        )
        wait_until(lambda: seen[-1].get("leader_id") == served.leader_id)
        monkeypatch.setattr(quorum_status, "asdict", lambda _found: {"leader_id": -5})
        watch.join()
    assert capsys.readouterr().err == ""


def test_watch_shows_the_table_until_interrupted(
    three: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kraftpy.cli.quorum_status.asyncio.sleep", interrupted)
    ask(*at(three.ports[1]), "--watch")
    assert "high watermark" in capsys.readouterr().out


def test_nobody_there_is_one_line() -> None:
    with pytest.raises(Unreachable, match=r"cannot connect to 127.0.0.1:1: Connection refused"):
        ask(*at(1))


def test_a_name_that_does_not_exist_is_one_line() -> None:
    with pytest.raises(Unreachable, match=r"cannot connect to no.such.host.invalid:9093: "):
        ask("--bootstrap-controller", "no.such.host.invalid:9093")


def test_a_silent_server_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(Unreachable, match=r"does not answer within 0.1 s"):
            ask(*at(port), "--timeout", "0.1")


def test_a_web_server_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            sock, _ = listening.accept()
            sock.recv(1000)
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            sock.close()

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        with pytest.raises((WireError, Unreachable), match="does not speak Kafka's protocol"):
            ask(*at(port))
        thread.join()


def test_a_quorum_without_a_leader_says_so() -> None:
    with Served(3) as served:
        leader_id = served.leader_id
        for node_id in served.cluster.voters:
            served.cluster.isolate(node_id)
        engine = served.cluster.engines[leader_id]
        served.cluster.run_until(lambda: engine.leader_id is None)
        with pytest.raises(Unreachable, match="knows no leader in epoch"):
            ask(*at(served.ports[leader_id]))


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "localhost:0", "a:70000", "a b:1"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        parse_places(text)


def test_addresses_may_be_several_and_of_any_family() -> None:
    assert parse_places("a:1, [::1]:9093") == [("a", 1), ("::1", 9093)]
    assert str(parse_places("[::1]:9093")[0]) == "[::1]:9093"
