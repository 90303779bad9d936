"""Registration of controllers: voters only, with features that the cluster's levels are among."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.records import (
    Endpoint,
    Feature,
    FeatureLevelRecord,
    RegisterControllerRecord,
)
from kraftpy.quorum.control.controllers import APIS
from kraftpy.quorum.control.features import bootstrap_records, supported_features
from kraftpy.types import BrokerId, Uuid
from kraftpy.wire.apis import CONTROLLER_REGISTRATION
from tests.unit.control.makers import answers, ask, image_of, situation

LISTENER = {"name": "CONTROLLER", "host": "one", "port": 9093, "security_protocol": 0}
FEATURES = [
    {
        "name": each.name,
        "min_supported_version": each.min_supported_version,
        "max_supported_version": each.max_supported_version,
    }
    for each in supported_features()
]
IMAGE = image_of(*bootstrap_records(image_of(), situation().settings))


def registration(**changed: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "controller_id": 1,
        "incarnation_id": UUID(bytes=b"I" * 16),
        "zk_migration_ready": False,
        "listeners": [LISTENER],
        "features": FEATURES,
    }
    return known | changed


def test_a_voter_registers_with_what_it_is() -> None:
    decision, answer = ask(APIS, situation(IMAGE), CONTROLLER_REGISTRATION, 0, **registration())
    assert answer.error_code is ErrorCode.none
    assert decision.records == (
        RegisterControllerRecord(
            controller_id=BrokerId(1),
            incarnation_id=Uuid(b"I" * 16),
            zk_migration_ready=False,
            end_points=(Endpoint(name="CONTROLLER", host="one", port=9093, security_protocol=0),),
            features=supported_features(),
        ),
    )
    assert list(replay_all(IMAGE, decision.records).controllers) == [1]


def test_registering_again_as_the_same_writes_nothing() -> None:
    first, _ = ask(APIS, situation(IMAGE), CONTROLLER_REGISTRATION, 0, **registration())
    image = replay_all(IMAGE, first.records)
    again, answer = ask(APIS, situation(image), CONTROLLER_REGISTRATION, 0, **registration())
    assert (answer.error_code, again.records) == (ErrorCode.none, ())
    restarted = registration(incarnation_id=UUID(bytes=b"J" * 16))
    anew, _ = ask(APIS, situation(image), CONTROLLER_REGISTRATION, 0, **restarted)
    assert len(anew.records) == 1


def feature(name: str, low: int, high: int) -> dict[str, Any]:
    return {"name": name, "min_supported_version": low, "max_supported_version": high}


@pytest.mark.parametrize(
    ("changed", "error_code"),
    [
        ({"controller_id": 4}, ErrorCode.unknown_controller_id),
        ({"listeners": [LISTENER, LISTENER]}, ErrorCode.invalid_registration),
        ({"listeners": [{**LISTENER, "security_protocol": 4}]}, ErrorCode.invalid_registration),
        ({"features": [*FEATURES, FEATURES[0]]}, ErrorCode.invalid_registration),
        ({"features": [*FEATURES, feature("x", 2, 1)]}, ErrorCode.invalid_registration),
        ({"features": [*FEATURES, feature("x", -1, 1)]}, ErrorCode.invalid_registration),
        ({"features": []}, ErrorCode.unsupported_version),
        ({"features": [feature("metadata.version", 7, 33)]}, ErrorCode.unsupported_version),
    ],
)
def test_what_is_refused(changed: dict[str, Any], error_code: ErrorCode) -> None:
    decision, answer = ask(
        APIS, situation(IMAGE), CONTROLLER_REGISTRATION, 0, **registration(**changed)
    )
    assert answer.error_code is error_code
    assert answer.error_message
    assert not decision.records


def test_a_level_that_the_controller_lacks_is_named() -> None:
    image = image_of(FeatureLevelRecord(name="x", feature_level=3), base=IMAGE)
    _, answer = ask(APIS, situation(image), CONTROLLER_REGISTRATION, 0, **registration())
    assert answer.error_message == "x has level 3, and only 0 to 0 is supported"


def test_a_refusal_for_all_is_answered() -> None:
    api = APIS[CONTROLLER_REGISTRATION]
    refused = api.refuse(None, ErrorCode.not_controller, "not here")
    answer = answers(CONTROLLER_REGISTRATION, api, refused)[0]
    assert (answer.error_code, answer.error_message) == (ErrorCode.not_controller, "not here")


def test_supported_features_are_in_the_order_of_their_names() -> None:
    assert supported_features()[0] == Feature(
        name="eligible.leader.replicas.version", min_supported_version=0, max_supported_version=1
    )
