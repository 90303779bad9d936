"""The types of values that settings and configs have: how each is read from text. Pure.

A Kind says in words what it allows, so that whoever refuses a value can say what to write instead.
Its name is Kafka's for the type (BOOLEAN, STRING, INT, LONG, DOUBLE, LIST), in small letters.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of value: how to read it from text, and in words what is allowed."""

    name: str
    allowed: str
    parse: Callable[[str], T]  # ValueError for what is not allowed.


def whole_number(minimum: int, maximum: int) -> Kind[int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text):
            raise ValueError
        number = int(text)
        if not minimum <= number <= maximum:
            raise ValueError
        return number

    name = "int" if maximum <= INT32_MAX else "long"
    return Kind(name=name, allowed=f"a whole number from {minimum} to {maximum}", parse=parse)


def time_or_no_limit(maximum: int) -> Kind[int]:
    any_time = whole_number(-1, maximum)

    def parse(text: str) -> int:
        if (number := any_time.parse(text)) == 0:
            raise ValueError  # Kafka refuses it too: everything would be deleted at once.
        return number

    allowed = f"-1, or a whole number from 1 to {maximum}"
    return Kind(name=any_time.name, allowed=allowed, parse=parse)


def either(first: Kind[int], second: Kind[int]) -> Kind[int]:
    """What one of two ranges allows."""

    def parse(text: str) -> int:
        try:
            return first.parse(text)
        except ValueError:
            return second.parse(text)

    return Kind(name=second.name, allowed=f"{first.allowed}, or {second.allowed}", parse=parse)


def exactly(number: int) -> Kind[int]:
    return Kind(name="int", allowed=str(number), parse=whole_number(number, number).parse)


def real_number(minimum: float, maximum: float) -> Kind[float]:
    def parse(text: str) -> float:
        if not re.fullmatch(r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]{1,3})?", text):
            raise ValueError
        number = float(text)
        if not minimum <= number <= maximum:
            raise ValueError
        return number

    return Kind(name="double", allowed=f"a number from {minimum} to {maximum}", parse=parse)


def true_or_false() -> Kind[bool]:
    def parse(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"

    return Kind(name="boolean", allowed="true or false", parse=parse)


def one_of(*choices: str) -> Kind[str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError
        return text.lower()

    return Kind(name="string", allowed=f"one of {', '.join(choices)}", parse=parse)


def one_of_exactly(*choices: str) -> Kind[str]:
    """The same where capital letters are not the small ones."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError
        return text

    return Kind(name="string", allowed=f"one of {', '.join(choices)}", parse=parse)


def items(text: str) -> tuple[str, ...]:
    """The items of a list as Kafka reads one: an empty text has none."""
    return tuple(item.strip() for item in text.split(",")) if text.strip() else ()


def list_of(*choices: str) -> Kind[tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        found = items(text)
        if len(set(found)) != len(found) or not set(found) <= set(choices):
            raise ValueError
        return found

    allowed = f"a list, without repetition, of {', '.join(choices)}"
    return Kind(name="list", allowed=allowed, parse=parse)


def list_matching(pattern: str, allowed: str) -> Kind[tuple[str, ...]]:
    compiled = re.compile(pattern)

    def parse(text: str) -> tuple[str, ...]:
        found = items(text)
        if not all(compiled.fullmatch(item) for item in found):
            raise ValueError
        return found

    return Kind(name="list", allowed=allowed, parse=parse)


def any_text(allowed: str) -> Kind[str]:
    def parse(text: str) -> str:
        if any(ord(character) < ord(" ") for character in text):
            raise ValueError
        return text.strip()

    return Kind(name="string", allowed=allowed, parse=parse)


def file_path() -> Kind[str]:
    def parse(text: str) -> str:
        if "\0" in text or "\n" in text:
            raise ValueError
        return text

    return Kind(name="path", allowed="a path, or empty", parse=parse)
