"""UpdateFeatures, and the levels that a new cluster begins with. Pure.

A feature's level says what every node may write and must understand. What always holds: each
registered broker, fenced ones included since they may come back, and each controller supports every
level in the image. A request changes all the features that it names or none of them.
Which levels there are is in kraftpy/metadata_log/features.py.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kraftpy.metadata_log.features import GROUP_VERSION
from kraftpy.metadata_log.features import (
    METADATA_VERSION_LEVEL as METADATA_VERSION_LEVEL,
)
from kraftpy.metadata_log.features import (
    SUPPORTED as SUPPORTED,
)
from kraftpy.metadata_log.features import (
    supported_features as supported_features,
)
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.records import (
    BROKER_RESOURCE,
    METADATA_VERSION,
    ClearElrRecord,
    ConfigRecord,
    Feature,
    FeatureLevelRecord,
    MetadataRecord,
)
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation, Values
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.quorum.control.topic_settings import ELR_FEATURE, MIN_INSYNC_REPLICAS
from kraftpy.wire.apis import NO_THROTTLE, UPDATE_FEATURES, VersionRange

# What a new cluster begins with, as Kafka's do from 4.1 on.
_FIRST_LEVELS: Final = {METADATA_VERSION: METADATA_VERSION_LEVEL, ELR_FEATURE: 1, GROUP_VERSION: 1}
_UNSUPPORTED: Final = VersionRange(0, 0)  # A node that does not name a feature has it switched off.
_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3
_ALL_BROKERS: Final = ""


def bootstrap_records(
    image: ClusterImage, settings: ControllerSettings
) -> tuple[MetadataRecord, ...]:
    """What the first active controller of a cluster writes; nothing once the cluster has levels.

    metadata.version comes first: it says how to read what follows.
    """
    if METADATA_VERSION in image.features:
        return ()
    levels = (
        FeatureLevelRecord(name=name, feature_level=level) for name, level in _FIRST_LEVELS.items()
    )
    return (next(levels), *_records_before_elr(image, settings), *levels)


def decide_update_features(situation: Situation, message: Any) -> Decision:
    """The new levels, each with the records that make it safe, or the first one's refusal."""
    updates = message.feature_updates
    names = [update.feature for update in updates]
    if len(set(names)) != len(names):
        raise Refused(ErrorCode.invalid_request, "a feature is in the request twice")
    records: list[MetadataRecord] = []
    for update in updates:
        problem = _problem(situation, update)
        if problem is not None:
            return Decision(records=(), response=_refusal(names, update, problem))
        records.extend(_records_for(situation, update))
    validate_only = getattr(message, "validate_only", False)
    return Decision(
        records=() if validate_only else records,
        response=_answer(ErrorCode.none, None, (_result(name) for name in names)),
    )


def _problem(situation: Situation, update: Any) -> str | None:
    level, kind = update.max_version_level, _upgrade_type(update)
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        return f"unknown upgrade type {kind}"
    if level < 0:
        return "a level is not negative"
    if update.feature not in SUPPORTED:
        return "it is not a feature of this cluster"
    problem = next(_reasons_not_supported(situation, update.feature, level), None)
    if problem is not None:
        return problem
    current = situation.image.features.get(update.feature, 0)
    if level < current and kind == _UPGRADE:
        return f"it would go down from {current}, which takes a downgrade"
    if level > current and kind != _UPGRADE:
        return f"it would go up from {current}, which is no downgrade"
    return _only_in_elr(situation) if update.feature == ELR_FEATURE and level == 0 else None


def _only_in_elr(situation: Situation) -> str | None:
    """A partition with an empty ISR: who holds its committed records only the ELR knows."""
    topics = situation.image.topics
    for topic_id, partition_id in situation.index.leaderless():
        topic = topics[topic_id]
        if not topic.partitions[partition_id].isr:
            return f"{topic.name}-{partition_id} has nobody in sync, and would forget who was"
    return None


def _upgrade_type(update: Any) -> int:
    """Version 0 of the request has a flag instead; what it allows has always been safe."""
    if hasattr(update, "upgrade_type"):
        kind: int = update.upgrade_type
        return kind
    return _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE


def _reasons_not_supported(situation: Situation, name: str, level: int) -> Iterator[str]:
    image, voter_ids = situation.image, situation.settings.voter_ids
    yield from _reason("this controller", SUPPORTED[name], level)
    for broker_id, broker in sorted(image.brokers.items()):
        yield from _reason(f"broker {broker_id}", _range_of(name, broker.features), level)
    for controller_id, controller in sorted(image.controllers.items()):
        supported = _range_of(name, controller.features)
        yield from _reason(f"controller {controller_id}", supported, level)
    if len(voter_ids) > 1:  # A single voter is the one that decides this.
        for voter_id in sorted(voter_ids):
            if voter_id not in image.controllers:
                yield f"controller {voter_id} has not said what it supports"


def unsupported_level(image: ClusterImage, features: Iterable[Feature]) -> str | None:
    """Why a node with these features cannot take part: one level in use that it lacks."""
    for name, level in sorted(image.features.items()):
        low, high = _range_of(name, features)
        if not low <= level <= high:
            return f"{name} has level {level}, and only {low} to {high} is supported"
    return None


def _range_of(name: str, features: Iterable[Feature]) -> VersionRange:
    for each in features:
        if each.name == name:
            return VersionRange(each.min_supported_version, each.max_supported_version)
    return _UNSUPPORTED


def _reason(who: str, supported: VersionRange, level: int) -> Iterator[str]:
    low, high = supported
    if not low <= level <= high:
        yield f"{who} supports only {low} to {high}"


def _records_for(situation: Situation, update: Any) -> Iterator[MetadataRecord]:
    name, level = update.feature, update.max_version_level
    current = situation.image.features.get(name, 0)
    if level == current:
        return
    if name == ELR_FEATURE and current == 0:
        yield from _records_before_elr(situation.image, situation.settings)
    if name == ELR_FEATURE and level == 0:
        # While the feature is off nobody keeps the lists up to date. Were they still there when it
        # is switched on again, they would elect replicas that have fallen behind since.
        yield ClearElrRecord(topic_name="")
    yield FeatureLevelRecord(name=name, feature_level=level)


def _records_before_elr(
    image: ClusterImage, settings: ControllerSettings
) -> Iterator[MetadataRecord]:
    """One min.insync.replicas for the cluster, in the log: what the ELR means depends on it."""
    if MIN_INSYNC_REPLICAS not in image.configs.get((BROKER_RESOURCE, _ALL_BROKERS), ()):
        yield _min_insync_replicas(_ALL_BROKERS, str(settings.min_insync_replicas))
    for (resource_type, resource_name), configs in sorted(image.configs.items()):
        is_one_broker = resource_type == BROKER_RESOURCE and resource_name != _ALL_BROKERS
        if is_one_broker and MIN_INSYNC_REPLICAS in configs:
            yield _min_insync_replicas(resource_name, None)


def _min_insync_replicas(broker_name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=BROKER_RESOURCE,
        resource_name=broker_name,
        name=MIN_INSYNC_REPLICAS,
        value=value,
    )


def _refusal(names: Iterable[str], refused: Any, problem: str) -> Values:
    """The error is the whole request's; versions with a result per feature blame the right one."""
    why = f"{refused.feature} cannot be set to {refused.max_version_level}: {problem}"
    results = (
        _result(name, ErrorCode.invalid_update_version, why)
        if name == refused.feature
        else _result(name, ErrorCode.feature_update_failed, "another feature was refused")
        for name in names
    )
    return _answer(ErrorCode.invalid_update_version, f"nothing was changed: {why}", results)


def _result(
    name: str, error_code: ErrorCode = ErrorCode.none, why: str | None = None
) -> dict[str, Any]:
    return {"feature": name, "error_code": error_code, "error_message": why}


def _refuse(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    names = [update.feature for update in message.feature_updates]
    return _answer(error_code, why, (_result(name, error_code, why) for name in names))


def _answer(error_code: ErrorCode, why: str | None, results: Iterable[Any]) -> Values:
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": error_code,
        "error_message": why,
        "results": list(results),
    }


APIS: Final[dict[int, ControlApi]] = {
    UPDATE_FEATURES: ControlApi(VersionRange(0, 2), decide_update_features, _refuse),
}
