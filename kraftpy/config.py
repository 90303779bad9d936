"""Every setting: its name, type, default, bounds and meaning, and how one value is chosen.

Names, units and defaults are Kafka's where Kafka has the setting. A value is taken from a flag,
else from the environment, else from the config file, else it is the default. What a source says
is checked even where a stronger source wins, so a typing mistake never waits for its turn.

This module reads nothing: callers hand it text and mappings (see kraftpy/cli/settings.py). What it
refuses, it refuses with a ConfigError of one line that names the key, where it came from and,
for an unknown key, the nearest one that exists.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final, Generic, TypeVar

from kraftpy.errors import ConfigError

T = TypeVar("T")

ENVIRONMENT_PREFIX: Final = "KRAFTPY_"
CONFIG_FILE_VARIABLE: Final = "KRAFTPY_CONFIG"  # Names the config file; not a setting itself.
METADATA_PARTITION: Final = "__cluster_metadata-0"

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_SHOWN_VALUE_CHARACTERS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of value: how to read it from text, and in words what is allowed."""

    name: str
    allowed: str
    parse: Callable[[str], T]  # ValueError for what is not allowed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table that `kraftpy config list` prints."""

    key: str
    kind: Kind[Any]
    default: Any
    meaning: str

    @property
    def environment_name(self) -> str:
        return environment_name(self.key)

    @property
    def attribute(self) -> str:
        """The field of Settings that holds the value."""
        return re.sub(r"[.-]", "_", self.key)


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody gave, not yet checked, and where they gave it."""

    key: str
    text: str
    origin: str


def _whole_number(minimum: int, maximum: int) -> Kind[int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text):
            raise ValueError
        number = int(text)
        if not minimum <= number <= maximum:
            raise ValueError
        return number

    name = "int" if maximum <= _INT32_MAX else "long"
    return Kind(name=name, allowed=f"a whole number from {minimum} to {maximum}", parse=parse)


def _one_of(*choices: str) -> Kind[str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError
        return text.lower()

    return Kind(name="string", allowed=f"one of {', '.join(choices)}", parse=parse)


def _directory() -> Kind[str]:
    def parse(text: str) -> str:
        if "\0" in text or "\n" in text:
            raise ValueError
        return text

    return Kind(name="path", allowed="a directory, or empty", parse=parse)


def _setting(key: str, kind: Kind[T], default: T, meaning: str) -> T:
    row = Setting(key=key, kind=kind, default=default, meaning=meaning)
    return field(default=default, metadata={"setting": row})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values in force. Each field is its key with `_` for `.`; SETTINGS is made from these."""

    data_dir: str = _setting(
        "data.dir",
        _directory(),
        "",
        "Where everything is kept. Empty: `kraftpy dev` uses a temporary directory.",
    )
    metadata_log_dir: str = _setting(
        "metadata.log.dir",
        _directory(),
        "",
        f"Where the metadata log's directory {METADATA_PARTITION} is kept. Empty: data.dir.",
    )
    metadata_log_segment_bytes: int = _setting(
        "metadata.log.segment.bytes",
        _whole_number(1024, _INT32_MAX),
        1024**3,
        "A metadata log segment that would grow beyond this is closed and a new one begun.",
    )
    metadata_log_segment_ms: int = _setting(
        "metadata.log.segment.ms",
        _whole_number(1, _INT64_MAX),
        7 * 24 * 3600 * 1000,
        "A metadata log segment older than this is closed at the next append.",
    )
    metadata_max_retention_bytes: int = _setting(
        "metadata.max.retention.bytes",
        _whole_number(-1, _INT64_MAX),
        100 * 1024**2,
        "Old metadata log and snapshots beyond this size are deleted, once a newer snapshot "
        "covers them; -1: no limit.",
    )
    metadata_max_retention_ms: int = _setting(
        "metadata.max.retention.ms",
        _whole_number(-1, _INT64_MAX),
        7 * 24 * 3600 * 1000,
        "Old metadata log and snapshots beyond this age are deleted, once a newer snapshot "
        "covers them; -1: no limit.",
    )
    metadata_log_max_record_bytes_between_snapshots: int = _setting(
        "metadata.log.max.record.bytes.between.snapshots",
        _whole_number(1, _INT64_MAX),
        20 * 1024**2,
        "A snapshot is written after this many bytes of new metadata records.",
    )
    metadata_log_max_snapshot_interval_ms: int = _setting(
        "metadata.log.max.snapshot.interval.ms",
        _whole_number(0, _INT64_MAX),
        3600 * 1000,
        "A snapshot is written when there are new records and the last one is this old; 0: never.",
    )
    log_segment_bytes: int = _setting(
        "log.segment.bytes",
        _whole_number(1024, _INT32_MAX),
        1024**3,
        "A log segment that would grow beyond this is closed and a new one begun.",
    )
    log_roll_ms: int = _setting(
        "log.roll.ms",
        _whole_number(1, _INT64_MAX),
        7 * 24 * 3600 * 1000,
        "A log segment older than this is closed at the next append.",
    )
    log_index_interval_bytes: int = _setting(
        "log.index.interval.bytes",
        _whole_number(0, _INT32_MAX),
        4096,
        "One index entry is written for about this many bytes of log.",
    )
    log_index_size_max_bytes: int = _setting(
        "log.index.size.max.bytes",
        _whole_number(12, _INT32_MAX),
        10 * 1024**2,
        "A segment whose offset or time index reaches this size is closed.",
    )
    log_retention_bytes: int = _setting(
        "log.retention.bytes",
        _whole_number(-1, _INT64_MAX),
        -1,
        "Whole segments are deleted, oldest first, while a log is larger; -1: no limit.",
    )
    log_retention_ms: int = _setting(
        "log.retention.ms",
        _whole_number(-1, _INT64_MAX),
        7 * 24 * 3600 * 1000,
        "A segment is deleted when its newest record is older than this; -1: no limit.",
    )
    log_flush_interval_messages: int = _setting(
        "log.flush.interval.messages",
        _whole_number(1, _INT64_MAX),
        _INT64_MAX,
        "fsync a data log after this many records. The default leaves durability to replication.",
    )
    log_flush_interval_ms: int = _setting(
        "log.flush.interval.ms",
        _whole_number(1, _INT64_MAX),
        _INT64_MAX,
        "fsync a data log when its oldest unsynced record is this old.",
    )
    message_max_bytes: int = _setting(
        "message.max.bytes",
        _whole_number(0, _INT32_MAX),
        1024**2 + 12,
        "The largest record batch that a data log accepts.",
    )
    logging_format: str = _setting(
        "logging.format",
        _one_of("auto", "text", "json"),
        "auto",
        "How events are written to stderr; auto: text on a terminal, JSON elsewhere.",
    )
    logging_level: str = _setting(
        "logging.level",
        _one_of("debug", "info", "warning", "error", "critical"),
        "info",
        "The least severe event that is written.",
    )


SETTINGS: Final[tuple[Setting, ...]] = tuple(f.metadata["setting"] for f in fields(Settings))
_BY_KEY: Final[Mapping[str, Setting]] = {setting.key: setting for setting in SETTINGS}


def environment_name(key: str) -> str:
    """The environment variable that sets `key`."""
    return ENVIRONMENT_PREFIX + re.sub(r"[.-]", "_", key).upper()


def metadata_directory(settings: Settings) -> str:
    """The directory of the metadata log itself; data.dir or metadata.log.dir must be set."""
    parent = settings.metadata_log_dir or settings.data_dir
    assert parent, "the caller chooses a data directory first"
    return f"{parent.rstrip('/')}/{METADATA_PARTITION}"


def resolve(*layers: Iterable[Given]) -> Settings:
    """The settings that `layers` agree on, the strongest layer first; all of them are checked."""
    chosen: dict[str, Any] = {}
    for layer in layers:
        for attribute, value in _check_layer(layer).items():
            chosen.setdefault(attribute, value)
    return Settings(**chosen)


def _check_layer(layer: Iterable[Given]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for given in layer:
        setting = _find(given)
        if given.key in origins:
            raise ConfigError(
                f"{given.key} is set twice: {origins[given.key]} and {given.origin}; remove one"
            )
        origins[given.key] = given.origin
        values[setting.attribute] = _parse(setting, given)
    return values


def _find(given: Given) -> Setting:
    try:
        return _BY_KEY[given.key]
    except KeyError:
        raise ConfigError(
            f"{given.origin}: unknown setting {_shown(given.key)}; "
            f"{_advice(given.key.lower(), list(_BY_KEY))}"
        ) from None


def _parse(setting: Setting, given: Given) -> Any:
    try:
        return setting.kind.parse(given.text.strip())
    except ValueError:
        raise ConfigError(
            f"{given.origin}: {setting.key} must be {setting.kind.allowed}, "
            f"not {_shown(given.text)}"
        ) from None


def _advice(wrong: str, names: list[str]) -> str:
    near = get_close_matches(wrong, names, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else "`kraftpy config list` shows every key"


def _shown(text: str) -> str:
    """The text on one line and of bounded length, whatever is in it."""
    if len(text) > _SHOWN_VALUE_CHARACTERS_MAX:
        text = text[:_SHOWN_VALUE_CHARACTERS_MAX] + "..."
    return ascii(text)


def from_environment(environment: Mapping[str, str]) -> tuple[Given, ...]:
    """What the KRAFTPY_ variables say; one that sets nothing is an error, not a surprise."""
    keys = {setting.environment_name: setting.key for setting in SETTINGS}
    given = []
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT_PREFIX) or name == CONFIG_FILE_VARIABLE:
            continue
        if name not in keys:
            raise ConfigError(
                f"environment variable {_shown(name)} sets nothing; "
                f"{_advice(name, [*keys, CONFIG_FILE_VARIABLE])}"
            )
        given.append(Given(keys[name], environment[name], f"environment variable {name}"))
    return tuple(given)


def from_assignment(text: str, origin: str) -> Given:
    """A `key=value`, as --set takes it."""
    key, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"{origin}: expected key=value, not {_shown(text)}")
    return Given(key.strip(), value.strip(), origin)


def from_file_text(text: str, path: str) -> tuple[Given, ...]:
    """What a config file says; its name tells TOML from Kafka's .properties."""
    if path.endswith(".toml"):
        return _from_toml(text, path)
    if path.endswith(".properties"):
        return tuple(_from_properties(text, path))
    raise ConfigError(f"{path}: a config file's name must end in .toml or .properties")


def _from_toml(text: str, path: str) -> tuple[Given, ...]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    lines = _toml_lines(text)
    given = []
    for key, value in _flatten(document, ""):
        origin = f"{path}:{lines[key]}" if key in lines else path
        given.append(Given(key, _toml_text(value, key, origin), origin))
    return tuple(given)


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _toml_text(value: object, key: str, origin: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | str):
        return str(value)
    raise ConfigError(f"{origin}: {_shown(key)} must be a string or a whole number")


def _toml_lines(text: str) -> dict[str, int]:
    """The line that sets each key. Only messages use it: tomllib keeps no positions."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.fullmatch(r"\s*\[([^\[\]]+)\]\s*(#.*)?", line):
            table = _dotted(header[1]) + "."
        elif assignment := re.match(r"\s*([\w.\"'\s-]+?)\s*=", line):
            lines.setdefault(table + _dotted(assignment[1]), number)
    return lines


def _dotted(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def _from_properties(text: str, path: str) -> Iterator[Given]:
    """java.util.Properties: `=`, `:` or a blank after the key, `#` and `!` comments, `\\`."""
    for number, line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\\=:\s])+)\s*[=:]?\s*(.*)", line, flags=re.DOTALL)
        if match is None:
            raise ConfigError(f"{path}:{number}: expected key=value, not {_shown(line)}")
        yield Given(_unescape(match[1]), _unescape(match[2]), f"{path}:{number}")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; one that ends in an odd number of backslashes continues."""
    started, joined = 0, ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.lstrip()
        if not joined and (not line or line[0] in "#!"):
            continue
        started = started if joined else number
        joined += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        yield started, joined
        joined = ""
    if joined:
        yield started, joined


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1].startswith("u"):
            return chr(int(match[1][1:], 16))
        return {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(match[1], match[1])

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, text)
