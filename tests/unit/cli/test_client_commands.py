"""The commands that are Kafka clients, against a real cluster: what they print, how they end."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftpy.cli.main import run
from kraftpy.testing import Cluster, Space, kraftpy_cluster

NOBODY = ("-b", "127.0.0.1:1", "--timeout", "2")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with kraftpy_cluster(brokers=2) as found:
        yield found


@pytest.fixture
def space(cluster: Cluster) -> Iterator[Space]:
    with Space(cluster) as found:
        yield found


Kraftpy = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kraftpy(
    cluster: Cluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Kraftpy:
    """Runs a command line; gives exit code, output and errors."""
    monkeypatch.setenv("KRAFTPY_BOOTSTRAP_SERVER", cluster.bootstrap_servers)

    def command(*arguments: str, given: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        code = run(arguments)
        found = capfd.readouterr()
        assert code == 0 or found.err, "a refusal without a word"
        if "--json" in arguments and arguments[0] != "produce":
            assert found.out, found.err  # Its tables are there, also when it ends with a refusal.
        return code, found.out, found.err

    return command


def listed(text: str) -> Any:
    return json.loads(text)


def test_a_topic_from_its_creation_to_its_end(kraftpy: Kraftpy, space: Space) -> None:
    name = space.name("orders")
    created = kraftpy("topics", "create", name, "-p", "2", "-r", "2", "-c", "retention.ms=60000")
    assert created == (0, f"created {name}\n", "")
    code, _, errors = kraftpy("topics", "create", name)
    assert (code, errors) == (1, f"kraftpy: {name}: topic {name} exists\n")
    assert kraftpy("topics", "create", name, "--if-not-exists")[0] == 0

    _, out, _ = kraftpy("topics", "list", "--json")
    (row,) = [each for each in listed(out) if each["topic"] == name]
    assert (row["partitions"], row["replicas"], row["without_leader"]) == (2, 2, 0)
    assert name in kraftpy("topics", "list")[1]

    assert kraftpy("topics", "alter", name, "-p", "3", "--delete-config", "retention.ms")[0] == 0
    _, out, _ = kraftpy("topics", "describe", name, "--json")
    assert [each["partition"] for each in listed(out)] == [0, 1, 2]
    assert all(sorted(each["isr"]) == [101, 102] for each in listed(out)[:2])

    assert kraftpy("topics", "delete", name) == (0, f"deleted {name}\n", "")
    code, _, errors = kraftpy("topics", "describe", name)
    assert (code, errors) == (1, f"kraftpy: there is no topic {name}\n")


def test_configs_are_shown_with_where_they_come_from(kraftpy: Kraftpy, space: Space) -> None:
    topic = space.topic()
    changed = kraftpy("configs", "alter", "--topic", topic, "--set", "segment.bytes=1048576")
    assert changed[0] == 0
    _, out, _ = kraftpy("configs", "describe", "--topic", topic, "--json")
    assert {"config": "segment.bytes", "value": "1048576", "source": "topic"} in listed(out)
    _, out, _ = kraftpy("configs", "describe", "--topic", topic, "--all", "--json")
    assert {"retention.ms", "cleanup.policy"} <= {each["config"] for each in listed(out)}
    assert kraftpy("configs", "describe", "--broker", "101")[0] == 0
    code, _, errors = kraftpy("configs", "alter", "--topic", topic, "--set", "bogus=1")
    assert (code, errors) == (1, f"kraftpy: {topic}: unknown topic config 'bogus'\n")
    assert kraftpy("configs", "describe")[0] == 2


def test_what_is_produced_is_consumed_in_every_form(kraftpy: Kraftpy, space: Space) -> None:
    topic = space.topic()
    sent = kraftpy("produce", topic, "-K", ":", "-H", "from=test", "-v", given=b"a:1\nb:2\n")
    assert sent == (0, f"{topic}-0 offset 0\n{topic}-0 offset 1\n", "")
    line = {"key": None, "value_base64": "/w==", "timestamp": 1234, "partition": 0}
    assert kraftpy("produce", topic, "--json", given=json.dumps(line).encode())[0] == 0

    read = ("consume", topic, "--from", "beginning", "--exit")
    assert kraftpy(*read, "-f", "%o %k=%v %h %K %S|")[1].startswith("0 a=1 from=test 1 1|")
    _, out, _ = kraftpy(*read, "--json")
    found = [json.loads(each) for each in out.splitlines()]
    assert [each.get("key") for each in found] == ["a", "b", None]
    assert (found[2]["value_base64"], found[2]["timestamp"]) == ("/w==", 1234)
    assert found[0]["headers"] == [{"name": "from", "value": "test"}]

    copy = space.topic("copy")
    assert kraftpy("produce", copy, "--json", given=out.encode())[0] == 0
    _, copied, _ = kraftpy("consume", copy, "--from", "beginning", "--exit", "--json")
    assert [json.loads(each)["key"] for each in copied.splitlines()] == ["a", "b", None]


def test_consuming_begins_where_it_is_told_to(kraftpy: Kraftpy, space: Space) -> None:
    topic = space.topic(partitions=2)
    kraftpy("produce", topic, "-p", "0", "--timestamp", "1000", given=b"old\n")
    kraftpy("produce", topic, "-p", "0", "--timestamp", "2000", given=b"new\nnewest\n")
    kraftpy("produce", topic, "-p", "1", "--timestamp", "1500", given=b"other\n")
    for where, expected in (
        (("--from", "1"), "new\nnewest\n"),
        (("--from", "-1"), "newest\n"),
        (("--from", "@2000"), "new\nnewest\n"),
        (("--from", "@1970-01-01T00:00:02"), "new\nnewest\n"),
        (("--from", "beginning", "-n", "1"), "old\n"),
    ):
        assert kraftpy("consume", topic, "-p", "0", "--exit", *where) == (0, expected, "")
    _, out, _ = kraftpy("consume", topic, "--from", "beginning", "--exit")
    assert sorted(out.split()) == ["new", "newest", "old", "other"]


def test_a_group_goes_on_where_it_left_off(kraftpy: Kraftpy, space: Space) -> None:
    topic, group = space.topic(), space.group()
    kraftpy("produce", topic, given=b"1\n2\n3\n")
    read = ("consume", topic, "-g", group, "--from", "beginning")
    assert kraftpy(*read, "-n", "2")[1] == "1\n2\n"
    assert kraftpy(*read, "-n", "1")[1] == "3\n"


def test_who_is_not_acknowledged_is_told_why(
    cluster: Cluster, kraftpy: Kraftpy, space: Space
) -> None:
    topic = space.name("wary")
    kraftpy("topics", "create", topic, "-p", "1", "-r", "2", "-c", "min.insync.replicas=2")
    cluster.stop(102)
    code, _, errors = kraftpy("produce", topic, "--timeout", "1.5", given=b"x\n")
    why = f"{topic}-0 has only 1 in sync (101), and min.insync.replicas is 2"
    assert (code, errors) == (1, f"kraftpy: line 1 was not acknowledged: {why}\n")
    _, out, _ = kraftpy("brokers", "--json")
    (gone,) = [each for each in listed(out)["brokers"] if each["broker"] == 102]
    assert (gone["address"], gone["leads"], gone["out_of_sync"] > 0) == (None, 0, True)
    cluster.restart(102)

    code, _, errors = kraftpy("produce", topic, "-p", "7", "--timeout", "1.5", given=b"x\n")
    complaint = f"line 1 was not acknowledged: {topic} has the partitions 0 to 0, not 7"
    assert (code, errors) == (1, f"kraftpy: {complaint}\n")
    large = "Unable to produce message: Broker: Message size too large"
    code, _, errors = kraftpy("produce", topic, given=b"a\n" + bytes(2_000_000) + b"\n")
    assert (code, errors) == (1, f"kraftpy: line 2: {large}\n")


def test_mistakes_are_one_line_and_exit_code_2(kraftpy: Kraftpy, space: Space) -> None:
    topic = space.topic()
    for arguments, given, complaint in (
        (("produce", topic, "-K", ":"), b"none\n", "line 1: there is no ':' in it"),
        (("produce", topic, "--json"), b"[1]\n", "line 1: expected an object"),
        (("produce", topic, "-H", "x"), b"", "--header: expected KEY=VALUE, not 'x'"),
        (("consume", topic, "--from", "soon"), b"", "--from: expected beginning, end,"),
        (("consume", topic, "-f", "%q"), b"", "--format: %q means nothing"),
        (("consume", topic, "-g", "g", "-p", "0"), b"", "leave --partition"),
        (("topics", "alter", topic), b"", "nothing to alter"),
        (("topics", "list", "-X", "foo=bar"), b"", 'No such configuration property: "foo"'),
        (("elect", "preferred"), b"", "give either --all, or --topic"),
    ):
        code, out, errors = kraftpy(*arguments, given=given)
        assert (code, out, complaint in errors) == (2, "", True), errors
        assert errors.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list"),
        ("topics", "create", "t"),
        ("brokers",),
        ("consume", "t"),
        ("produce", "t"),
        ("perf", "produce", "t"),
        ("elect", "preferred", "--all"),
    ],
)
def test_a_cluster_that_is_not_there_is_told_with_its_address(
    kraftpy: Kraftpy, arguments: tuple[str, ...]
) -> None:
    code, _, errors = kraftpy(*arguments, *NOBODY, given=b"x\n")
    assert code == 1
    assert "127.0.0.1:1 cannot be reached: Connection refused" in errors


def test_brokers_and_elections(kraftpy: Kraftpy, space: Space) -> None:
    topic = space.topic(partitions=2, replication_factor=2)
    _, out, _ = kraftpy("brokers", "--json")
    assert [each["broker"] for each in listed(out)["brokers"]] == [101, 102]
    _, out, _ = kraftpy("elect", "preferred", "--topic", topic, "--json")
    assert {each["outcome"] for each in listed(out)} == {"not needed"}
    code, _, errors = kraftpy("elect", "preferred", "--topic", topic, "--partition", "7")
    assert (code, errors) == (1, f"kraftpy: there is no {topic}-7\n")
    for command in (("elect", "preferred", "--topic"), ("perf", "consume"), ("topics", "describe")):
        code, _, errors = kraftpy(*command, "nobodys")  # No command has made it for the next one.
        assert (code, errors) == (1, "kraftpy: there is no topic nobodys\n")


def test_replicas_move_as_planned(kraftpy: Kraftpy, space: Space, tmp_path: Path) -> None:
    topic = space.topic(partitions=3)
    kraftpy("produce", topic, given=b"kept\n" * 20)
    file = str(tmp_path / "plan.json")
    plan = ("reassign", "plan", "--topic", topic, "--brokers", "102", "-o", file)
    assert kraftpy(*plan)[0] == 0
    assert kraftpy("reassign", "verify", file)[0] == 1
    assert kraftpy("reassign", "execute", file, "--wait")[:2] == (
        0,
        "3 partitions are being reassigned\ndone\n",
    )
    code, out, _ = kraftpy("reassign", "verify", file, "--json")
    assert (code, {each["is"] for each in listed(out)}) == (0, {"done"})
    assert kraftpy("reassign", "cancel", file)[1] == "0 reassignments cancelled\n"
    _, out, _ = kraftpy("consume", topic, "--from", "beginning", "--exit")
    assert out == "kept\n" * 20
    code, _, errors = kraftpy("reassign", "plan", "--topic", topic, "--brokers", "9")
    assert (code, "there is no broker 9" in errors) == (1, True)
    (tmp_path / "no").write_text("{}")
    assert kraftpy("reassign", "execute", str(tmp_path / "no"))[0] == 2


def test_perf_counts_every_record(kraftpy: Kraftpy, space: Space) -> None:
    topic = space.topic()
    _, out, _ = kraftpy("perf", "produce", topic, "--num-records", "500", "--json")
    assert listed(out)["records"] == 500
    assert "records sent" in kraftpy("perf", "produce", topic, "--num-records", "10")[1]
    _, out, _ = kraftpy("perf", "consume", topic, "--json")
    assert (listed(out)["records"], listed(out)["mb"]) == (510, round(51_000 / 1024 / 1024, 2))


def test_each_shell_gets_a_script_of_its_own(kraftpy: Kraftpy) -> None:
    for shell in ("bash", "zsh", "fish"):
        code, out, _ = kraftpy("completion", shell)
        assert (code, f"_KRAFTPY_COMPLETE={shell}_complete" in out) == (0, True)
