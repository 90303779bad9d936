"""`kraftpy quorum` and `kraftpy format`: refusals in one line, and a voter as a process."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kraftpy.cli import main
from kraftpy.config import Given, resolve
from kraftpy.errors import ConfigError
from kraftpy.quorum.node_config import NodeConfig

Output = pytest.CaptureFixture[str]
VOTERS = "1@127.0.0.1:9093,2@127.0.0.1:9094"
PROGRAM = "import sys; from kraftpy.cli.main import run; sys.exit(run(sys.argv[1:]))"


def config_of(**given: str) -> NodeConfig:
    settings = [Given(key.replace("_", "."), text, "test") for key, text in given.items()]
    return NodeConfig.of(resolve(settings))


def test_alone_it_is_a_quorum_of_one_on_loopback() -> None:
    config = config_of(node_id="7")
    assert [str(voter) for voter in config.voters] == ["7@127.0.0.1:9093"]
    assert (config.host, config.port) == ("127.0.0.1", 9093)
    assert config.data_dir == os.path.abspath("kraftpy-data/node-7")


def test_a_voter_listens_at_its_own_address_unless_told_otherwise() -> None:
    config = config_of(node_id="2", controller_quorum_voters=VOTERS)
    assert (config.host, config.port) == ("127.0.0.1", 9094)
    config = config_of(node_id="2", controller_quorum_voters=VOTERS, listeners="[::1]:1234")
    assert (config.host, config.port) == ("::1", 1234)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "node.id is not set: give --node-id N"),
        ({"node_id": "3", "controller_quorum_voters": VOTERS}, "node 3 is not among the voters"),
        ({"node_id": "1", "controller_quorum_voters": "1@x"}, "expected ID@HOST:PORT, not '1@x'"),
        ({"node_id": "1", "listeners": "nowhere"}, "expected CONTROLLER://HOST:PORT"),
        ({"node_id": "1", "listeners": ":9093"}, "quorum.auth.secret is needed to listen at"),
        ({"node_id": "1", "listeners": "h.example:9093"}, "quorum.auth.secret is needed"),
        ({"node_id": "1", "cluster_id": "short"}, "cluster.id: 'short' is"),
        ({"node_id": "1", "quorum_ssl_ca": "/ca"}, "belong together"),
    ],
)
def test_what_does_not_fit_together_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_of(**given)
    assert message in str(refused.value)


def test_the_secret_comes_from_a_setting_or_the_first_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hush\nrest\n")
    assert config_of(node_id="1", listeners=":1", quorum_auth_secret="hush").secret == b"hush"
    given = Given("quorum.auth.secret-file", str(file), "test")
    assert NodeConfig.of(resolve([given, Given("node.id", "1", "test")])).secret == b"hush"
    for content, message in (("\n", "first line of"), (None, "cannot read")):
        file.write_text(content) if content is not None else file.unlink()
        with pytest.raises(ConfigError, match=message):
            NodeConfig.of(resolve([given, Given("node.id", "1", "test")]))


def test_format_gives_an_identity_once(tmp_path: Path, capsys: Output) -> None:
    arguments = ["format", "--node-id", "1", "--voters", VOTERS, "--data-dir", f"{tmp_path}/d"]
    assert main.run(arguments) == 0
    first = capsys.readouterr().out
    assert re.search(r"formatted: cluster [\w-]{22}, node 1, directory [\w-]{22}", first)
    assert main.run(arguments) == 0
    assert "has it already" in capsys.readouterr().out
    assert main.run([*arguments[:2], "2", *arguments[3:]]) == 2
    assert "belongs to node 1, not to node 2" in capsys.readouterr().err
    assert main.run([*arguments, "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA"]) == 2
    assert "belongs to cluster" in capsys.readouterr().err


@pytest.fixture
def voter(tmp_path: Path) -> list[str]:
    place = ["--data-dir", f"{tmp_path}/d", "--listen", "127.0.0.1:0", "--log-format", "json"]
    return [sys.executable, "-c", PROGRAM, "quorum", "--node-id", "1", *place]


def wait_until_it_leads(process: subprocess.Popen[bytes]) -> None:
    assert process.stderr is not None
    while line := process.stderr.readline():
        event = json.loads(line)
        if event["event"] == "leader_changed" and event.get("leader") == 1:
            return
    raise AssertionError("it ended without having led")


def test_a_voter_serves_until_it_is_told_to_stop(voter: list[str], capsys: Output) -> None:
    with subprocess.Popen(voter, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            place = ""
            while not place:
                line = process.stdout.readline().decode()
                assert line, "it ended without saying where it listens"
                place = line.split()[-1] if "listens at" in line else ""
            wait_until_it_leads(process)
            assert main.run(["quorum", "status", "--bootstrap-controller", place, "--json"]) == 0
            status = json.loads(capsys.readouterr().out)
            assert (status["leader_id"], status["leader_epoch"]) == (1, 1)
            assert [each["replica_id"] for each in status["voters"]] == [1]
        finally:
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate()
    assert process.returncode == 0
    assert b"quorum_stopped" in rest


def test_a_damaged_log_stops_the_voter_with_one_line(voter: list[str], tmp_path: Path) -> None:
    directory = tmp_path / "d" / "__cluster_metadata-0"
    with subprocess.Popen(voter, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until_it_leads(process)
        process.terminate()
        process.communicate()
    path = directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    done = subprocess.run(voter, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"kraftpy: {path}: corrupt at position 0 (offset 0)" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert path.read_bytes() == content
