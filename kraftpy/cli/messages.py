"""Messages as text: what `produce` reads, what `consume` writes. Pure.

A template has kcat's letters: %t topic, %p partition, %o offset, %T timestamp, %k key, %v or %s
value, %h headers, %K and %S the lengths of key and value (-1: there is none), %% a percent sign;
\\n, \\t and \\r are what they are in Python. JSON carries bytes that are not UTF-8 in base64, under
a name of their own, so that what was consumed can be produced again.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftpy.errors import ConfigError

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessage:
    """One message, of either direction; -1 and None for what is not known or not there."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    topic: str = ""
    partition: int = -1
    offset: int = -1
    timestamp_ms: int = -1


# -- templates ----------------------------------------------------------------------------------

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_PARTS: Final = re.compile(r"%(.)|\\(.)|([^%\\]+)|(.)", re.DOTALL)
_LETTERS: Final[Mapping[str, Callable[[TextMessage], bytes]]] = {
    "t": lambda m: m.topic.encode(),
    "p": lambda m: b"%d" % m.partition,
    "o": lambda m: b"%d" % m.offset,
    "T": lambda m: b"%d" % m.timestamp_ms,
    "k": lambda m: m.key or b"",
    "v": lambda m: m.value or b"",
    "s": lambda m: m.value or b"",
    "K": lambda m: b"%d" % _length(m.key),
    "S": lambda m: b"%d" % _length(m.value),
    "h": lambda m: b",".join(name.encode() + b"=" + (value or b"") for name, value in m.headers),
    "%": lambda _: b"%",
}


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def template(text: str) -> Callable[[TextMessage], bytes]:
    """A function that fills the template; ConfigError names a letter that means nothing."""
    parts: list[Callable[[TextMessage], bytes]] = []
    for letter, escape, plain, stray in _PARTS.findall(text):
        if letter:
            if letter not in _LETTERS:
                raise ConfigError(f"--format: %{letter} means nothing; see --help")
            parts.append(_LETTERS[letter])
        elif stray:
            raise ConfigError(f"--format: it ends in {stray!r}")
        else:
            data = _ESCAPES.get(escape, escape.encode()) if escape else plain.encode()
            parts.append(lambda _, data=data: data)  # type: ignore[misc]
    return lambda message: b"".join(part(message) for part in parts)


# -- JSON ---------------------------------------------------------------------------------------


def to_json(message: TextMessage) -> dict[str, Any]:
    """One object, in the order in which people look."""
    found: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        **_named("key", message.key),
        **_named("value", message.value),
    }
    if message.headers:
        found["headers"] = [
            {"name": name, **_named("value", value)} for name, value in message.headers
        ]
    return found


def _named(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def from_json(line: str) -> TextMessage:
    """What `to_json` wrote, or somebody who writes alike; ValueError says what is wrong."""
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("expected an object")
    return TextMessage(
        value=_bytes(found, "value"),
        key=_bytes(found, "key"),
        headers=tuple(_header(each) for each in found.get("headers") or ()),
        topic=str(found.get("topic", "")),
        partition=int(found.get("partition", -1)),
        timestamp_ms=int(found.get("timestamp", -1)),
    )


def _header(found: Any) -> tuple[str, bytes | None]:
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        raise ValueError("a header is an object with a name")
    return found["name"], _bytes(found, "value")


def _bytes(found: Mapping[str, Any], name: str) -> bytes | None:
    encoded, text = found.get(f"{name}_base64"), found.get(name)
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise ValueError(f"{name}_base64 is not base64") from None
    if text is None:
        return None
    return text.encode() if isinstance(text, str) else json.dumps(text).encode()


# -- lines --------------------------------------------------------------------------------------


def from_line(
    line: bytes, key_separator: bytes | None, *, empty_is_null: bool = False
) -> TextMessage:
    """KEY SEPARATOR VALUE, or only a value; ValueError if the separator is missing."""
    key: bytes | None = None
    value: bytes | None = line
    if key_separator is not None:
        key, found, value = line.partition(key_separator)
        if not found:
            raise ValueError(f"there is no {key_separator.decode(errors='replace')!r} in it")
    if empty_is_null:
        key, value = key or None, value or None
    return TextMessage(key=key, value=value)


def numbered(lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines without their ends, counted from 1."""
    for number, line in enumerate(lines, start=1):
        yield number, line.removesuffix(b"\n")
