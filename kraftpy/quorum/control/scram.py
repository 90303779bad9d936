"""AlterUserScramCredentials: SCRAM credentials of users, set and removed. Pure.

What always holds: the salted password, with which anybody could log in, ends here. The log gets
the stored key and the server key (RFC 5802, section 3), which only prove who knows it.

As in Kafka a request may change each user once, whatever the mechanism: the answer names users and
not mechanisms, so that two changes could not be told apart in it.
"""

import hashlib
import hmac
from collections import Counter
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.describe.scram import (
    describe_user_scram_credentials,
    refuse_describe_user_scram_credentials,
)
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from kraftpy.quorum.control.decision import ControlApi, Decision, Situation, Values
from kraftpy.wire.apis import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    NO_THROTTLE,
    VersionRange,
)

SCRAM_SHA_256: Final = 1
SCRAM_SHA_512: Final = 2
_HASHES: Final = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
_ITERATIONS: Final = range(4096, 16384 + 1)


def decide_alter_user_scram_credentials(situation: Situation, message: Any) -> Decision:
    """Removals, then new credentials; a user that cannot be changed keeps what it has."""
    records: list[MetadataRecord] = []
    results: dict[str, dict[str, Any]] = {}
    times = Counter(each.name for each in (*message.deletions, *message.upsertions))
    for deletion in message.deletions:
        problem = _repeated(deletion, times) or _deletion_problem(situation.image, deletion)
        results[deletion.name] = _result(deletion.name, problem)
        if problem is None:
            records.append(
                RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism)
            )
    for upsertion in message.upsertions:
        problem = _repeated(upsertion, times) or _upsertion_problem(upsertion)
        results[upsertion.name] = _result(upsertion.name, problem)
        if problem is None:
            records.append(_credential(upsertion))
    return Decision(
        records=records,
        response={"throttle_time": NO_THROTTLE, "results": list(results.values())},
    )


Problem = tuple[ErrorCode, str]


def _repeated(change: Any, times: Counter[str]) -> Problem | None:
    if times[change.name] > 1:
        return ErrorCode.duplicate_resource, f"user {change.name} is changed twice in one request"
    return None


def _deletion_problem(image: ClusterImage, deletion: Any) -> Problem | None:
    problem = _key_problem(deletion)
    if problem is None and (deletion.name, deletion.mechanism) not in image.scram:
        return ErrorCode.resource_not_found, f"user {deletion.name} has no such credential"
    return problem


def _upsertion_problem(upsertion: Any) -> Problem | None:
    problem = _key_problem(upsertion)
    if problem is None and upsertion.iterations not in _ITERATIONS:
        return (
            ErrorCode.unacceptable_credential,
            f"{upsertion.iterations} iterations are not between {_ITERATIONS[0]} "
            f"and {_ITERATIONS[-1]}",
        )
    if problem is None and not (upsertion.salt and upsertion.salted_password):
        return ErrorCode.unacceptable_credential, "the salt or the salted password is empty"
    return problem


def _key_problem(change: Any) -> Problem | None:
    if not change.name:
        return ErrorCode.unacceptable_credential, "a user has a name"
    if change.mechanism not in _HASHES:
        return (
            ErrorCode.unsupported_sasl_mechanism,
            f"{change.mechanism} is not a SCRAM mechanism",
        )
    return None


def _credential(upsertion: Any) -> UserScramCredentialRecord:
    algorithm = _HASHES[upsertion.mechanism]
    client_key = hmac.digest(upsertion.salted_password, b"Client Key", algorithm)
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=upsertion.salt,
        stored_key=hashlib.new(algorithm, client_key).digest(),
        server_key=hmac.digest(upsertion.salted_password, b"Server Key", algorithm),
        iterations=upsertion.iterations,
    )


def _result(user: str, problem: Problem | None) -> dict[str, Any]:
    error_code, why = (ErrorCode.none, None) if problem is None else problem
    return {"user": user, "error_code": error_code, "error_message": why}


def _refuse_alter(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    users = dict.fromkeys(each.name for each in (*message.deletions, *message.upsertions))
    return {
        "throttle_time": NO_THROTTLE,
        "results": [
            {"user": user, "error_code": error_code, "error_message": why} for user in users
        ],
    }


def _decide_describe(situation: Situation, message: Any) -> Decision:
    return Decision(records=(), response=describe_user_scram_credentials(situation.image, message))


APIS: Final[dict[int, ControlApi]] = {
    ALTER_USER_SCRAM_CREDENTIALS: ControlApi(
        VersionRange(0, 0), decide_alter_user_scram_credentials, _refuse_alter
    ),
    DESCRIBE_USER_SCRAM_CREDENTIALS: ControlApi(
        VersionRange(0, 0), _decide_describe, refuse_describe_user_scram_credentials
    ),
}
