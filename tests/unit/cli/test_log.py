"""`kraftpy log` on real directories, of a node that has them open."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftpy.cli import main
from kraftpy.clock import ManualClock
from kraftpy.metadata_log.control_records import leader_change
from kraftpy.metadata_log.metadata_log import MetadataLog, MetadataLogConfig
from kraftpy.storage.directory import DataDirectory
from kraftpy.storage.file_layer import OsFiles
from kraftpy.storage.log import Log
from kraftpy.storage.log_config import LogConfig
from kraftpy.storage.record_batch import Record, build_batch, build_value_batch
from kraftpy.types import BrokerId
from tests.unit.audit.logs import Log as Cluster
from tests.unit.audit.logs import new_partition
from tests.unit.audit.logs import topic as orders
from tests.unit.metadata_log.makers import (
    OTHER_ID,
    brokers,
    change,
    config,
    partition,
    register,
    scram,
    topic,
)

Output = pytest.CaptureFixture[str]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[str]:
    """A data directory whose owner is still there, lock and all."""
    owner = DataDirectory(OsFiles(), str(tmp_path))
    log = MetadataLog(
        OsFiles(), owner.log_directory("__cluster_metadata", 0), MetadataLogConfig(), ManualClock()
    )
    log.append_control(leader_change(1, [1], [1]), 1)
    log.append([register(), topic(), partition(0), partition(1)], 1)  # 1 to 4
    log.append([config("retention.ms", "5"), topic("other", OTHER_ID), scram()], 1)  # 5 to 7
    log.write_snapshot(log.load_image())
    log.append([change(isr=brokers(1), leader=BrokerId(1), leader_epoch=5)], 2)  # 8
    yield str(tmp_path)
    log.close()
    owner.close(clean=True)


def run(capsys: Output, *arguments: str, code: int = 0) -> str:
    assert main.run(["log", *arguments]) == code
    return capsys.readouterr().out


def rows(capsys: Output, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(capsys, *arguments, "--json").splitlines()]


def test_dump_prints_one_line_per_record(data_dir: str, capsys: Output) -> None:
    lines = run(capsys, "dump", data_dir).splitlines()
    assert len(lines) == 9
    assert lines[0].split()[:4] == ["0", "e1", "2023-11-14T22:13:20.000Z", "LeaderChange"]
    assert "TopicRecord name=orders topic_id=VFRUVFRUVFRUVFRUVFRUVA" in lines[2]
    assert "e2" in lines[8]
    assert "PartitionChangeRecord topic=orders partition_id=0" in lines[8]
    assert "replicas" not in lines[8]  # What a change leaves as it is, is left out.


def test_dump_in_json_has_all_fields_and_no_secrets(data_dir: str, capsys: Output) -> None:
    found = rows(capsys, "dump", data_dir)
    assert [row["offset"] for row in found] == list(range(9))
    assert found[5]["fields"]["value"] == "5"
    assert found[7]["type"] == "UserScramCredentialRecord"
    assert "stored_key" not in found[7]["fields"]
    assert "secret" not in run(capsys, "dump", data_dir)


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--type", "TopicRecord"], [2, 6]),
        (["--type", "topic"], [2, 6]),
        (["--type", "leaderchange"], [0]),
        (["--topic", "orders"], [2, 3, 4, 5, 8]),
        (["--topic", "orders", "--from", "4"], [4, 5, 8]),
        (["--topic", "orders", "--from", "8"], [8]),  # Its name is known from the snapshot.
        (["--topic", "orders", "--type", "PartitionRecord"], [3, 4]),
        (["--from", "3", "--to", "6"], [3, 4, 5]),
        (["--from", "9"], []),
        (["--from", "400"], []),
        (["--to", "0"], []),
        (["--topic", "nobody"], []),
    ],
)
def test_dump_filters(
    data_dir: str, options: list[str], offsets: list[int], capsys: Output
) -> None:
    assert [row["offset"] for row in rows(capsys, "dump", data_dir, *options)] == offsets


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["dump", "{dir}", "--type", "Topik"],
            2,
            "no record type Topik; did you mean TopicRecord?",
        ),
        (["dump", "{dir}", "--from", "5", "--to", "4"], 2, "--to 4 is before --from 5"),
        (["dump", "{dir}", "--from", "-1"], 2, "-1 is not in the range"),
        (["dump", "{dir}/nowhere"], 2, "nowhere: there is no such directory"),
        (["verify", "{dir}/.lock"], 2, "holds no log"),
        (["show", "{dir}", "--at", "10"], 2, "offset 10 is beyond the log, which ends at 9"),
        (["show", "{dir}", "--at", "x"], 2, "'x' is not a valid integer"),
        (["diff", "{dir}", "--from", "2", "--to", "99"], 2, "offset 99 is beyond the log"),
        (["diff", "{dir}"], 2, "Missing option '--from'"),
    ],
)
def test_a_mistake_is_one_line(
    data_dir: str, arguments: list[str], code: int, message: str, capsys: Output
) -> None:
    assert main.run(["log", *(each.format(dir=data_dir) for each in arguments)]) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert output.err.count("\n") == 1


def test_verify_says_sound_with_numbers(tmp_path: Path, capsys: Output) -> None:
    write_cluster(tmp_path)
    out = run(capsys, "verify", str(tmp_path))
    assert "sound" in out
    assert "offsets    0 to 5" in out
    verdict = json.loads(run(capsys, "verify", str(tmp_path), "--json"))
    assert (verdict["records"], verdict["snapshots"], verdict["problems"]) == (5, 0, [])


def test_verify_names_broken_rules(data_dir: str, capsys: Output) -> None:
    """Every record of it can be replayed, but no cluster would write it."""
    out = run(capsys, "verify", data_dir, code=1)
    assert "WRONG: A1 replicas_are_registered_brokers (offset 3, orders-0" in out


def write_cluster(directory: Path) -> None:
    log = MetadataLog(OsFiles(), str(directory), MetadataLogConfig(), ManualClock())
    log.append_control(leader_change(1, [1], [1]), 1)
    known = Cluster()
    known.end_offset = 1  # Behind the leader change.
    known.write(known.register(1))
    known.write(known.unfence(1))
    known.write(orders(), new_partition(replicas=brokers(1)))
    for _, records, _ in known.batches:
        log.append(records, 1)
    log.close()


def test_verify_names_damage_and_fails(data_dir: str, capsys: Output) -> None:
    path = f"{data_dir}/__cluster_metadata-0/{0:020d}.log"
    with open(path, "r+b") as file:
        file.seek(200)
        byte = file.read(1)
        file.seek(200)
        file.write(bytes([byte[0] ^ 1]))
    out = run(capsys, "verify", data_dir, code=1)
    assert f"WRONG: {path}: corrupt at position 91 (offset 1): the CRC does not match" in out
    assert "sound" not in out


def test_show_draws_the_cluster_at_an_offset(data_dir: str, capsys: Output) -> None:
    out = run(capsys, "show", data_dir)
    assert "cluster at offset 9, epoch 2" in out
    assert "topics (2)" in out
    assert "orders VFRUVFRUVFRUVFRUVFRUVA: partitions (2)" in out
    assert "0 leader 1 epoch 5 replicas [1, 2, 3] isr [1]" in out
    assert "topic orders: retention.ms = 5" in out
    earlier = run(capsys, "show", data_dir, "--at", "5")
    assert "topics (1)" in earlier
    assert "retention.ms" not in earlier


def test_show_inside_a_batch_has_the_records_before_the_offset(
    data_dir: str, capsys: Output
) -> None:
    image = json.loads(run(capsys, "show", data_dir, "--at", "4", "--json"))
    assert list(image["topics"]["orders"]["partitions"]) == ["0"]
    assert image["end_offset"] == 4


def test_diff_says_what_changed(data_dir: str, capsys: Output) -> None:
    out = run(capsys, "diff", data_dir, "--from", "8", "--to", "9")
    assert "partition orders-0: isr [1, 2, 3] -> [1], leader_epoch 4 -> 5" in out
    found = json.loads(run(capsys, "diff", data_dir, "--from", "0", "--json"))
    assert (found["from"], found["to"]) == (0, 9)
    assert any("topic orders" in sentence for sentence in found["changes"])


def test_the_tools_leave_every_file_as_it_was(data_dir: str, capsys: Output) -> None:
    def state() -> dict[str, tuple[bytes, int]]:
        return {
            path: (Path(path).read_bytes(), os.stat(path).st_mtime_ns)
            for folder, _, names in os.walk(data_dir)
            for path in (os.path.join(folder, name) for name in names)
        }

    before = state()
    run(capsys, "verify", data_dir, code=1)
    for command in (["dump"], ["show"], ["diff", "--from", "0"]):
        run(capsys, command[0], data_dir, *command[1:])
    assert state() == before


def test_a_record_from_the_future_is_shown_and_the_dump_fails(
    data_dir: str, capsys: Output
) -> None:
    directory = f"{data_dir}/copy"
    log = MetadataLog(OsFiles(), directory, MetadataLogConfig(), ManualClock())
    log.append([topic()], 1)
    batch = build_value_batch(
        [b"\x93\x7f\x00\x00", b"\x92\x14\x00"], base_offset=0, leader_epoch=1, timestamp_ms=1
    )
    log.log.append(batch, 1)
    assert main.run(["log", "dump", directory]) == 1
    output = capsys.readouterr()
    assert '(undecodable) reason="unknown record type 127"' in output.out
    assert output.out.count("\n") == 3
    assert "NoOpRecord" in output.out
    assert output.err == "kraftpy: 1 records could not be decoded\n"


def test_a_log_of_data_is_dumped_as_keys_and_values(tmp_path: Path, capsys: Output) -> None:
    directory = f"{tmp_path}/orders-0"
    log = Log.open(OsFiles(), directory, LogConfig(), ManualClock())
    headers = (("trace", b"\xff"),)
    records = [
        Record(offset=0, timestamp=1000, key=b"k", value="wört".encode(), headers=headers),
        Record(offset=1, timestamp=2000, key=None, value=b"\x00\xfe"),
    ]
    log.append(build_batch(records), 4)
    assert rows(capsys, "dump", directory) == [
        {
            "offset": 0,
            "epoch": 4,
            "timestamp": 1000,
            "key": "k",
            "value": "wört",
            "headers": [["trace", "\\xff"]],
        },
        {"offset": 1, "epoch": 4, "timestamp": 2000, "key": None, "value": "\x00\\xfe"},
    ]
    assert "key=k" in run(capsys, "dump", directory).splitlines()[0]
    assert main.run(["log", "dump", directory, "--topic", "x"]) == 2
    assert "this is a log of data" in capsys.readouterr().err
    assert main.run(["log", "show", directory]) == 1
    assert "metadata record at offset 0" in capsys.readouterr().err


def test_follow_prints_what_is_appended_later(data_dir: str) -> None:
    directory = f"{data_dir}/followed"
    log = MetadataLog(OsFiles(), directory, MetadataLogConfig(), ManualClock())
    log.append([topic()], 1)
    program = "import sys; from kraftpy.cli.main import run; sys.exit(run(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "log", "dump", "--follow", "--json", directory],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["offset"] == 0
        for offset in (1, 2):
            log.append([config("a", str(offset))], 1)
            assert json.loads(process.stdout.readline())["fields"]["value"] == str(offset)
    finally:
        process.kill()
        process.communicate()


def dump_to(output: int, data_dir: str) -> "subprocess.CompletedProcess[bytes]":
    arguments = ["log", "dump", data_dir]
    code = f"import sys; from kraftpy.cli.main import run; sys.exit(run({arguments!r}))"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False)


def test_a_reader_that_stops_reading_ends_a_dump_in_silence(data_dir: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = dump_to(writing, data_dir)
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_under_a_dump_is_not_the_logs_fault(data_dir: str) -> None:
    with open("/dev/full", "w") as full:
        done = dump_to(full.fileno(), data_dir)
    assert done.returncode == 1
    assert b"cannot write the output" in done.stderr
