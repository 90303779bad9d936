"""Offsets over the wire, in old versions and new ones: limits, deletion, refusals."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.network.client import WireClient
from tests.interop.clusters import Served
from tests.interop.group_processes import create_topic

COMMIT, FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
DESCRIBE, LIST, DELETE, OFFSET_DELETE = 15, 16, 42, 47
PATIENCE_S = 60.0


def talk(served: Served, story: Callable[[WireClient], Awaitable[None]]) -> None:
    async def run() -> None:
        host, port = served.bootstrap.rsplit(":", 1)
        client = await WireClient.connect(host, int(port), timeout_s=PATIENCE_S)
        try:
            await story(client)
        finally:
            await client.close()

    asyncio.run(run())


async def ready(client: WireClient, group: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await client.ask(FIND, {"key": group}, version_max=0)
            if found.error_code is ErrorCode.none:
                fetched = await fetch(client, group, "t", 2)
                if fetched.error_code is ErrorCode.none:
                    return
            await asyncio.sleep(0.02)


async def fetch(client: WireClient, group: str, topic: str, version: int) -> Any:
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0, 1]}]}
    return await client.ask(FETCH, {**asked, "require_stable": True}, version_max=version)


def commit_values(group: str, topic: str, *texts: str, generation: int = -1) -> dict[str, Any]:
    partitions = [
        {
            "partition_index": index,
            "committed_offset": 10 + index,
            "committed_leader_epoch": -1,
            "committed_metadata": text,
        }
        for index, text in enumerate(texts)
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": "",
        "retention_time": timedelta(milliseconds=-1),
        "topics": [{"name": topic, "partitions": partitions}],
    }


@pytest.mark.parametrize("version", [2, 3, 5, 7, 9])
def test_offsets_are_committed_fetched_and_deleted(dev: Served, version: int) -> None:
    topic, group = create_topic(dev, 2), dev.topic("wire")

    async def story(client: WireClient) -> None:
        await ready(client, group)
        values = commit_values(group, topic, "note", "x" * 5000)
        found = await client.ask(COMMIT, values, version_max=version)
        assert [each.error_code for each in found.topics[0].partitions] == [
            ErrorCode.none,
            ErrorCode.offset_metadata_too_large,
        ]
        found = await fetch(client, group, topic, min(version, 7))
        assert [(p.committed_offset, p.metadata) for p in found.topics[0].partitions] == [
            (10, "note"),
            (-1, ""),
        ]
        everything = {"group_id": group, "topics": None, "require_stable": False}
        found = await client.ask(FETCH, everything, version_max=7)
        assert [(t.name, len(t.partitions)) for t in found.topics] == [(topic, 1)]
        deleted = {"name": topic, "partitions": [{"partition_index": 0}]}
        found = await client.ask(OFFSET_DELETE, {"group_id": group, "topics": [deleted]})
        assert found.topics[0].partitions[0].error_code is ErrorCode.none
        found = await fetch(client, group, topic, 2)
        assert found.topics[0].partitions[0].committed_offset == -1

    talk(dev, story)


def test_who_is_no_member_is_refused(dev: Served) -> None:
    topic, group = create_topic(dev, 1), dev.topic("wire")

    async def story(client: WireClient) -> None:
        await ready(client, group)
        found = await client.ask(
            COMMIT, commit_values(group, topic, "", generation=3), version_max=7
        )
        assert found.topics[0].partitions[0].error_code is ErrorCode.illegal_generation
        found = await client.ask(COMMIT, commit_values(group, "no-such-topic", ""), version_max=7)
        assert found.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition
        values = {"group_id": group, "generation_id": 1, "member_id": "m"}
        for key in (HEARTBEAT, SYNC):
            found = await client.ask(key, {**values, "assignments": []}, version_max=2)
            assert found.error_code is ErrorCode.unknown_member_id
        found = await client.ask(LEAVE, {"group_id": group, "member_id": "m"}, version_max=1)
        assert found.error_code is ErrorCode.unknown_member_id
        found = await client.ask(DELETE, {"groups_names": ["no-such-group"]})
        assert found.results[0].error_code is ErrorCode.group_id_not_found
        found = await client.ask(DESCRIBE, {"groups": ["no-such-group"]}, version_max=2)
        assert (found.groups[0].error_code, found.groups[0].group_state) == (ErrorCode.none, "Dead")

    talk(dev, story)


def test_joins_that_cannot_be_are_refused(dev: Served) -> None:
    group = dev.topic("wire")

    def values(**more: Any) -> dict[str, Any]:
        return {
            "group_id": group,
            "session_timeout": timedelta(seconds=10),
            "rebalance_timeout": timedelta(seconds=10),
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            **more,
        }

    async def story(client: WireClient) -> None:
        await ready(client, group)
        for more, error in (
            ({"group_id": ""}, ErrorCode.invalid_group_id),
            ({"session_timeout": timedelta(seconds=1)}, ErrorCode.invalid_session_timeout),
            ({"member_id": "m"}, ErrorCode.unknown_member_id),
            ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
            ({}, ErrorCode.member_id_required),
        ):
            found = await client.ask(JOIN, values(**more), version_max=5)
            assert found.error_code is error
        # Before version 4 a member is in at once; alone, it leads.
        found = await client.ask(JOIN, values(), version_max=0)
        assert (found.error_code, found.leader) == (ErrorCode.none, found.member_id)
        other = values(protocols=[{"name": "other", "metadata": b""}])
        refused = await client.ask(JOIN, other, version_max=5)
        assert refused.error_code is ErrorCode.inconsistent_group_protocol
        left = await client.ask(
            LEAVE, {"group_id": group, "member_id": found.member_id}, version_max=0
        )
        assert left.error_code is ErrorCode.none

    talk(dev, story)


def test_the_topic_of_offsets_is_internal(dev: Served) -> None:
    async def story(client: WireClient) -> None:
        await ready(client, "any")
        asked = {"topics": [{"name": "__consumer_offsets"}], "allow_auto_topic_creation": False}
        found = await client.ask(3, asked, version_max=4)
        assert found.topics[0].is_internal
        assert len(found.topics[0].partitions) == 50

    talk(dev, story)
