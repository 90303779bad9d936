"""Three controllers as processes, killed and stopped under a writer: nothing acknowledged is lost.

`STORM_ROUNDS=50` for the long run (`make quorum-storm`).
"""

import asyncio
import os
import random
import signal
from pathlib import Path

from bench.quorum_processes import Processes
from tests.e2e.quorum_processes import Writer, check_logs

ROUNDS = int(os.environ.get("STORM_ROUNDS", "4"))
FAULTS = ("kill leader", "kill follower", "kill all", "stop leader")
WRITES_BETWEEN = 20


async def more_writes(writer: Writer, count: int) -> None:
    """Wait until so many more were acknowledged."""
    before = len(writer.acked)
    for _ in range(3000):
        if len(writer.acked) >= before + count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"no progress in 30 s\n{writer.processes.output()}")


async def disturb(processes: Processes, fault: str, rng: random.Random) -> None:
    leader = await processes.wait_for_leader()
    followers = [node_id for node_id in processes.ports if node_id != leader]
    match fault:
        case "kill leader":
            processes.kill(leader)
            await processes.wait_for_leader()
            processes.start(leader)
        case "kill follower":
            victim = rng.choice(followers)
            processes.kill(victim)
            await asyncio.sleep(rng.random())
            processes.start(victim)
        case "kill all":
            processes.kill(*processes.ports)
            processes.start()
        case "stop leader":
            processes.signal(leader, signal.SIGSTOP)
            await asyncio.sleep(5)
            processes.signal(leader, signal.SIGCONT)


async def storm(processes: Processes, rounds: int) -> None:
    rng = random.Random(rounds)
    writer = Writer(processes)
    processes.start()
    writing = asyncio.create_task(writer.run())
    try:
        for number in range(rounds):
            await more_writes(writer, WRITES_BETWEEN)
            await disturb(processes, FAULTS[number % len(FAULTS)], rng)
        await more_writes(writer, WRITES_BETWEEN)
    finally:
        writer.stopping = True
        await writing
    end_offset = await processes.wait_until_equal()
    codes = processes.stop()
    assert set(codes.values()) == {0}, processes.output()
    check_logs(processes, writer, end_offset)
    assert len(writer.acked) >= (rounds + 1) * WRITES_BETWEEN


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    processes = Processes(str(tmp_path))
    try:
        asyncio.run(storm(processes, ROUNDS))
    finally:
        processes.stop()
