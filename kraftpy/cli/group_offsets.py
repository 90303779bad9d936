"""Where `kraftpy groups reset-offsets` is told to move offsets to. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kraftpy.errors import ConfigError

Place = tuple[str, int]  # Topic and partition.

_CHOICES = ("to_earliest", "to_latest", "to_offset", "to_datetime", "shift_by")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One of these; which, `kind` says."""

    kind: str
    number: int = 0
    time_ms: int | None = None

    def offset(self, start: int, end: int, committed: int | None, at_time: int | None) -> int:
        """The new offset of a partition that has records from `start` to before `end`."""
        match self.kind:
            case "to_earliest":
                wanted = start
            case "to_latest":
                wanted = end
            case "to_offset":
                wanted = self.number
            case "to_datetime":
                wanted = end if at_time is None or at_time < 0 else at_time
            case _:
                if committed is None:
                    raise ConfigError("--shift-by: a partition without an offset cannot be shifted")
                wanted = committed + self.number
        return min(max(wanted, start), end)


def chosen_target(options: Mapping[str, Any]) -> Target:
    """ConfigError unless exactly one of the options is given."""
    given = [name for name in _CHOICES if options[name] is not None and options[name] is not False]
    if len(given) != 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in _CHOICES)
        raise ConfigError(f"give one of {flags}")
    (kind,) = given
    value = options[kind]
    if kind == "to_datetime":
        return Target(kind=kind, time_ms=_time_ms(value))
    return Target(kind=kind, number=value if not isinstance(value, bool) else 0)


def _time_ms(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--to-datetime: {text!r} is not ISO 8601, as 2026-01-31T12:00") from None
    return int(found.timestamp() * 1000)


def parse_topics(texts: Sequence[str]) -> dict[str, list[int]]:
    """TOPIC or TOPIC:0,1,2 each; no partitions mean all of them."""
    found: dict[str, list[int]] = {}
    for text in texts:
        topic, sign, partitions = text.partition(":")
        numbers = partitions.split(",") if sign else []
        if not topic or not all(each.isdecimal() for each in numbers):
            raise ConfigError(f"--topic: expected TOPIC or TOPIC:0,1, not {text!r}")
        found.setdefault(topic, []).extend(map(int, numbers))
    return found
