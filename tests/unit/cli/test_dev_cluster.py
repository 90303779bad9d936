"""`kraftpy dev` with several nodes: in lines, on a terminal, and what is left of it."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

TIMEOUT_S = 120
PROGRAM = "from kraftpy.cli.main import main; main()"
COMMAND = [sys.executable, "-c", PROGRAM, "dev", "--controllers", "1", "--brokers", "2"]


@contextmanager
def lines(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"{pattern} is not in\n{''.join(seen)}")


def order(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def test_faults_are_told_in_lines_and_nothing_is_left(tmp_path: Path) -> None:
    with lines(tmp_path) as process:
        servers = until(process, r"clients at (\S+)")[1]
        assert list(tmp_path.iterdir())
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        until(process, "Ctrl-C")
        order(process, "kill 7")
        until(process, "there is no node 7")
        order(process, "nonsense")
        until(process, "'nonsense' is not an order")
        order(process, "kill 102")
        until(process, "node 102 is killed")
        order(process, "restart 102")
        until(process, "node 102 is (running|starting)")
        order(process, "isolate 101")
        until(process, "isolate 101: done")
        order(process, "heal")
        until(process, "heal: done")
        assert len(producer.list_topics(timeout=TIMEOUT_S).brokers) > 0
        process.send_signal(signal.SIGINT)
        until(process, "stopping")
        assert process.wait(TIMEOUT_S) == 0
    assert list(tmp_path.iterdir()) == []


def test_several_nodes_have_ports_of_their_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--listen", "127.0.0.1:9092"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--listen and --voters are for one broker" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_table_on_a_terminal_follows_the_keys(tmp_path: Path) -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TMPDIR=str(tmp_path), TERM="xterm", COLUMNS="140", LINES="40")
        os.execv(sys.executable, COMMAND)
    try:
        screen(terminal, r"records/s[\s\S]*101\s+broker\s+running")
        os.write(terminal, b"\x1b[Bp")  # The next one, and pause it.
        screen(terminal, r"102\s+broker\s+paused")
        os.write(terminal, b"c")
        screen(terminal, r"102\s+broker\s+running")
        os.write(terminal, b"q")
        screen(terminal, "stopping")
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        process = 0
    finally:
        os.close(terminal)
        if process:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    assert list(tmp_path.iterdir()) == []


def screen(terminal: int, pattern: str) -> None:
    """Read until what was drawn since the last call shows the pattern; colours do not count."""
    text = ""
    deadline = time.monotonic() + TIMEOUT_S
    while not re.search(pattern, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)):
        assert time.monotonic() < deadline, text
        ready, _, _ = select.select([terminal], [], [], 1.0)
        if ready:
            text += os.read(terminal, 65536).decode(errors="replace")
