"""Who has which SCRAM credentials: all users or those asked for, and never a key."""

from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.describe.scram import describe_user_scram_credentials
from kraftpy.wire.apis import DESCRIBE_USER_SCRAM_CREDENTIALS
from tests.unit.control.makers import image_of, request
from tests.unit.metadata_log.makers import scram

IMAGE = image_of(scram("bob", 2), scram("alice", 1), scram("bob", 1))


def described(users: list[str] | None) -> dict[str, Any]:
    names = None if users is None else [{"name": name} for name in users]
    message = request(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=names)
    answer = describe_user_scram_credentials(IMAGE, message)
    assert answer["error_code"] is ErrorCode.none
    return {each["user"]: each for each in answer["results"]}


def test_no_users_asked_for_means_all() -> None:
    nobody: list[str] = []
    for users in (None, nobody):
        found = described(users)
        assert list(found) == ["alice", "bob"]
        assert [each["mechanism"] for each in found["bob"]["credential_infos"]] == [1, 2]


def test_only_those_asked_for_are_described() -> None:
    assert list(described(["bob"])) == ["bob"]


def test_a_user_without_credentials_is_an_error_of_its_own() -> None:
    found = described(["carol", "alice"])
    assert found["carol"]["error_code"] is ErrorCode.resource_not_found
    assert found["carol"]["credential_infos"] == []
    assert found["alice"]["error_code"] is ErrorCode.none


def test_a_user_asked_for_twice_is_refused_once() -> None:
    found = described(["alice", "bob", "alice"])
    assert found["alice"]["error_code"] is ErrorCode.duplicate_resource
    assert found["bob"]["error_code"] is ErrorCode.none
