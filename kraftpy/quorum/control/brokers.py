"""BrokerRegistration and UnregisterBroker: which brokers there are. Pure.

What always holds: an incarnation has one epoch, the base offset of the batch that registered it
(KAFKA-16952: registering again does not change it); a new incarnation starts fenced and is in no
ISR, except as the last member of one; no two brokers share a log directory.

What a new incarnation holds depends on how the one before it ended (KIP-966). After a clean
shutdown, which the broker proves with the epoch it had, it leaves ISRs like a fenced broker. After
an unclean one it may have lost what it had acknowledged, so it leaves the ELR, too. Either way
these changes come first in the registration's own batch (KAFKA-18106).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.delta import replay_all
from kraftpy.metadata_log.image import Broker, ClusterImage
from kraftpy.metadata_log.records import (
    LOST_DIRECTORY,
    METADATA_VERSION,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    Endpoint,
    Feature,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from kraftpy.quorum.control.broker_epochs import registered_broker
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation, Values
from kraftpy.quorum.control.fencing import (
    Records,
    lead_what_it_can,
    leave_directories,
    leave_for_good,
    leave_isrs,
)
from kraftpy.types import BrokerId, Uuid, from_wire_uuid, uuid_text
from kraftpy.wire import apis
from kraftpy.wire.apis import NO_THROTTLE, VersionRange

_NO_BROKER_EPOCH: Final = -1
_SECURITY_PROTOCOLS: Final = range(4)  # PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.
_RESERVED_DIRECTORIES: Final = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY)


# -- BrokerRegistration -----------------------------------------------------------------------


def decide_registration(situation: Situation, message: Any) -> Decision:
    """A new incarnation, fenced, or the same one with what changed since it registered."""
    broker_id = BrokerId(message.broker_id)
    existing = situation.image.brokers.get(broker_id)
    _check_identity(situation, message, existing)
    log_dirs = _checked_log_dirs(situation.image, message)
    end_points = _checked_end_points(message)
    features = _checked_features(situation.image, message)
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=from_wire_uuid(message.incarnation_id),
        broker_epoch=situation.image.end_offset,
        end_points=end_points,
        features=features,
        rack=message.rack,
        fenced=True,
        log_dirs=log_dirs,
    )
    if existing is not None and existing.incarnation_id == record.incarnation_id:
        record = _same_life(existing, record)
        records = _amend(situation, existing, record)
    else:
        records = (*_end_previous_life(situation, message, existing), record)
    response = _registration_answer(ErrorCode.none, record.broker_epoch)
    return Decision(records=records, response=response, own=True)


def _same_life(existing: Broker, record: RegisterBrokerRecord) -> RegisterBrokerRecord:
    return replace(
        record,
        broker_epoch=existing.broker_epoch,
        fenced=existing.fenced,
        in_controlled_shutdown=existing.in_controlled_shutdown,
        cordoned_log_dirs=tuple(d for d in existing.cordoned_log_dirs if d in record.log_dirs),
    )


def _amend(situation: Situation, existing: Broker, record: RegisterBrokerRecord) -> Records:
    if record == existing:
        return ()  # A broker that did not hear the answer asks again: the log need not grow.
    lost = [each for each in existing.log_dirs if record.log_dirs and each not in record.log_dirs]
    records: Records = (*leave_directories(situation, existing, lost), record)
    if set(record.log_dirs) <= set(existing.log_dirs) and record.log_dirs:
        return records
    # Replicas in directories that it names now may be the leaders that partitions wait for.
    after = replay_all(situation.image, records)
    return (*records, *lead_what_it_can(situation, record.broker_id, image=after))


def _end_previous_life(situation: Situation, message: Any, existing: Broker | None) -> Records:
    """What an earlier incarnation of the broker, or an unregistered one, still holds."""
    previous_epoch = getattr(message, "previous_broker_epoch", _NO_BROKER_EPOCH)
    is_clean = existing is not None and existing.broker_epoch == previous_epoch
    if is_clean:
        return leave_isrs(situation, BrokerId(message.broker_id))
    return leave_for_good(situation, BrokerId(message.broker_id))


# -- what is refused --------------------------------------------------------------------------


def _check_identity(situation: Situation, message: Any, existing: Broker | None) -> None:
    cluster_id = uuid_text(situation.settings.cluster_id)
    if message.cluster_id != cluster_id:
        raise Refused(
            ErrorCode.inconsistent_cluster_id,
            f"this is cluster {cluster_id}, the broker belongs to {message.cluster_id}",
        )
    if message.broker_id < 0:
        raise Refused(ErrorCode.invalid_registration, f"{message.broker_id} is not a broker id")
    if existing is not None and _is_taken(situation, message, existing):
        raise Refused(
            ErrorCode.duplicate_broker_registration,
            f"another broker {message.broker_id} is alive; if it was just restarted, its session "
            "will end soon",
        )
    if getattr(message, "is_migrating_zk_broker", False):
        raise Refused(ErrorCode.broker_id_not_registered, "there is no ZooKeeper to migrate from")


def _is_taken(situation: Situation, message: Any, existing: Broker) -> bool:
    """A fenced broker has no session: who was stopped may start again at once (KAFKA-19130)."""
    if existing.incarnation_id == from_wire_uuid(message.incarnation_id):
        return False
    timeout_ms = situation.settings.broker_session_timeout_ms
    return situation.heartbeats.has_session(existing.broker_id, situation.now_ms, timeout_ms)


def _checked_log_dirs(image: ClusterImage, message: Any) -> tuple[Uuid, ...]:
    if not hasattr(message, "log_dirs"):
        return ()  # Versions 0 and 1: a broker that does not name its directories.
    log_dirs = tuple(from_wire_uuid(each) for each in message.log_dirs)
    if not log_dirs:
        raise Refused(ErrorCode.invalid_registration, "a broker needs a log directory")
    if any(each in _RESERVED_DIRECTORIES for each in log_dirs):
        raise Refused(ErrorCode.invalid_registration, "a directory id is a reserved one")
    named = set(log_dirs)
    if len(named) != len(log_dirs):
        raise Refused(ErrorCode.invalid_registration, "a directory is named twice")
    for broker_id, broker in image.brokers.items():
        if broker_id != message.broker_id and not named.isdisjoint(broker.log_dirs):
            raise Refused(
                ErrorCode.invalid_registration,
                f"a directory is registered by broker {broker_id} already",
            )
    return log_dirs


def _checked_end_points(message: Any) -> tuple[Endpoint, ...]:
    names = [each.name for each in message.listeners]
    if len(set(names)) != len(names):
        raise Refused(ErrorCode.invalid_registration, "two listeners have the same name")
    for each in message.listeners:
        if each.security_protocol not in _SECURITY_PROTOCOLS:
            raise Refused(
                ErrorCode.invalid_registration,
                f"listener {each.name} has the unknown security protocol {each.security_protocol}",
            )
    return tuple(
        Endpoint(
            name=each.name,
            host=each.host,
            port=each.port,
            security_protocol=each.security_protocol,
        )
        for each in message.listeners
    )


def _checked_features(image: ClusterImage, message: Any) -> tuple[Feature, ...]:
    """The broker must be able to live with every finalized level, named by it or not."""
    features = tuple(
        Feature(
            name=each.name,
            min_supported_version=each.min_supported_version,
            max_supported_version=each.max_supported_version,
        )
        for each in message.features
    )
    supported = {
        each.name: (each.min_supported_version, each.max_supported_version) for each in features
    }
    if len(supported) != len(features):
        raise Refused(ErrorCode.invalid_registration, "two features have the same name")
    if METADATA_VERSION not in supported:
        raise Refused(ErrorCode.invalid_registration, f"{METADATA_VERSION} is not supported at all")
    for name in sorted({*supported, *image.features}):
        _check_feature(name, image.features, supported.get(name, (0, 0)))
    return features


def _check_feature(name: str, finalized: Mapping[str, int], supported: tuple[int, int]) -> None:
    if name == METADATA_VERSION and name not in finalized:
        return  # Nobody has decided on one yet; for any other feature that means level 0.
    level = finalized.get(name, 0)
    lowest, highest = supported
    if not lowest <= level <= highest:
        raise Refused(
            ErrorCode.unsupported_version,
            f"{name} is finalized at {level}, the broker supports {lowest} to {highest}",
        )


def _registration_answer(error_code: ErrorCode, broker_epoch: int) -> Values:
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": error_code,
        "broker_epoch": broker_epoch,
    }


def _refuse_registration(_message: Any, error_code: ErrorCode, _why: str | None) -> Values:
    return _registration_answer(error_code, _NO_BROKER_EPOCH)


# -- UnregisterBroker -------------------------------------------------------------------------


def decide_unregister(situation: Situation, message: Any) -> Decision:
    """The broker is gone for good, even one that is alive: its next heartbeat will tell it."""
    broker = registered_broker(situation.image, BrokerId(message.broker_id))
    record = UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
    changes = leave_for_good(situation, broker.broker_id)
    return Decision(
        records=(*changes, record), response=_unregister_answer(ErrorCode.none, None), own=True
    )


def _unregister_answer(error_code: ErrorCode, why: str | None) -> Values:
    return {"throttle_time": NO_THROTTLE, "error_code": error_code, "error_message": why}


def _refuse_unregister(_message: Any, error_code: ErrorCode, why: str | None) -> Values:
    return _unregister_answer(error_code, why)


APIS: Final[dict[int, ControlApi]] = {
    apis.BROKER_REGISTRATION: ControlApi(
        VersionRange(0, 4), decide_registration, _refuse_registration
    ),
    apis.UNREGISTER_BROKER: ControlApi(VersionRange(0, 0), decide_unregister, _refuse_unregister),
}
