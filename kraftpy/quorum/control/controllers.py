"""ControllerRegistration: where each controller listens and which features it supports (KIP-919).
Pure.

What always holds: only voters are registered, with features that include every level in use. None
is ever unregistered: a level that one voter cannot read would then pass for supported by all
(KAFKA-20865).
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.records import Endpoint, Feature, RegisterControllerRecord
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation, Values
from kraftpy.quorum.control.features import unsupported_level
from kraftpy.types import BrokerId, from_wire_uuid
from kraftpy.wire.apis import CONTROLLER_REGISTRATION, NO_THROTTLE, VersionRange

_SECURITY_PROTOCOLS: Final = range(4)  # PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL


def decide_controller_registration(situation: Situation, message: Any) -> Decision:
    """The controller's new incarnation; it replaces whatever the same id had registered."""
    record = RegisterControllerRecord(
        controller_id=BrokerId(message.controller_id),
        incarnation_id=from_wire_uuid(message.incarnation_id),
        zk_migration_ready=message.zk_migration_ready,
        end_points=tuple(
            Endpoint(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=each.security_protocol,
            )
            for each in message.listeners
        ),
        features=tuple(
            Feature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in message.features
        ),
    )
    if record.controller_id not in situation.settings.voter_ids:
        raise Refused(
            ErrorCode.unknown_controller_id, f"controller {record.controller_id} is not a voter"
        )
    _check_listeners(record)
    _check_features(record)
    lacking = unsupported_level(situation.image, record.features)
    if lacking is not None:
        raise Refused(ErrorCode.unsupported_version, lacking)
    # A controller that did not hear the answer asks again; the log need not grow by that.
    is_known = situation.image.controllers.get(record.controller_id) == record
    return Decision(records=() if is_known else (record,), response=_answer(ErrorCode.none, None))


def _check_listeners(record: RegisterControllerRecord) -> None:
    names = [each.name for each in record.end_points]
    if len(set(names)) != len(names):
        raise Refused(ErrorCode.invalid_registration, "two listeners have the same name")
    for each in record.end_points:
        if each.security_protocol not in _SECURITY_PROTOCOLS:
            raise Refused(
                ErrorCode.invalid_registration,
                f"listener {each.name} has the unknown security protocol {each.security_protocol}",
            )


def _check_features(record: RegisterControllerRecord) -> None:
    names = [each.name for each in record.features]
    if len(set(names)) != len(names):
        raise Refused(ErrorCode.invalid_registration, "two features have the same name")
    for each in record.features:
        if not 0 <= each.min_supported_version <= each.max_supported_version:
            raise Refused(
                ErrorCode.invalid_registration,
                f"feature {each.name} cannot be supported from {each.min_supported_version} "
                f"to {each.max_supported_version}",
            )


def _refuse(_message: Any, error_code: ErrorCode, why: str | None) -> Values:
    return _answer(error_code, why)


def _answer(error_code: ErrorCode, why: str | None) -> Values:
    return {"throttle_time": NO_THROTTLE, "error_code": error_code, "error_message": why}


APIS: Final[dict[int, ControlApi]] = {
    CONTROLLER_REGISTRATION: ControlApi(
        VersionRange(0, 0), decide_controller_registration, _refuse
    ),
}
