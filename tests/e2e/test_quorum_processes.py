"""Controllers as processes: an orderly stop hands over, and a wiped voter is not let back in."""

import asyncio
import shutil
from pathlib import Path

from bench.quorum_processes import Processes
from tests.e2e.quorum_processes import Writer, check_logs
from tests.e2e.test_quorum_storm import more_writes


def test_a_wiped_voter_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    processes = Processes(str(tmp_path))

    async def story() -> None:
        writer = Writer(processes)
        processes.start()
        writing = asyncio.create_task(writer.run())
        try:
            await more_writes(writer, 20)
            await processes.wait_until_equal()
            leader = await processes.wait_for_leader()
            victim = next(node_id for node_id in processes.ports if node_id != leader)
            processes.kill(victim)
            shutil.move(processes.data_dir(victim), f"{processes.data_dir(victim)}-before")
            processes.start(victim)
            await more_writes(writer, 20)
            for _ in range(300):
                if "other_directory" in processes.output():
                    break
                await asyncio.sleep(0.1)
            assert "has another directory than before" in processes.output()
            status = await processes.status(victim)
            assert status.high_watermark <= 0, "it was given nothing"
            # With what it had, it comes back.
            processes.kill(victim)
            shutil.rmtree(processes.data_dir(victim))
            shutil.move(f"{processes.data_dir(victim)}-before", processes.data_dir(victim))
            processes.start(victim)
            await more_writes(writer, 20)
        finally:
            writer.stopping = True
            await writing
        end_offset = await processes.wait_until_equal()
        assert set(processes.stop().values()) == {0}
        check_logs(processes, writer, end_offset)

    try:
        asyncio.run(story())
    finally:
        processes.stop()
