"""What admins are told of groups, and how many members one may have."""

from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.broker.groups import apis
from kraftpy.broker.groups.admin_apis import GROUP_OPERATIONS, NOT_ASKED
from tests.unit.broker.groups.coordinator_bench import Coordinated, coordinated

OK = ErrorCode.none


async def three_groups(bench: Coordinated) -> None:
    """One that is stable, one that is empty, and one of the new protocol."""
    await bench.member("stable")
    await bench.commit("empty")
    led = bench.coordinator.find("new")
    assert not isinstance(led, ErrorCode)
    assert bench.coordinator.make_consumers(led, "new") is not None


def test_groups_are_listed_by_their_states_and_types() -> None:
    async def story(bench: Coordinated) -> None:
        await three_groups(bench)
        assert await bench.groups() == {"stable", "empty", "new"}
        for filters, expected in (
            ({"states_filter": ["Stable"]}, {"stable"}),
            ({"states_filter": ["empty"]}, {"empty", "new"}),
            ({"states_filter": ["Stable", "Empty"]}, {"stable", "empty", "new"}),
            ({"states_filter": ["Nonsense"]}, set()),
            ({"types_filter": ["classic"]}, {"stable", "empty"}),
            ({"types_filter": ["Consumer"]}, {"new"}),
            ({"types_filter": ["share"]}, set()),
            ({"types_filter": ["classic"], "states_filter": ["Empty"]}, {"empty"}),
            ({"types_filter": ["classic", "consumer"], "states_filter": ["Stable"]}, {"stable"}),
        ):
            assert await bench.groups(**filters) == expected, filters
        found = await bench.ask(apis.LIST_GROUPS, 5, states_filter=["stable"], types_filter=[])
        (listed,) = found.groups
        assert (listed.group_state, listed.group_type) == ("Stable", "classic")
        assert listed.protocol_type == "consumer"
        before = await bench.ask(apis.LIST_GROUPS, 3)  # It has no filter yet.
        assert {each.group_id for each in before.groups} == {"stable", "empty", "new"}

    coordinated(story)


def test_operations_are_told_to_who_asks_for_them() -> None:
    async def story(bench: Coordinated) -> None:
        await three_groups(bench)
        for asked, expected in ((True, GROUP_OPERATIONS), (False, NOT_ASKED)):
            found = await bench.ask(
                apis.DESCRIBE_GROUPS, 6, groups=["stable"], include_authorized_operations=asked
            )
            assert found.groups[0].authorized_operations == expected

    coordinated(story)


def test_who_is_described_by_which_version() -> None:
    async def story(bench: Coordinated) -> None:
        await three_groups(bench)

        async def described(version: int) -> list[tuple[Any, ...]]:
            names = ["stable", "empty", "new", "nobody"]
            found = await bench.ask(
                apis.DESCRIBE_GROUPS, version, groups=names, include_authorized_operations=False
            )
            return [(each.error_code, each.group_state, len(each.members)) for each in found.groups]

        known = [(OK, "Stable", 1), (OK, "Empty", 0)]
        missing = ErrorCode.group_id_not_found
        assert await described(5) == [*known, (OK, "Dead", 0), (OK, "Dead", 0)]
        assert await described(6) == [*known, (missing, "Dead", 0), (missing, "Dead", 0)]

    coordinated(story)


def test_a_group_has_no_more_members_than_it_may() -> None:
    async def story(bench: Coordinated) -> None:
        joined = await bench.member("small")
        refused = await bench.join("small")
        assert refused.error_code is ErrorCode.group_max_size_reached
        again = await bench.join("small", joined.member_id)  # Who is in it stays in it.
        assert again.error_code is OK
        await bench.leave("small", joined.member_id)
        assert (await bench.join("small")).error_code is OK

    coordinated(story, size_max=1)
