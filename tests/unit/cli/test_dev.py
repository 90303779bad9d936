"""`kraftpy dev` as a user runs it: a process, a signal, and what is left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraftpy.testing.free_ports import free_ports

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of kafka-python's own imports.
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

ANSWER_TIMEOUT_S = 60
PROGRAM = "from kraftpy.cli.main import main; main()"


@contextmanager
def dev(
    *arguments: str, listen: str = "127.0.0.1:0", **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `kraftpy dev` and what it printed until it was ready."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("KRAFTPY_")}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "dev", "--listen", listen, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**clean, **variables},
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        try:
            yield process, "".join(lines)
        finally:
            process.kill()


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> str:
    process.send_signal(number)
    _, errors = process.communicate(timeout=ANSWER_TIMEOUT_S)
    assert process.returncode == 0, errors
    return errors


def printed_directory(text: str) -> Path:
    match = re.search(r"data directory +(\S+)", text)
    assert match, text
    return Path(match[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_cleanly_and_takes_the_temporary_directory(
    number: signal.Signals, tmp_path: Path
) -> None:
    with dev(TMPDIR=str(tmp_path)) as (process, printed):
        directory = printed_directory(printed)
        assert "temporary" in printed
        assert "broker          101 at 127.0.0.1:" in printed
        assert (directory / "__cluster_metadata-0").is_dir()
        assert directory.parent == tmp_path
        stop(process, number)
    assert list(tmp_path.iterdir()) == []


def test_an_admin_client_that_is_there_first_is_served(tmp_path: Path) -> None:
    """It asks before the broker may be named, and would not ask again."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    admin = AdminClient(
        {
            "bootstrap.servers": address,
            "log_level": 0,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 5,
            "metadata.recovery.strategy": "none",
        }
    )
    made = admin.create_topics([NewTopic("early", 1, 1)], request_timeout=ANSWER_TIMEOUT_S)
    with dev(listen=address, TMPDIR=str(tmp_path)) as (process, _):
        made["early"].result(ANSWER_TIMEOUT_S)
        stop(process)


def test_a_client_produces_and_consumes_at_once(tmp_path: Path) -> None:
    """The first thing that anyone does; the topic is made by asking for it."""
    with dev(TMPDIR=str(tmp_path)) as (process, printed):
        match = re.search(r"clients at (\S+)", printed)
        assert match, printed
        producer = KafkaProducer(bootstrap_servers=match[1])
        offsets = [producer.send("first", b"%d" % n).get(30).offset for n in range(3)]
        producer.close()
        consumer = KafkaConsumer(bootstrap_servers=match[1], auto_offset_reset="earliest")
        consumer.assign([TopicPartition("first", 0)])
        found = [next(consumer).value for _ in range(3)]
        consumer.close()
        stop(process)
    assert offsets == [0, 1, 2]
    assert found == [b"0", b"1", b"2"]


def test_a_named_data_directory_is_made_and_stays(tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b"
    with dev("--data-dir", str(wanted)) as (process, printed):
        assert printed_directory(printed) == wanted
        assert "temporary" not in printed
        stop(process)
    assert (wanted / "__cluster_metadata-0").is_dir()


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f'[data]\ndir = "{tmp_path}/file"\n')
    by_file = {"KRAFTPY_CONFIG": str(file)}
    by_environment = {**by_file, "KRAFTPY_DATA_DIR": f"{tmp_path}/environment"}
    flag = ("--set", f"data.dir={tmp_path}/flag")
    runs = (
        ("file", (), by_file),
        ("environment", (), by_environment),
        ("flag", flag, by_environment),
    )
    for winner, arguments, variables in runs:
        with dev(*arguments, **variables) as (process, printed):
            assert printed_directory(printed) == tmp_path / winner
            stop(process)


def test_a_hangup_is_ignored_where_the_starter_asked_for_it(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # As nohup does; children inherit it.
    try:
        with dev("--data-dir", str(tmp_path)) as (process, _):
            process.send_signal(signal.SIGHUP)
            assert json.loads(stop(process).splitlines()[-1])["signal"] == "SIGTERM"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_closed_stderr_does_not_disturb_it(tmp_path: Path) -> None:
    with dev("--data-dir", str(tmp_path)) as (process, _):
        assert process.stderr is not None
        process.stderr.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=ANSWER_TIMEOUT_S) == 0


def test_a_relative_metadata_directory_is_made_where_it_was_meant(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with dev("--set", "metadata.log.dir=~/m", HOME=str(home)) as (process, printed):
        assert f"metadata log    {home}/m/__cluster_metadata-0\n" in printed
        stop(process)
    assert (home / "m" / "__cluster_metadata-0").is_dir()


def test_a_config_file_of_each_kind_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbflog.segment.bytes = 2048\n")
    (tmp_path / "a.properties").write_bytes(b"\xef\xbb\xbflog.segment.bytes=2048\r\n")
    for name in ("a.toml", "a.properties"):
        with dev("--config", str(tmp_path / name)) as (process, _):
            stop(process)
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "latin.toml").write_bytes(b"data.dir = '\xe9'")
    (tmp_path / "huge.toml").write_bytes(b"#" * (1 << 20) + b"##")
    for name, complaint in (
        ("missing.toml", "cannot read the config file: No such file or directory"),
        ("folder.toml", "cannot read the config file: Is a directory"),
        ("latin.toml", "the config file is not UTF-8 text"),
        ("huge.toml", "a config file may have 1048576 characters"),
    ):
        with dev("--config", str(tmp_path / name)) as (process, _):
            _, errors = process.communicate(timeout=ANSWER_TIMEOUT_S)
        assert (process.returncode, errors) == (2, f"kraftpy: {tmp_path}/{name}: {complaint}\n")


def test_events_are_json_when_stderr_is_no_terminal(tmp_path: Path) -> None:
    with dev("--data-dir", str(tmp_path)) as (process, _):
        errors = stop(process)
    events = [json.loads(line) for line in errors.splitlines()]
    names = [event["event"] for event in events]
    assert names[0] == "directory_formatted"
    assert {"controller_active", "broker_unfenced", "dev_started"} <= set(names)
    assert names[-1] == "dev_stopped"
    assert {event["level"] for event in events} == {"info"}
    assert events[-1]["signal"] == "SIGTERM"


def test_events_are_text_when_asked_for_and_absent_above_their_level(tmp_path: Path) -> None:
    with dev("--data-dir", str(tmp_path), "--log-format", "text") as (process, _):
        assert "INFO kraftpy.cli.dev event=dev_stopped signal=SIGTERM" in stop(process)
    with dev("--data-dir", str(tmp_path), "--log-level", "warning") as (process, _):
        assert stop(process) == ""


def test_a_data_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with dev("--data-dir", str(tmp_path / "file" / "x")) as (process, printed):
        _, errors = process.communicate(timeout=ANSWER_TIMEOUT_S)
    assert (process.returncode, printed) == (2, "")
    assert errors == (
        f"kraftpy: data.dir: cannot create directory {tmp_path}/file/x: Not a directory\n"
    )
