"""Committed offsets: how long they are kept, what is refused, many groups, topics by their ids."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import apis
from kraftpy.types import TopicId, from_wire_uuid, to_wire_uuid
from tests.unit.broker.groups.coordinator_bench import (
    FIRST,
    FIRST_ID,
    SECOND,
    SECOND_ID,
    SESSION_MS,
    UNKNOWN_ID,
    WAIT_S,
    Coordinated,
    coordinated,
)

KEPT_MS = 1_000_000
OK, UNKNOWN = ErrorCode.none, ErrorCode.unknown_topic_or_partition


async def until_committed_are(
    bench: Coordinated, group: str, expected: dict[tuple[str, int], int]
) -> None:
    async with asyncio.timeout(WAIT_S):
        while await bench.committed(group) != expected:
            await asyncio.sleep(0.005)


# -- how long they are kept -------------------------------------------------------------------


def test_without_members_each_offset_is_kept_since_it_was_committed() -> None:
    async def story(bench: Coordinated) -> None:
        await bench.commit("simple", offsets={0: 5})
        bench.clock.advance(KEPT_MS // 2)
        await bench.commit("simple", offsets={1: 6})
        bench.clock.advance(KEPT_MS // 2 - 1000)
        await bench.checked()
        assert await bench.committed("simple") == {(FIRST, 0): 5, (FIRST, 1): 6}
        bench.clock.advance(1000)
        await until_committed_are(bench, "simple", {(FIRST, 1): 6})
        assert await bench.groups() == {"simple"}
        bench.clock.advance(KEPT_MS // 2)
        await until_committed_are(bench, "simple", {})
        assert await bench.groups() == set()
        await bench.restart()  # The log says the same.
        assert await bench.committed("simple") == {}
        assert await bench.groups() == set()

    coordinated(story, offsets_retention_ms=KEPT_MS)


def test_a_group_keeps_what_it_reads_and_all_since_it_became_empty() -> None:
    async def story(bench: Coordinated) -> None:
        joined = await bench.member("read")
        who = {
            "generation_id_or_member_epoch": joined.generation_id,
            "member_id": joined.member_id,
        }
        assert await bench.commit("read", offsets={0: 5}, **who) == [OK]
        assert await bench.commit("read", offsets={0: 7}, topic=SECOND, **who) == [OK]
        for _ in range(KEPT_MS // (SESSION_MS // 2)):
            bench.clock.advance(SESSION_MS // 2)
            await bench.ask(
                apis.HEARTBEAT,
                3,
                group_id="read",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=None,
            )
        bench.clock.advance(SESSION_MS // 2)
        await until_committed_are(bench, "read", {(FIRST, 0): 5})  # It does not read the other.
        await bench.leave("read", joined.member_id)
        bench.clock.advance(KEPT_MS - 1000)
        await bench.restart()  # Since when it is empty is in the log.
        await bench.checked()
        assert await bench.committed("read") == {(FIRST, 0): 5}
        bench.clock.advance(1000)
        await until_committed_are(bench, "read", {})
        assert await bench.groups() == set()

    coordinated(story, offsets_retention_ms=KEPT_MS)


def test_an_old_client_says_itself_how_long() -> None:
    async def story(bench: Coordinated) -> None:
        longer = timedelta(milliseconds=2 * KEPT_MS)
        assert await bench.commit("old", 2, offsets={0: 5}, retention_time=longer) == [OK]
        await bench.restart()
        bench.clock.advance(2 * KEPT_MS - 1000)
        await bench.checked()
        assert await bench.committed("old") == {(FIRST, 0): 5}
        bench.clock.advance(1000)
        await until_committed_are(bench, "old", {})

    coordinated(story, offsets_retention_ms=KEPT_MS)


# -- what is taken ----------------------------------------------------------------------------


def test_the_size_of_what_is_written_beside_an_offset_is_bounded_in_bytes() -> None:
    async def story(bench: Coordinated) -> None:
        assert await bench.commit("noted", text="ü" * 8) == [OK]
        too_large = ErrorCode.offset_metadata_too_large
        assert await bench.commit("noted", offsets={0: 2}, text="ü" * 8 + "u") == [too_large]
        assert await bench.committed("noted") == {(FIRST, 0): 1}
        # Who is refused for what it is, is told that.
        illegal = ErrorCode.illegal_generation
        who: dict[str, Any] = {"generation_id_or_member_epoch": 4, "member_id": "m"}
        assert await bench.commit("nobody", text="x" * 17, **who) == [illegal]

    coordinated(story, metadata_bytes_max=16)


@pytest.mark.parametrize("version", [2, 6, 9, 10])
def test_offsets_of_partitions_that_are_not_there_are_refused(version: int) -> None:
    async def story(bench: Coordinated) -> None:
        retention = {"retention_time": timedelta(milliseconds=-1)}
        found = await bench.commit("g", version, offsets={0: 1, 2: 3, 3: 4, -1: 5}, **retention)
        assert found == [OK, OK, UNKNOWN, UNKNOWN]
        assert await bench.committed("g") == {(FIRST, 0): 1, (FIRST, 2): 3}

    coordinated(story)


# -- topics by their ids, several groups ------------------------------------------------------


def test_topics_are_named_by_their_ids_since_version_10() -> None:
    async def story(bench: Coordinated) -> None:
        assert await bench.commit("ids", 10, offsets={0: 4}) == [OK]
        assert await bench.commit("ids", 10, offsets={1: 5}, topic_id=SECOND_ID) == [OK]
        unknown = ErrorCode.unknown_topic_id
        assert await bench.commit("ids", 10, topic_id=UNKNOWN_ID) == [unknown]
        assert await bench.committed("ids") == {(FIRST, 0): 4, (SECOND, 1): 5}
        group = await fetched(bench, 10, "ids", (FIRST_ID, [0, 1]), (UNKNOWN_ID, [0]))
        assert offsets_of(group) == {
            (FIRST_ID, 0): (4, OK),
            (FIRST_ID, 1): (-1, OK),
            (UNKNOWN_ID, 0): (-1, unknown),
        }
        everything = await fetched(bench, 10, "ids")
        assert offsets_of(everything) == {(FIRST_ID, 0): (4, OK), (SECOND_ID, 1): (5, OK)}

    coordinated(story)


async def fetched(
    bench: Coordinated, version: int, group: str, *topics: tuple[TopicId, list[int]]
) -> Any:
    """What a group has; of all topics if none is named."""
    asked = {
        "group_id": group,
        "topics": [
            {"topic_id": to_wire_uuid(each), "partition_indexes": indexes}
            for each, indexes in topics
        ]
        or None,
        "member_id": None,
        "member_epoch": -1,
    }
    found = await bench.ask(apis.OFFSET_FETCH, version, groups=[asked], require_stable=False)
    (answer,) = found.groups
    return answer


def offsets_of(group: Any) -> dict[tuple[TopicId, int], tuple[int, ErrorCode]]:
    assert group.error_code is OK
    return {
        (TopicId(from_wire_uuid(topic.topic_id)), each.partition_index): (
            each.committed_offset,
            each.error_code,
        )
        for topic in group.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", [8, 9])
def test_several_groups_are_asked_for_at_once(version: int) -> None:
    async def story(bench: Coordinated) -> None:
        await bench.commit("a", offsets={0: 4})
        await bench.commit("b", offsets={1: 5, 2: 6})
        who = {"member_id": None, "member_epoch": -1}
        named = [{"name": FIRST, "partition_indexes": [0, 1]}]
        groups = [
            {"group_id": "b", "topics": None, **who},
            {"group_id": "a", "topics": named, **who},
            {"group_id": "nobody", "topics": named, **who},
            {"group_id": "", "topics": named, **who},
            {"group_id": "a", "topics": [], **who},
        ]
        found = await bench.ask(apis.OFFSET_FETCH, version, groups=groups, require_stable=True)

        def offsets(group: Any) -> list[tuple[int, int]]:
            found = (each for topic in group.topics for each in topic.partitions)
            return [(each.partition_index, each.committed_offset) for each in found]

        assert [(each.group_id, each.error_code, offsets(each)) for each in found.groups] == [
            ("b", OK, [(1, 5), (2, 6)]),
            ("a", OK, [(0, 4), (1, -1)]),
            ("nobody", OK, [(0, -1), (1, -1)]),
            ("", ErrorCode.invalid_group_id, []),
            ("a", OK, []),
        ]

    coordinated(story)
