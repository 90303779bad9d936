"""DescribeConfigs and ListConfigResources, and the configs that a topic really has. Pure.

A value comes from the first layer that has it: the topic's own configs, those of one broker, those
of all brokers (the broker resource with an empty name), what the node was started with, Kafka's
default. Below the topic a config goes by its broker-level names, the synonyms. A description tells
all layers that have a value, the strongest first.

What is sensitive is never shown. Nor is what nobody here knows the type of: a log written by others
may hold a password under any name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from immutables import Map
from kio.schema.errors import ErrorCode

from kraftpy.config import SETTINGS
from kraftpy.config_kinds import Kind
from kraftpy.dynamic_configs import (
    BROKER_CONFIGS,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_CONFIGS,
    CLIENT_METRICS_RESOURCE,
    GROUP_CONFIGS,
    GROUP_RESOURCE,
    SENSITIVE_SETTINGS,
)
from kraftpy.limits import BATCH_RECORDS_MAX
from kraftpy.metadata_log.image import ClusterImage
from kraftpy.metadata_log.records import BROKER_RESOURCE, TOPIC_RESOURCE
from kraftpy.topic_configs import TOPIC_CONFIGS, ConfigKey
from kraftpy.wire.apis import NO_THROTTLE

Values: TypeAlias = dict[str, Any]
# What a node was started with beyond the defaults: key and text.
StaticConfigs: TypeAlias = tuple[tuple[str, str], ...]

# Kafka's numbers for where a value comes from.
DYNAMIC_TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
CLIENT_METRICS_CONFIG: Final = 7
GROUP_CONFIG: Final = 8
# And for types.
_TYPES: Final = {
    "boolean": 1,
    "string": 2,
    "path": 2,
    "int": 3,
    "long": 5,
    "double": 6,
    "list": 7,
    "password": 9,
}
_UNKNOWN_TYPE: Final = 0
_PASSWORD: Final[Kind[str]] = Kind(name="password", allowed="text", parse=str)
# Resources that have nothing but their own configs, and the source of those.
_OWN_ONLY: Final = {
    CLIENT_METRICS_RESOURCE: (CLIENT_METRICS_CONFIGS, CLIENT_METRICS_CONFIG),
    GROUP_RESOURCE: (GROUP_CONFIGS, GROUP_CONFIG),
}
_LISTED: Final = (
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
)


class Layer(NamedTuple):
    source: int
    configs: Map[str, str]


class Shape(NamedTuple):
    """What a request wants to know beside values."""

    synonyms: bool
    documentation: bool


class Found(NamedTuple):
    """One layer's value of a config, under the name that it has there."""

    name: str
    value: str
    source: int


class Undescribable(Exception):
    """Why a resource is not described."""

    def __init__(self, error_code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.error_code = error_code


def configs_of(image: ClusterImage, resource_type: int, name: str) -> Map[str, str]:
    return image.configs.get((resource_type, name)) or Map()


def broker_layers(
    image: ClusterImage, static: StaticConfigs, node_id: int | None = None
) -> tuple[Layer, ...]:
    """What brokers have; `node_id` is the one that is spoken of, if it is one."""
    layers = [
        Layer(DYNAMIC_DEFAULT_BROKER_CONFIG, configs_of(image, BROKER_RESOURCE, "")),
        Layer(STATIC_BROKER_CONFIG, Map(static)),
    ]
    if node_id is not None:
        own = configs_of(image, BROKER_RESOURCE, str(node_id))
        layers.insert(0, Layer(DYNAMIC_BROKER_CONFIG, own))
    return tuple(layers)


# -- what a topic has ---------------------------------------------------------------------------


def created_topic_configs(
    image: ClusterImage, static: StaticConfigs, own: Mapping[str, str]
) -> list[Values]:
    """All configs that a new topic has, for the answer that says it was created."""
    shared = _without_own(broker_layers(image, static))
    if not own:
        return shared
    changed = {
        name: _created(TOPIC_CONFIGS[name], text, DYNAMIC_TOPIC_CONFIG)
        for name, text in own.items()
    }
    return [changed.get(entry["name"], entry) for entry in shared]


def broker_values(image: ClusterImage, static: StaticConfigs, node_id: int) -> dict[str, str]:
    """What a broker was started with or told since, as text; what is at its default is not here."""
    values: dict[str, str] = {}
    for layer in reversed(broker_layers(image, static, node_id)):
        values.update(layer.configs)
    return values


def topic_values(
    image: ClusterImage, static: StaticConfigs, node_id: int, topic: str
) -> dict[str, str | None]:
    """What is in force for a topic on a broker, as text; None: not set."""
    layers = broker_layers(image, static, node_id)
    own = configs_of(image, TOPIC_RESOURCE, topic)
    values = dict(_shared_values(layers))
    values.update((name, text) for name, text in own.items() if name in values)
    return values


@lru_cache(maxsize=16)
def _shared_values(layers: tuple[Layer, ...]) -> dict[str, str | None]:
    found = {key: next(_of_topic(key, {}, layers), None) for key in TOPIC_CONFIGS.values()}
    return {key.name: each.value if each else key.default for key, each in found.items()}


@lru_cache(maxsize=16)  # The same for every topic that has none of its own.
def _without_own(layers: tuple[Layer, ...]) -> list[Values]:
    entries = []
    for key in _described(TOPIC_CONFIGS):
        found = next(_of_topic(key, {}, layers), None)
        text, source = (key.default, DEFAULT_CONFIG)
        if found is not None:
            text, source = found.value, found.source
        entries.append(_created(key, text, source))
    return entries


def _created(key: ConfigKey, text: str | None, source: int) -> Values:
    return {
        "name": key.name,
        "value": None if key.is_sensitive else text,
        "read_only": False,
        "config_source": source,
        "is_sensitive": key.is_sensitive,
    }


def _of_topic(
    key: ConfigKey, own: Mapping[str, str], layers: Iterable[Layer], *, as_topic: bool = True
) -> Iterator[Found]:
    """Who has a value for it, the strongest first; in the unit of the topic config or its own."""
    if key.name in own:
        yield Found(key.name, own[key.name], DYNAMIC_TOPIC_CONFIG)
    for source, configs in layers:
        for synonym in key.synonyms:
            if synonym.key in configs:
                text = configs[synonym.key]
                yield Found(synonym.key, synonym.converted(text) if as_topic else text, source)
    if key.synonyms and key.default is not None:
        last = key.synonyms[-1]  # The one that has a default in Kafka, where there are several.
        text = key.default if as_topic or last.factor == 1 else str(int(key.default) // last.factor)
        yield Found(last.key, text, DEFAULT_CONFIG)


def _described(keys: Mapping[str, ConfigKey]) -> Iterator[ConfigKey]:
    return (key for key in keys.values() if not key.internal)


# -- DescribeConfigs ----------------------------------------------------------------------------


def describe_configs(
    image: ClusterImage, message: Any, *, static: StaticConfigs, node_id: int | None
) -> Values:
    """`node_id` is the broker that answers, which speaks for itself alone.

    A controller gives None: it describes any broker, as far as the log knows.
    """
    if len(message.resources) > BATCH_RECORDS_MAX:
        why = f"a request may ask for {BATCH_RECORDS_MAX} resources"
        return refuse_describe_configs(message, ErrorCode.policy_violation, why)
    shape = Shape(message.include_synonyms, getattr(message, "include_documentation", False))
    results = []
    for resource in message.resources:
        try:
            entries = _entries(image, resource, static, node_id, shape)
        except Undescribable as refusal:
            results.append(_result(resource, refusal.error_code, str(refusal)))
            continue
        asked = set(resource.configuration_keys or ())
        chosen = [entry for entry in entries if not asked or entry["name"] in asked]
        results.append({**_result(resource, ErrorCode.none, None), "configs": chosen})
    return {"throttle_time": NO_THROTTLE, "results": results}


def refuse_describe_configs(message: Any, error_code: ErrorCode, why: str | None) -> Values:
    results = [_result(resource, error_code, why) for resource in message.resources]
    return {"throttle_time": NO_THROTTLE, "results": results}


def _result(resource: Any, error_code: ErrorCode, why: str | None) -> Values:
    return {
        "error_code": error_code,
        "error_message": why,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [],
    }


def _entries(
    image: ClusterImage, resource: Any, static: StaticConfigs, node_id: int | None, shape: Shape
) -> list[Values]:
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC_RESOURCE:
        return _topic_entries(image, name, broker_layers(image, static, node_id), shape)
    if kind == BROKER_RESOURCE:
        return list(_broker_entries(image, name, static, node_id, shape))
    if kind not in _OWN_ONLY:
        raise Undescribable(
            ErrorCode.invalid_request, f"resources of type {kind} are not described here"
        )
    if not name:
        raise Undescribable(ErrorCode.invalid_request, "a group or a subscription has a name")
    return list(_own_entries(*_OWN_ONLY[kind], configs_of(image, kind, name), shape))


def _topic_entries(
    image: ClusterImage, name: str, layers: tuple[Layer, ...], shape: Shape
) -> list[Values]:
    if name not in image.topic_ids:
        raise Undescribable(ErrorCode.unknown_topic_or_partition, "there is no such topic")
    own = configs_of(image, TOPIC_RESOURCE, name)
    shared = _topic_table(layers, shape)
    if not own:
        return shared
    changed = {
        key.name: _topic_entry(key, own, layers, shape)
        for key in _described(TOPIC_CONFIGS)
        if key.name in own
    }
    unknown = _unknown_entries(set(own) - TOPIC_CONFIGS.keys(), DYNAMIC_TOPIC_CONFIG)
    return [*(changed.get(entry["name"], entry) for entry in shared), *unknown]


@lru_cache(maxsize=16)  # Whoever describes all topics describes this again and again.
def _topic_table(layers: tuple[Layer, ...], shape: Shape) -> list[Values]:
    return [_topic_entry(key, {}, layers, shape) for key in _described(TOPIC_CONFIGS)]


def _topic_entry(
    key: ConfigKey, own: Mapping[str, str], layers: tuple[Layer, ...], shape: Shape
) -> Values:
    found = list(_of_topic(key, own, layers, as_topic=False))
    effective = next(_of_topic(key, own, layers), None)
    text = key.default if effective is None else effective.value
    return _entry(key, text, found, shape)


def _own_entries(
    known: Mapping[str, ConfigKey], source: int, own: Mapping[str, str], shape: Shape
) -> Iterator[Values]:
    for key in _described(known):
        found = [Found(key.name, own[key.name], source)] if key.name in own else []
        if key.default is not None and source == GROUP_CONFIG:
            found.append(Found(key.name, key.default, DEFAULT_CONFIG))
        yield _entry(key, own.get(key.name, key.default), found, shape)
    yield from _unknown_entries(set(own) - known.keys(), source)


def _broker_keys() -> dict[str, ConfigKey]:
    """All that a broker can be told, at its start or later."""
    settings = {
        setting.key: ConfigKey(
            name=setting.key,
            kind=_PASSWORD if setting.key in SENSITIVE_SETTINGS else setting.kind,
            default=None if setting.default is None else _text(setting.default),
            meaning=setting.meaning,
        )
        for setting in SETTINGS
    }
    known = {**BROKER_CONFIGS, **settings}  # Where both have it, the setting has the default.
    return {name: known[name] for name in sorted(known)}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_BROKER_KEYS: Final = _broker_keys()


def _broker_entries(
    image: ClusterImage, name: str, static: StaticConfigs, node_id: int | None, shape: Shape
) -> Iterator[Values]:
    layers = broker_layers(image, static, _broker_id(name, node_id))
    if not name:
        layers = layers[:1]  # Of all brokers together only what was said of them all.
    elif node_id is None:
        layers = layers[:-1]  # What another node was started with is not known here.
    for key in _BROKER_KEYS.values():
        found = [
            Found(key.name, layer.configs[key.name], layer.source)
            for layer in layers
            if key.name in layer.configs
        ]
        if name and key.default is not None:
            found.append(Found(key.name, key.default, DEFAULT_CONFIG))
        if name or found:
            text = found[0].value if found else None
            yield _entry(key, text, found, shape, read_only=key.name not in BROKER_CONFIGS)
    for layer in layers:
        if layer.source != STATIC_BROKER_CONFIG:
            yield from _unknown_entries(set(layer.configs) - _BROKER_KEYS.keys(), layer.source)


def _broker_id(name: str, node_id: int | None) -> int | None:
    if not name:
        return None
    if not (name.isascii() and name.isdigit() and len(name) < 11):
        raise Undescribable(ErrorCode.invalid_request, f"{name[:60]!a} is not the id of a broker")
    broker_id = int(name)
    if node_id is not None and broker_id != node_id:
        raise Undescribable(
            ErrorCode.invalid_request, f"this is broker {node_id}; broker {broker_id} knows itself"
        )
    return broker_id


def _entry(
    key: ConfigKey,
    text: str | None,
    found: list[Found],
    shape: Shape,
    *,
    read_only: bool = False,
) -> Values:
    hidden = key.is_sensitive
    return {
        "name": key.name,
        "value": None if hidden else text,
        "read_only": read_only,
        "config_source": found[0].source if found else DEFAULT_CONFIG,
        "is_sensitive": hidden,
        "synonyms": [
            {"name": each.name, "value": None if hidden else each.value, "source": each.source}
            for each in (found if shape.synonyms else ())
        ],
        "config_type": _TYPES[key.kind.name],
        "documentation": key.meaning if shape.documentation else None,
    }


def _unknown_entries(names: Iterable[str], source: int) -> Iterator[Values]:
    for name in sorted(names):
        yield {
            "name": name,
            "value": None,
            "read_only": False,
            "config_source": source,
            "is_sensitive": True,
            "synonyms": [],
            "config_type": _UNKNOWN_TYPE,
            "documentation": None,
        }


# -- ListConfigResources ------------------------------------------------------------------------


def list_config_resources(image: ClusterImage, message: Any) -> Values:
    """What can be described. Version 0 asks for client metrics only (KIP-1142)."""
    asked = getattr(message, "resource_types", (CLIENT_METRICS_RESOURCE,)) or _LISTED
    if not set(asked) <= set(_LISTED):
        return refuse_list_config_resources(message, ErrorCode.unsupported_version, None)
    names: dict[int, Callable[[], Iterable[str]]] = {
        TOPIC_RESOURCE: lambda: image.topic_ids,
        BROKER_RESOURCE: lambda: map(str, image.brokers),
        BROKER_LOGGER_RESOURCE: lambda: map(str, image.brokers),
        CLIENT_METRICS_RESOURCE: lambda: _configured(image, CLIENT_METRICS_RESOURCE),
        GROUP_RESOURCE: lambda: _configured(image, GROUP_RESOURCE),
    }
    resources = [
        {"resource_name": name, "resource_type": resource_type}
        for resource_type in sorted(set(asked))
        for name in sorted(names[resource_type]())
    ]
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": ErrorCode.none,
        "config_resources": resources,
    }


def refuse_list_config_resources(_message: Any, error_code: ErrorCode, _why: str | None) -> Values:
    return {"throttle_time": NO_THROTTLE, "error_code": error_code, "config_resources": []}


def _configured(image: ClusterImage, resource_type: int) -> Iterator[str]:
    return (name for found, name in image.configs if found == resource_type)
