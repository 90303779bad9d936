"""SCRAM credentials: what is stored is what RFC 5802 says, and the password is not."""

import base64
import hashlib
import hmac
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.codec import encode_record
from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from kraftpy.quorum.control.scram import APIS, SCRAM_SHA_256, SCRAM_SHA_512
from kraftpy.wire.apis import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from tests.unit.control.makers import answers, ask, image_of, request, situation
from tests.unit.metadata_log.makers import scram

# The example of RFC 7677, section 3: user, pencil.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SALTED_PASSWORD = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
SERVER_SIGNATURE = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
AUTH_MESSAGE = (
    b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
)
CLIENT_PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def upsertion(name: str = "alice", **changed: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "mechanism": SCRAM_SHA_256,
        "iterations": 4096,
        "salt": SALT,
        "salted_password": SALTED_PASSWORD,
    }
    return {"name": name, **(known | changed)}


def deletion(name: str = "alice", mechanism: int = SCRAM_SHA_256) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def alter(image: Any, deletions: list[Any], upsertions: list[Any]) -> tuple[Any, dict[str, Any]]:
    decision, answer = ask(
        APIS,
        situation(image),
        ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=deletions,
        upsertions=upsertions,
    )
    users = [each.user for each in answer.results]
    assert len(set(users)) == len(users), "a user is answered once"
    return decision, {each.user: each.error_code for each in answer.results}


def test_the_stored_keys_verify_the_proof_of_the_rfc() -> None:
    decision, codes = alter(image_of(), [], [upsertion()])
    (record,) = decision.records
    assert codes == {"alice": ErrorCode.none}
    # RFC 5802: the proof is the client key, hidden under a signature that the stored key makes.
    signature = hmac.digest(record.stored_key, AUTH_MESSAGE, "sha256")
    proof = base64.b64decode(CLIENT_PROOF)
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == record.stored_key
    made = hmac.digest(record.server_key, AUTH_MESSAGE, "sha256")
    assert base64.b64encode(made).decode() == SERVER_SIGNATURE


def test_the_salted_password_does_not_reach_the_log() -> None:
    for mechanism, length in ((SCRAM_SHA_256, 32), (SCRAM_SHA_512, 64)):
        decision, _ = alter(image_of(), [], [upsertion(mechanism=mechanism)])
        (record,) = decision.records
        assert SALTED_PASSWORD not in encode_record(record)
        assert (len(record.stored_key), len(record.server_key)) == (length, length)
        assert (record.salt, record.iterations, record.mechanism) == (SALT, 4096, mechanism)


def test_removals_come_before_new_credentials() -> None:
    image = image_of(scram("bob"))
    decision, codes = alter(image, [deletion("bob", 1)], [upsertion("alice")])
    assert codes == {"bob": ErrorCode.none, "alice": ErrorCode.none}
    kinds = [type(record) for record in decision.records]
    assert kinds == [RemoveUserScramCredentialRecord, UserScramCredentialRecord]
    assert list(replay_all(image, decision.records).scram) == [("alice", 1)]


@pytest.mark.parametrize(
    ("changed", "error_code"),
    [
        ({"name": ""}, ErrorCode.unacceptable_credential),
        ({"mechanism": 0}, ErrorCode.unsupported_sasl_mechanism),
        ({"mechanism": 3}, ErrorCode.unsupported_sasl_mechanism),
        ({"iterations": 4095}, ErrorCode.unacceptable_credential),
        ({"iterations": 16385}, ErrorCode.unacceptable_credential),
        ({"salt": b""}, ErrorCode.unacceptable_credential),
        ({"salted_password": b""}, ErrorCode.unacceptable_credential),
        ({"iterations": 16384}, ErrorCode.none),
    ],
)
def test_which_credentials_are_taken(changed: dict[str, Any], error_code: ErrorCode) -> None:
    asked = upsertion(**changed)
    decision, codes = alter(image_of(), [], [asked, upsertion("other")])
    assert codes == {asked["name"]: error_code, "other": ErrorCode.none}
    assert len(decision.records) == (2 if error_code is ErrorCode.none else 1)


@pytest.mark.parametrize(
    ("asked", "error_code"),
    [
        (deletion(""), ErrorCode.unacceptable_credential),
        (deletion("alice", 3), ErrorCode.unsupported_sasl_mechanism),
        (deletion("alice", 2), ErrorCode.resource_not_found),
        (deletion("carol", 1), ErrorCode.resource_not_found),
    ],
)
def test_which_removals_are_refused(asked: dict[str, Any], error_code: ErrorCode) -> None:
    decision, codes = alter(image_of(scram("alice")), [asked], [])
    assert codes == {asked["name"]: error_code}
    assert not decision.records


@pytest.mark.parametrize(
    ("deletions", "upsertions"),
    [
        ([deletion(), deletion()], []),
        ([deletion()], [upsertion()]),
        ([], [upsertion(), upsertion(mechanism=SCRAM_SHA_512)]),
        ([deletion()], [upsertion(), upsertion()]),
    ],
)
def test_a_user_is_changed_once_in_a_request(deletions: list[Any], upsertions: list[Any]) -> None:
    decision, codes = alter(image_of(scram("alice")), deletions, [*upsertions, upsertion("bob")])
    assert codes == {"alice": ErrorCode.duplicate_resource, "bob": ErrorCode.none}
    assert [record.name for record in decision.records] == ["bob"]


def test_what_was_altered_is_described() -> None:
    decision, _ = alter(image_of(), [], [upsertion(iterations=8192)])
    image = replay_all(image_of(), decision.records)
    _, answer = ask(APIS, situation(image), DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    (result,) = answer.results
    assert result.user == "alice"
    assert [(each.mechanism, each.iterations) for each in result.credential_infos] == [(1, 8192)]


def test_refusals_for_all_are_answered() -> None:
    asked: dict[int, dict[str, Any]] = {
        ALTER_USER_SCRAM_CREDENTIALS: {
            "deletions": [deletion("bob")],
            "upsertions": [upsertion(), upsertion()],
        },
        DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
    }
    for api_key, values in asked.items():
        api = APIS[api_key]
        refused = api.refuse(request(api_key, 0, **values), ErrorCode.not_controller, "not here")
        answer = answers(api_key, api, refused)[0]
        codes = [each.error_code for each in answer.results] or [answer.error_code]
        assert codes == [ErrorCode.not_controller] * len(codes)
