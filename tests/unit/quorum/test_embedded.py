"""A quorum inside of a program: what it takes, what it refuses, who sees it."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bench.quorum_processes import free_ports
from kraftpy.errors import ConfigError, NotController, ReplayError
from kraftpy.metadata_log.records import TOPIC_RESOURCE, ConfigRecord, RemoveTopicRecord
from kraftpy.quorum import embedded_quorum
from kraftpy.types import TopicId, Uuid


def config(value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="k", value=value)


def test_three_voters_agree_and_only_the_leader_proposes(tmp_path: Path) -> None:
    async def main() -> None:
        ports = free_ports(3)
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(ports, start=1))
        async with AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(
                    embedded_quorum(n, voters, str(tmp_path / f"node-{n}"))
                )
                for n in (1, 2, 3)
            ]
            async with asyncio.timeout(60):
                leader_id = await nodes[0].leader()
                leader = nodes[leader_id - 1]
                while leader.leader_id != leader_id:
                    await asyncio.sleep(0.01)
                follower = next(each for each in nodes if each is not leader)
                end_offset = await leader.propose(config("1"))
                image = await follower.reached(end_offset)
                assert image.configs[TOPIC_RESOURCE, "t"]["k"] == "1"
                with pytest.raises(NotController):
                    await follower.propose(config("2"))

    asyncio.run(main())


def test_a_record_that_may_not_follow_is_not_written(tmp_path: Path) -> None:
    async def main() -> None:
        voters = f"1@127.0.0.1:{free_ports(1)[0]}"
        async with embedded_quorum(1, voters, str(tmp_path)) as quorum, asyncio.timeout(60):
            await quorum.leader()
            before = await quorum.propose(config("1"))
            with pytest.raises(ReplayError):
                await quorum.propose(RemoveTopicRecord(topic_id=TopicId(Uuid(b"x" * 16))))
            assert await quorum.propose(config("2")) == before + 1

    asyncio.run(main())


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        async with embedded_quorum(1, "1@127.0.0.1:9093", str(tmp_path), {"no.such": "1"}):
            raise AssertionError("it started")

    with pytest.raises(ConfigError, match=r"no\.such"):
        asyncio.run(main())
