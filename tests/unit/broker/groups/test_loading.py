"""What a coordinator says while it reads its partition, and that it has lost nothing afterwards."""

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import apis
from tests.unit.broker.groups.coordinator_bench import (
    FIRST,
    SESSION_MS,
    Coordinated,
    coordinated,
    subscription,
)

OK, LOADING = ErrorCode.none, ErrorCode.coordinator_load_in_progress
GROUP = {"group_id": "g"}
LIFE = timedelta(milliseconds=SESSION_MS)


def requests_of(member: Any) -> list[tuple[int, int, dict[str, Any], ErrorCode]]:
    """By a member of the group: api key, version, the rest of it, and what is answered meanwhile.

    As with Kafka, a heartbeat is well, and who wants its assignment is to join again.
    """
    who = {
        "member_id": member.member_id,
        "generation_id": member.generation_id,
        "group_instance_id": None,
    }
    protocols = [{"name": "range", "metadata": subscription(FIRST)}]
    joining = {"session_timeout": LIFE, "rebalance_timeout": LIFE, "protocols": protocols}
    joining |= {"member_id": "", "group_instance_id": None, "protocol_type": "consumer"}
    syncing = {**who, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    leaving = {"member_id": member.member_id, "group_instance_id": None, "reason": None}
    return [
        (apis.JOIN_GROUP, 7, joining, LOADING),
        (apis.SYNC_GROUP, 5, syncing, ErrorCode.rebalance_in_progress),
        (apis.HEARTBEAT, 4, who, OK),
        (apis.LEAVE_GROUP, 5, {"members": [leaving]}, LOADING),
        (apis.OFFSET_FETCH, 7, {"topics": None, "require_stable": False}, LOADING),
        (apis.OFFSET_DELETE, 0, {"topics": []}, LOADING),
    ]


def test_who_comes_while_the_log_is_read_is_told_to_come_again() -> None:
    async def story(bench: Coordinated) -> None:
        member = await bench.member("g")
        assert await bench.commit("simple", offsets={0: 5, 2: 7}) == [OK, OK]
        asked = requests_of(member)
        await bench.restart()  # Nothing has been read before somebody waits for something.
        assert [led.is_loaded for led in bench.coordinator.led()] == [False]
        for api_key, version, values, expected in asked:
            found = await bench.ask_now(api_key, version, **GROUP, **values)
            assert found.error_code is expected, api_key
        assert [led.is_loaded for led in bench.coordinator.led()] == [False]
        assert await bench.committed("simple") == {(FIRST, 0): 5, (FIRST, 2): 7}
        api_key, version, values, _ = asked[2]
        assert (await bench.ask(api_key, version, **GROUP, **values)).error_code is OK
        other = {**values, "generation_id": member.generation_id - 1}
        found = await bench.ask(api_key, version, **GROUP, **other)
        assert found.error_code is ErrorCode.illegal_generation

    coordinated(story)
