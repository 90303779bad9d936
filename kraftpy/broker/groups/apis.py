"""Which API of groups is answered by what."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from kraftpy.broker.groups import admin_apis, consumer_apis, member_apis, offset_apis
from kraftpy.broker.groups.coordinator import GroupCoordinator
from kraftpy.broker.groups.find_coordinator import CoordinatorFinder
from kraftpy.wire.apis import Request

Answer = Callable[[Request, str], Awaitable[bytearray]]

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
DELETE_GROUPS: Final = 42
OFFSET_DELETE: Final = 47
CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69


def group_answers(coordinator: GroupCoordinator, finder: CoordinatorFinder) -> Mapping[int, Answer]:
    return {
        CONSUMER_GROUP_HEARTBEAT: partial(consumer_apis.consumer_group_heartbeat, coordinator),
        CONSUMER_GROUP_DESCRIBE: partial(consumer_apis.consumer_group_describe, coordinator),
        FIND_COORDINATOR: finder.find_coordinator,
        OFFSET_COMMIT: partial(offset_apis.offset_commit, coordinator),
        OFFSET_FETCH: partial(offset_apis.offset_fetch, coordinator),
        JOIN_GROUP: partial(member_apis.join_group, coordinator),
        HEARTBEAT: partial(member_apis.heartbeat, coordinator),
        LEAVE_GROUP: partial(member_apis.leave_group, coordinator),
        SYNC_GROUP: partial(member_apis.sync_group, coordinator),
        DESCRIBE_GROUPS: partial(admin_apis.describe_groups, coordinator),
        LIST_GROUPS: partial(admin_apis.list_groups, coordinator),
        DELETE_GROUPS: partial(admin_apis.delete_groups, coordinator),
        OFFSET_DELETE: partial(offset_apis.offset_delete, coordinator),
    }
