"""Constructors for frozen slotted dataclasses, without the price of frozen.

A frozen dataclass sets each field through object.__setattr__, which costs about four times a plain
store. `draft_of(cls)` is a twin class with the same slots that is not frozen: fill a draft, assign
`draft.__class__ = cls`, and it is the frozen value. The assignment is legal as both classes have
the same layout, and CPython refuses it otherwise. Only the codec, replay and the decision that
creates partitions by the thousand use this; nothing may hold on to a draft.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def draft_of(cls: type) -> type:
    """The unfrozen twin of a frozen slotted dataclass."""
    return type(f"Draft{cls.__name__}", cls.__bases__, {"__slots__": vars(cls)["__slots__"]})


def constructor(cls: type[T]) -> Callable[..., T]:
    """A function that takes every field by position and skips __init__ and __post_init__."""
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    source = [f"def construct({', '.join(names)}):", " _r = _Draft()"]
    source += [f" _r.{name} = {name}" for name in names]
    source += [" _r.__class__ = _cls", " return _r"]
    return compile_function("\n".join(source), {"_Draft": draft_of(cls), "_cls": cls})


def compile_function(source: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The one function that `source` defines; `names` are its globals."""
    function_name = source[len("def ") : source.index("(")]
    exec(compile(source, f"<generated {function_name}>", "exec"), names)
    function: Callable[..., Any] = names[function_name]
    return function
