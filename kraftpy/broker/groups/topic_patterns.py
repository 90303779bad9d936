"""Regular expressions over topic names, in RE2's syntax, as members of groups subscribe with. Pure.

They come from clients and run in the coordinator: so an expression is compiled into a machine that
looks at each character of a name once, whatever it says, as RE2 does. Python's `re` backtracks, and
can be made to take for ever. Names have 65 different characters, so that a class of characters is a
set of these; what RE2 cannot do (backreferences, looking around) is refused, as it is there.

A name matches if the expression matches all of it.
"""

import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_DIGITS: Final = frozenset(string.digits)
_NONE: Final[frozenset[str]] = frozenset()
_TEXT_MAX: Final = 4096
_DEPTH_MAX: Final = 100
_REPEAT_MAX: Final = 1000  # As RE2.
_PROGRAM_MAX: Final = 5000
_STEPS_KEPT: Final = 10_000

_CLASSES: Final = {
    "d": _DIGITS,
    "D": ALPHABET - _DIGITS,
    "w": _WORD,
    "W": ALPHABET - _WORD,
    "s": _NONE,
    "S": ALPHABET,
}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters) | _DIGITS,
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": _NONE,
    "cntrl": _NONE,
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": _NONE,
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_ASSERTIONS: Final = {"A": "begin", "z": "end", "b": "boundary", "B": "inside"}


class PatternError(ValueError):
    """Not an expression, or one that is not taken."""


# -- what an expression says --------------------------------------------------------------------


class _Class(NamedTuple):
    characters: frozenset[str]


class _Assertion(NamedTuple):
    kind: str


class _Sequence(NamedTuple):
    items: tuple["_Node", ...]


class _Choice(NamedTuple):
    items: tuple["_Node", ...]


class _Repeat(NamedTuple):
    item: "_Node"
    least: int
    most: int | None


_Node = _Class | _Assertion | _Sequence | _Choice | _Repeat
_EMPTY: Final = _Sequence(())


class _Parser:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise PatternError("missing argument to ( : there is a ) too many")
        return node

    # -- characters ---------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _next(self, what: str) -> str:
        found = self._peek()
        if not found:
            raise PatternError(f"missing {what} at the end")
        self._at += 1
        return found

    def _takes(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _until(self, end: str, what: str) -> str:
        at = self._text.find(end, self._at)
        if at < 0:
            raise PatternError(f"missing {end} after {what}")
        found, self._at = self._text[self._at : at], at + len(end)
        return found

    # -- structure ----------------------------------------------------------------------------

    def _choice(self) -> _Node:
        items = [self._sequence()]
        while self._takes("|"):
            items.append(self._sequence())
        return items[0] if len(items) == 1 else _Choice(tuple(items))

    def _sequence(self) -> _Node:
        items: list[_Node] = []
        while self._peek() and self._peek() not in "|)":
            if self._takes("\\Q"):
                text = self._text[self._at :].split("\\E", 1)[0]
                self._at = min(self._at + len(text) + 2, len(self._text))
                items += map(self._literal, text)
                continue
            items.append(self._repeated(self._atom()))
        return items[0] if len(items) == 1 else _Sequence(tuple(items))

    def _repeated(self, item: _Node) -> _Node:
        found = self._repetition()
        if found is None:
            return item
        self._takes("?")  # As little as possible: the same names match.
        if self._repetition() is not None:
            raise PatternError("invalid nested repetition operator")
        return _Repeat(item, *found)

    def _repetition(self) -> tuple[int, int | None] | None:
        for text, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._takes(text):
                return found
        if self._peek() != "{":
            return None
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, 0)].partition(",")
        if end < 0 or not least.isdecimal() or (most and not most.isdecimal()):
            return None  # Not a repetition, so it is text, as in RE2.
        self._at = end + 1
        low = int(least)
        high = int(most) if most else (None if comma else low)
        if max(low, high or 0) > _REPEAT_MAX or (high is not None and high < low):
            raise PatternError(f"invalid repeat count {{{least}{comma}{most}}}")
        return low, high

    def _atom(self) -> _Node:
        found = self._next("expression")
        match found:
            case "(":
                return self._group()
            case "[":
                return self._bracket()
            case ".":
                return _Class(ALPHABET)
            case "^":
                return _Assertion("begin")
            case "$":
                return _Assertion("end")
            case "*" | "+" | "?":
                raise PatternError(f"missing argument to repetition operator {found}")
            case "\\":
                return self._escape()
            case _:
                return self._literal(found)

    def _literal(self, character: str) -> _Class:
        return _Class(self._cased({character}) & ALPHABET)

    def _cased(self, characters: Iterable[str]) -> frozenset[str]:
        found = set(characters)
        if self._ignores_case:
            found |= {each.lower() for each in found} | {each.upper() for each in found}
        return frozenset(found)

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise PatternError("expression nests too deeply")
        before = self._ignores_case
        if self._takes("?") and not self._takes(":"):
            if self._takes("P<") or (self._peek() == "<" and self._peek(1) not in ("=", "!")):
                name = self._until(">", "the name of a group").lstrip("<")
                if not name or not set(name) <= _WORD:
                    raise PatternError(f"invalid named capture {name!r}")
            elif self._flags():
                self._depth -= 1
                return _EMPTY  # They hold until the end of the group around.
        node = self._choice()
        if not self._takes(")"):
            raise PatternError("missing closing )")
        self._ignores_case = before
        self._depth -= 1
        return node

    def _flags(self) -> bool:
        """True if nothing but flags is between the parentheses."""
        switch_on = True
        while (found := self._next(")")) not in ":)":
            if found == "-" and switch_on:
                switch_on = False
            elif found == "i":
                self._ignores_case = switch_on
            elif found not in "msU":  # No names of several lines; how much is taken is the same.
                raise PatternError(f"invalid or unsupported Perl syntax: (?{found}")
        return found == ")"

    # -- classes ------------------------------------------------------------------------------

    def _escape(self) -> _Node:
        found = self._peek()
        if found in _ASSERTIONS and found:
            self._at += 1
            return _Assertion(_ASSERTIONS[found])
        if found in _CLASSES and found:
            self._at += 1
            return _Class(_CLASSES[found])
        return self._literal(self._escaped())

    def _escaped(self) -> str:
        """One character that is written with a backslash."""
        found = self._next("character after \\")
        if found in _CONTROLS:
            return _CONTROLS[found]
        if found == "x":
            digits = self._until("}", "\\x{") if self._takes("{") else self._next("digit")
            if len(digits) == 1 and self._text[self._at - 1] != "}":
                digits += self._next("digit")
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise PatternError(f"invalid escape sequence \\x{digits}") from None
        if found.isalnum():
            raise PatternError(f"invalid escape sequence \\{found}")
        return found

    def _bracket(self) -> _Node:
        is_negated = self._takes("^")
        found: set[str] = set()
        first = True
        while first or not self._takes("]"):
            found.update(self._bracket_item())
            first = False
        characters = self._cased(found)
        return _Class(ALPHABET - characters if is_negated else characters & ALPHABET)

    def _bracket_item(self) -> Iterable[str]:
        if self._takes("[:"):
            name = self._until(":]", "[:")
            characters = _POSIX.get(name.removeprefix("^"))
            if characters is None:
                raise PatternError(f"invalid character class range [:{name}:]")
            return ALPHABET - characters if name.startswith("^") else characters
        if self._peek() == "\\" and self._peek(1) in _CLASSES and self._peek(1):
            self._at += 2
            return _CLASSES[self._text[self._at - 1]]
        low = self._bracket_character()
        if self._peek() == "-" and self._peek(1) not in ("]", ""):
            self._at += 1
            high = self._bracket_character()
            if high < low:
                raise PatternError(f"invalid character class range {low}-{high}")
            return {each for each in ALPHABET if low <= each <= high}
        return {low}

    def _bracket_character(self) -> str:
        found = self._next("closing ]")
        return self._escaped() if found == "\\" else found


# -- the machine --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Code:
    """One step: read a character of a class, go two ways, look around, or be at the end."""

    characters: frozenset[str] | None = None
    assertion: str | None = None
    ways: tuple[int, ...] = ()


class _Compiler:
    def __init__(self) -> None:
        self.program: list[_Code] = []

    def add(self, code: _Code) -> int:
        if len(self.program) >= _PROGRAM_MAX:
            raise PatternError("expression too large")
        self.program.append(code)
        return len(self.program) - 1

    def compile(self, node: _Node, then: int) -> int:
        """Where it begins, if it goes on at `then`."""
        match node:
            case _Class(characters):
                return self.add(_Code(characters=characters, ways=(then,)))
            case _Assertion(kind):
                return self.add(_Code(assertion=kind, ways=(then,)))
            case _Sequence(items):
                for item in reversed(items):
                    then = self.compile(item, then)
                return then
            case _Choice(items):
                return self.add(_Code(ways=tuple(self.compile(each, then) for each in items)))
            case _Repeat(item, least, most):
                return self._repeat(item, least, most, then)

    def _repeat(self, item: _Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            loop = self.add(_Code())
            self.program[loop].ways = (self.compile(item, loop), then)
            start = loop
        else:
            start = then
            for _ in range(most - least):
                start = self.add(_Code(ways=(self.compile(item, start), then)))
        for _ in range(least):
            start = self.compile(item, start)
        return start


class TopicPattern:
    """A compiled expression."""

    def __init__(self, text: str) -> None:
        if len(text) > _TEXT_MAX:
            raise PatternError(f"an expression of more than {_TEXT_MAX} characters")
        compiler = _Compiler()
        self._end = compiler.add(_Code())
        start = compiler.compile(_Parser(text).parse(), self._end)
        self.text = text
        self._start = frozenset((start,))
        self._program: Sequence[_Code] = compiler.program
        self._steps: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        states, before = self._start, ""
        for character in name:
            states = self._step(states, before, character)
            if not states:
                return False
            before = "w" if character in _WORD else "-"
        return self._end in self._reached(states, before, "")

    def _step(self, states: frozenset[int], before: str, character: str) -> frozenset[int]:
        key = (states, before, character)
        found = self._steps.get(key)
        if found is None:
            program = self._program
            found = frozenset(
                program[each].ways[0]
                for each in self._reached(states, before, character)
                if character in (program[each].characters or _NONE)
            )
            if len(self._steps) >= _STEPS_KEPT:
                self._steps.clear()
            self._steps[key] = found
        return found

    def _reached(self, states: Iterable[int], before: str, after: str) -> set[int]:
        """All that can be reached without reading a character."""
        is_boundary = (before == "w") != (after in _WORD)
        holds = {
            "begin": not before,
            "end": not after,
            "boundary": is_boundary,
            "inside": not is_boundary,
        }
        found: set[int] = set()
        open_ones = list(states)
        while open_ones:
            at = open_ones.pop()
            if at in found:
                continue
            found.add(at)
            code = self._program[at]
            if code.characters is None and (code.assertion is None or holds[code.assertion]):
                open_ones += code.ways
        return found


def matcher(text: str) -> Callable[[str], bool]:
    """Whether a name matches; PatternError if that cannot be said."""
    return TopicPattern(text).matches
