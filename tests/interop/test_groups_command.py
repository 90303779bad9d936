"""`kraftpy groups` against a running cluster: what it says, and what it refuses."""

import json
import signal
import struct
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraftpy.cli.main import cli
from kraftpy.errors import ConfigError, KraftError
from tests.e2e.cluster_processes import PROGRAM
from tests.interop.clusters import Served
from tests.interop.group_processes import Group, create_topic, group, produce
from tests.interop.recorder import Sent

NOT_COORDINATOR = struct.pack(">h", 16)
# Where an answer of one group has its error code, counted from the end if negative, and from which
# version on.
ERROR_CODES = {
    "OffsetCommit": (8, -5, 8),
    "OffsetFetch": (9, -4, 8),
    "ConsumerGroupDescribe": (69, 10, 0),
}


def run(served: Served, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["groups", *arguments, "-b", served.bootstrap])


def found(served: Served, *arguments: str) -> Any:
    result = run(served, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.fixture
def behind(dev: Served) -> Any:
    """A group that has read 10 of 15 records of each of two partitions, and is empty by now."""
    topic = create_topic(dev, 2)
    with group(dev, topic, "range", "confluent") as members:
        expected = produce(dev, topic, range(2), 10)
        members.start()
        members.wait_for_all(expected)
        members.wait("commits", lambda: set(members.committed().values()) == {10})
        yield members


def end(members: Group) -> None:
    members.members[0].signal(signal.SIGTERM)
    members.members[0].end()


def test_a_group_is_listed_and_described_with_its_lag(dev: Served, behind: Group) -> None:
    (described,) = found(dev, "describe", behind.name)
    assert described["state"] == "Stable"
    (member,) = described["members"]
    assert [row["member"] for row in described["partitions"]] == [member["member"]] * 2
    end(behind)
    produce(dev, behind.topic, range(2), 5)
    (described,) = found(dev, "describe", behind.name)
    assert described["state"] == "Empty"
    assert [(row["committed"], row["end"], row["lag"]) for row in described["partitions"]] == [
        (10, 15, 5),
        (10, 15, 5),
    ]
    table = run(dev, "describe", behind.name).output
    assert f"{behind.name}, Empty, 0 members" in table
    listed = {row["group"]: row for row in found(dev, "list")}
    assert listed[behind.name] == {
        "group": behind.name, "type": "classic", "state": "Empty", "simple": False,
    }  # fmt: skip
    assert behind.name in {row["group"] for row in found(dev, "list", "--state", "empty")}
    assert behind.name not in {row["group"] for row in found(dev, "list", "--state", "Stable")}
    both = ("list", "--type", "Classic", "--state", "Empty", "--state", "dead")
    assert behind.name in {row["group"] for row in found(dev, *both)}
    assert behind.name not in {row["group"] for row in found(dev, "list", "--type", "consumer")}


@pytest.mark.parametrize(("option", "known"), [("--state", "Stable"), ("--type", "Consumer")])
def test_a_state_or_type_that_there_is_not_is_refused(dev: Served, option: str, known: str) -> None:
    result = run(dev, "list", option, "nonsense")
    assert result.exit_code == 2
    assert f"{option}: 'nonsense' is none of " in result.output
    assert known in result.output


def test_offsets_are_reset_when_nobody_is_in_the_group(dev: Served, behind: Group) -> None:
    refused = run(dev, "reset-offsets", behind.name, "--all-topics", "--to-earliest", "--execute")
    assert isinstance(refused.exception, KraftError)
    assert "stop its members first" in str(refused.exception)
    end(behind)
    command = ("reset-offsets", behind.name, "--topic", f"{behind.topic}:1", "--shift-by", "-4")
    assert [row["new"] for row in found(dev, *command)["partitions"]] == [6]
    assert set(behind.committed().values()) == {10}  # It was not told to do it.
    found(dev, *command, "--execute")
    assert behind.committed() == {(behind.topic, 0): 10, (behind.topic, 1): 6}
    found(dev, "reset-offsets", behind.name, "--all-topics", "--to-earliest", "--execute")
    assert set(behind.committed().values()) == {0}
    found(dev, "reset-offsets", behind.name, "--all-topics", "--to-offset", "99", "--execute")
    assert set(behind.committed().values()) == {10}
    moment = "2020-01-01T00:00"
    found(dev, "reset-offsets", behind.name, "--all-topics", "--to-datetime", moment, "--execute")
    assert set(behind.committed().values()) == {0}


def test_a_group_is_deleted_when_nobody_is_in_it(dev: Served, behind: Group) -> None:
    assert isinstance(run(dev, "delete", behind.name).exception, KraftError)
    end(behind)
    assert found(dev, "delete", behind.name) == {"deleted": [behind.name]}
    assert behind.name not in {row["group"] for row in found(dev, "list")}
    assert isinstance(run(dev, "describe", behind.name).exception, KraftError)
    assert isinstance(run(dev, "delete", behind.name).exception, KraftError)


@pytest.mark.parametrize(
    ("arguments", "asks"),
    [
        (["describe"], ["ConsumerGroupDescribe", "OffsetFetch"]),
        (["reset-offsets", "--all-topics", "--to-earliest"], ["OffsetFetch"]),
        (["reset-offsets", "--all-topics", "--to-earliest", "--execute"], ["OffsetCommit"]),
    ],
)
def test_who_coordinates_the_group_no_more_is_not_the_last_one_asked(
    dev: Served, behind: Group, arguments: list[str], asks: list[str]
) -> None:
    """In a process of its own: a client library may end it."""
    end(behind)
    left = {ERROR_CODES[each][0]: ERROR_CODES[each][1:] for each in asks}

    def moved(sent: Sent, body: bytes) -> bytes:
        if sent.api_key not in left:
            return body
        at, version_min = left.pop(sent.api_key)
        assert sent.version >= version_min
        at %= len(body)
        return body[:at] + NOT_COORDINATOR + body[at + 2 :]

    command = [sys.executable, "-c", PROGRAM, "groups", *arguments, behind.name]
    with dev.recorder.changing(moved):
        done = subprocess.run(
            [*command, "-b", dev.bootstrap], capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert not left  # Each of them was refused once.


@pytest.mark.parametrize(
    "arguments",
    [
        ["--all-topics"],
        ["--all-topics", "--to-earliest", "--to-latest"],
        ["--all-topics", "--to-datetime", "soon"],
        ["--topic", "t:x", "--to-earliest"],
    ],
)
def test_what_is_not_clear_is_refused(dev: Served, arguments: list[str]) -> None:
    result = run(dev, "reset-offsets", "g", *arguments)
    assert isinstance(result.exception, ConfigError)
