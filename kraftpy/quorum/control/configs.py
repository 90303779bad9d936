"""IncrementalAlterConfigs and AlterConfigs; DescribeConfigs and ListConfigResources. Pure.

Resources of one request stand or fall one by one; of one resource everything changes or nothing.
What a resource would have afterwards is judged as a whole, so no order of requests leads to configs
that contradict each other. A topic gets a record where a value changes. A broker gets one for every
key it is told, changed or not: to say it again makes brokers load it again (KAFKA-14136).

min.insync.replicas decides who is eligible (KIP-966). Where it changes, what is known of eligible
leader replicas is forgotten (KAFKA-16540): of the topic, or of all topics. While that feature is on
there is one value per topic for all brokers: a single broker's is refused, and the cluster's can be
changed but not removed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from kio.schema.errors import ErrorCode

from kraftpy import topic_configs
from kraftpy.config_kinds import items
from kraftpy.describe.configs import (
    StaticConfigs,
    configs_of,
    describe_configs,
    list_config_resources,
    refuse_describe_configs,
    refuse_list_config_resources,
)
from kraftpy.dynamic_configs import (
    BROKER_CONFIGS,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_CONFIGS,
    CLIENT_METRICS_RESOURCE,
    GROUP_CONFIGS,
    GROUP_RESOURCE,
    validate_broker,
    validate_client_metrics,
    validate_group,
)
from kraftpy.errors import ConfigError
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ClearElrRecord,
    ConfigRecord,
    MetadataRecord,
)
from kraftpy.quorum.control.decision import ControlApi, Decision, Refused, Situation, Values
from kraftpy.quorum.control.new_partitions import check_size, repeated
from kraftpy.quorum.control.settings import ControllerSettings
from kraftpy.quorum.control.topic_settings import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_ELECTION,
    elr_enabled,
)
from kraftpy.topic_configs import ConfigKey
from kraftpy.wire.apis import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    NO_THROTTLE,
    VersionRange,
)

# What a resource is told: None removes the key.
Told: TypeAlias = dict[str, str | None]
Validate: TypeAlias = Callable[[Mapping[str, str]], None]

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

_KNOWN: Final[dict[int, tuple[Mapping[str, ConfigKey], Validate]]] = {
    TOPIC_RESOURCE: (topic_configs.TOPIC_CONFIGS, topic_configs.validate),
    BROKER_RESOURCE: (BROKER_CONFIGS, validate_broker),
    CLIENT_METRICS_RESOURCE: (CLIENT_METRICS_CONFIGS, validate_client_metrics),
    GROUP_RESOURCE: (GROUP_CONFIGS, validate_group),
}


def static_configs(settings: ControllerSettings) -> StaticConfigs:
    """What the controller was started with that topics fall back to, if it is not the default."""
    given = []
    if settings.min_insync_replicas != 1:
        given.append((MIN_INSYNC_REPLICAS, str(settings.min_insync_replicas)))
    if settings.unclean_leader_election_enable:
        given.append((UNCLEAN_ELECTION, "true"))
    return tuple(given)


def enables_unclean_election(records: Iterable[MetadataRecord]) -> bool:
    """Whether partitions that have no leader may be electable after these records."""
    return any(
        isinstance(record, ConfigRecord)
        and record.name == UNCLEAN_ELECTION
        and record.value is not None
        and record.value.strip().lower() == "true"
        for record in records
    )


# -- what both ways of altering share -----------------------------------------------------------


def decide_incremental_alter_configs(situation: Situation, message: Any) -> Decision:
    return _alter(situation, message, _told_by_operations)


def decide_alter_configs(situation: Situation, message: Any) -> Decision:
    """The old way: what is not named is removed."""
    return _alter(situation, message, _told_by_values)


def _alter(
    situation: Situation, message: Any, told_by: Callable[[Any, Mapping[str, str]], Told]
) -> Decision:
    image = situation.image
    records: list[MetadataRecord] = []
    responses = {}
    twice = repeated(map(_key, message.resources))
    for resource in message.resources:
        error_code, why = ErrorCode.none, None
        try:
            if _key(resource) in twice:
                raise Refused(ErrorCode.invalid_request, "the request names this resource twice")
            _check_resource(image, situation.settings, resource)
            current = configs_of(image, resource.resource_type, resource.resource_name)
            told = told_by(resource, current)
            _check_told(image, resource, current, told)
            records += _config_records(resource, current, told)
        except Refused as refusal:
            error_code, why = refusal.error_code, str(refusal)
        responses[_key(resource)] = _response(resource, error_code, why)
    records += _elr_to_clear(image, records)
    check_size(len(records))
    return Decision(
        records=() if message.validate_only else records,
        response={"throttle_time": NO_THROTTLE, "responses": list(responses.values())},
    )


def _key(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _check_resource(image: ClusterImage, settings: ControllerSettings, resource: Any) -> None:
    kind, name = _key(resource)
    if kind == BROKER_LOGGER_RESOURCE:
        raise Refused(ErrorCode.invalid_request, "loggers are not configured through the log")
    if kind not in _KNOWN:
        raise Refused(ErrorCode.unsupported_version, f"unknown resource type {kind}")
    if kind == BROKER_RESOURCE:
        _check_broker(image, settings, name)
    elif not name:
        raise Refused(ErrorCode.invalid_request, "this resource has no default: name one")
    elif kind == TOPIC_RESOURCE and name not in image.topic_ids:
        raise Refused(ErrorCode.unknown_topic_or_partition, "there is no such topic")


def _check_broker(image: ClusterImage, settings: ControllerSettings, name: str) -> None:
    if not name:
        return  # All brokers.
    if not (name.isascii() and name.isdigit() and str(int(name[:10])) == name):
        raise Refused(ErrorCode.invalid_request, f"{name[:60]!a} is not the id of a broker")
    if int(name) not in image.brokers and int(name) not in settings.voter_ids:
        raise Refused(ErrorCode.broker_id_not_registered, f"there is no node with id {name}")


def _check_told(image: ClusterImage, resource: Any, current: Mapping[str, str], told: Told) -> None:
    """The whole of what the resource would have, and what ELR allows."""
    kind, name = _key(resource)
    if kind == BROKER_RESOURCE and MIN_INSYNC_REPLICAS in told and elr_enabled(image):
        if name:
            why = "cannot be set for one broker while eligible leader replicas are on"
            raise Refused(ErrorCode.invalid_config, f"{MIN_INSYNC_REPLICAS} {why}")
        if told[MIN_INSYNC_REPLICAS] is None:
            why = "cannot be removed while eligible leader replicas are on"
            raise Refused(ErrorCode.invalid_config, f"the cluster's {MIN_INSYNC_REPLICAS} {why}")
    # Only topics have rules between configs. What others may have that nobody here knows, from
    # a log that somebody else wrote, does not keep them from being told something new.
    whole = {**current, **told} if kind == TOPIC_RESOURCE else told
    try:
        _KNOWN[kind][1]({key: text for key, text in whole.items() if text is not None})
    except ConfigError as problem:
        raise Refused(ErrorCode.invalid_config, str(problem)) from None


def _config_records(
    resource: Any, current: Mapping[str, str], told: Told
) -> Iterator[ConfigRecord]:
    for name, value in told.items():
        if resource.resource_type == BROKER_RESOURCE or value != current.get(name):
            yield ConfigRecord(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                name=name,
                value=value,
            )


def _elr_to_clear(image: ClusterImage, records: Iterable[MetadataRecord]) -> list[ClearElrRecord]:
    if not elr_enabled(image):
        return []
    names = {
        record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
        for record in records
        if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS
    }
    if "" in names:
        names = {""}  # All topics: that includes those that are named as well.
    return [ClearElrRecord(topic_name=name) for name in sorted(names)]


# -- what a request tells -----------------------------------------------------------------------


def _told_by_operations(resource: Any, current: Mapping[str, str]) -> Told:
    again = repeated(config.name for config in resource.configs)
    if again:
        raise Refused(ErrorCode.invalid_request, f"{_names(again)} is altered more than once")
    return {config.name: _operate(resource, config, current) for config in resource.configs}


def _operate(resource: Any, config: Any, current: Mapping[str, str]) -> str | None:
    if config.config_operation == DELETE:
        return None
    if config.value is None:
        raise Refused(ErrorCode.invalid_request, f"{_names([config.name])} has no value")
    if config.config_operation == SET:
        text: str = config.value
        return text
    if config.config_operation not in (APPEND, SUBTRACT):
        why = f"{config.config_operation} is not an operation on configs"
        raise Refused(ErrorCode.invalid_request, why)
    key = _KNOWN[resource.resource_type][0].get(config.name)
    if key is None or not key.is_list:
        why = f"{_names([config.name])} is not a list: it has nothing to append or to subtract"
        raise Refused(ErrorCode.invalid_config, why)
    before = [each for each in items(current.get(config.name, key.default or "")) if each]
    if config.config_operation == APPEND:
        after = dict.fromkeys([*before, *items(config.value)])
    else:
        after = dict.fromkeys(each for each in before if each not in set(items(config.value)))
    return ",".join(after)


def _told_by_values(resource: Any, current: Mapping[str, str]) -> Told:
    given = {config.name: config.value for config in resource.configs}
    for name, value in given.items():
        if value is None:
            raise Refused(ErrorCode.invalid_request, f"{_names([name])} has no value")
    removed: Told = {name: None for name in sorted(current) if name not in given}
    return {**given, **removed}


def _names(names: Iterable[str]) -> str:
    return ascii(min(names)[:60])


# -- answers ------------------------------------------------------------------------------------


def _response(resource: Any, error_code: ErrorCode, why: str | None) -> Values:
    return {
        "error_code": error_code,
        "error_message": why,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


def _refuse_alter(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    resources = {_key(resource): resource for resource in message.resources}
    responses = [_response(resource, error_code, why) for resource in resources.values()]
    return {"throttle_time": NO_THROTTLE, "responses": responses}


def _decide_describe_configs(situation: Situation, message: Any) -> Decision:
    static = static_configs(situation.settings)
    response = describe_configs(situation.image, message, static=static, node_id=None)
    return Decision(records=(), response=response)


def _decide_list_config_resources(situation: Situation, message: Any) -> Decision:
    return Decision(records=(), response=list_config_resources(situation.image, message))


APIS: Final[dict[int, ControlApi]] = {
    DESCRIBE_CONFIGS: ControlApi(
        VersionRange(1, 4), _decide_describe_configs, refuse_describe_configs
    ),
    ALTER_CONFIGS: ControlApi(VersionRange(0, 2), decide_alter_configs, _refuse_alter),
    INCREMENTAL_ALTER_CONFIGS: ControlApi(
        VersionRange(0, 1), decide_incremental_alter_configs, _refuse_alter
    ),
    LIST_CONFIG_RESOURCES: ControlApi(
        VersionRange(0, 1), _decide_list_config_resources, refuse_list_config_resources
    ),
}
