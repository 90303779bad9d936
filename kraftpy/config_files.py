"""What a config file says, as (key, text, origin): TOML, or Kafka's .properties.

Neither format is interpreted further here: keys are looked up and values checked by
kraftpy/config.py, the same way for every source. This module is given the text; it opens nothing.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from kraftpy.config import SETTINGS, Given, shown
from kraftpy.errors import ConfigError


def from_file_text(text: str, path: str) -> tuple[Given, ...]:
    """What a config file says; its name tells TOML from Kafka's .properties."""
    if path.endswith(".toml"):
        return _from_toml(text, path)
    if path.endswith(".properties"):
        return tuple(_from_properties(text, path))
    raise ConfigError(f"{path}: a config file's name must end in .toml or .properties")


def _from_toml(text: str, path: str) -> tuple[Given, ...]:
    try:
        values = list(_flatten(tomllib.loads(text), ""))
    except RecursionError:
        raise ConfigError(f"{path}: not valid TOML: nested too deeply") from None
    except ValueError as error:  # Its own error, or int()'s about a number of 5000 digits.
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    lines = _toml_lines(text)
    given = []
    for key, value in values:
        origin = f"{path}:{lines[key]}" if key in lines else path
        given.append(Given(key, _toml_text(value, key, origin), origin))
    return tuple(given)


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and (value or _is_table(key)):
            yield from _flatten(value, f"{key}.")
        else:
            yield key, value


def _is_table(key: str) -> bool:
    """Whether settings live under `key`, so that an empty table of that name means nothing."""
    return any(setting.key.startswith(f"{key}.") for setting in SETTINGS)


def _toml_text(value: object, key: str, origin: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | str):
        return str(value)
    if value == {} and key not in {setting.key for setting in SETTINGS}:
        return ""  # An empty table that nothing lives in: its name is refused as unknown.
    raise ConfigError(f"{origin}: {shown(key)} must be a string or a whole number")


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
            raise ConfigError(f"{path}:{number}: expected key=value, not {shown(line)}")
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
