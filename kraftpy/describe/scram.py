"""DescribeUserScramCredentials: who has which SCRAM credentials, and never the keys. Pure."""

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.image import ClusterImage
from kraftpy.wire.apis import NO_THROTTLE


def describe_user_scram_credentials(image: ClusterImage, message: Any) -> dict[str, Any]:
    """The mechanisms and iterations of the users asked for, or of all users that have any."""
    by_user: dict[str, list[dict[str, int]]] = {}
    for (user, mechanism), credential in sorted(image.scram.items()):
        info = {"mechanism": mechanism, "iterations": credential.iterations}
        by_user.setdefault(user, []).append(info)
    # No users to ask for means all of them, as null does.
    asked = Counter(each.name for each in message.users or ()) or Counter(list(by_user))
    results = [_result(user, times, by_user.get(user, [])) for user, times in asked.items()]
    return _answer(ErrorCode.none, None, results)


def _result(user: str, times: int, infos: list[dict[str, int]]) -> dict[str, Any]:
    error_code, why = ErrorCode.none, None
    if times > 1:
        error_code, why = ErrorCode.duplicate_resource, f"user {user} is asked for {times} times"
    elif not infos:
        error_code, why = ErrorCode.resource_not_found, f"user {user} has no SCRAM credentials"
    return {
        "user": user,
        "error_code": error_code,
        "error_message": why,
        "credential_infos": infos if error_code is ErrorCode.none else [],
    }


def refuse_describe_user_scram_credentials(
    _message: Any, error_code: ErrorCode, why: str | None
) -> dict[str, Any]:
    return _answer(error_code, why, [])


def _answer(error_code: ErrorCode, why: str | None, results: list[Any]) -> dict[str, Any]:
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": error_code,
        "error_message": why,
        "results": results,
    }
