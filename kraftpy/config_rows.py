"""One row of the table of settings, and how a field of Settings becomes one. Pure."""

import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kraftpy.config_kinds import Kind

T = TypeVar("T")

ENVIRONMENT_PREFIX: Final = "KRAFTPY_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table that `kraftpy config list` prints."""

    key: str
    kind: Kind[Any]
    default: Any  # None: not set, and another key decides.
    meaning: str

    @property
    def environment_name(self) -> str:
        return environment_name(self.key)

    @property
    def attribute(self) -> str:
        """The field of Settings that holds the value."""
        return re.sub(r"[.-]", "_", self.key)

    @property
    def subject(self) -> str:
        """What it decides; keys that differ only in the unit of time have the same subject."""
        return re.sub(r"\.(ms|minutes|hours)$", "", self.key)


def environment_name(key: str) -> str:
    """The environment variable that sets `key`."""
    return ENVIRONMENT_PREFIX + re.sub(r"[.-]", "_", key).upper()


def setting(key: str, kind: Kind[T], default: T, meaning: str) -> T:
    """A field with this default."""
    row = Setting(key=key, kind=kind, default=default, meaning=meaning)
    return field(default=default, metadata={"setting": row})


def unset(key: str, kind: Kind[T], meaning: str) -> T | None:
    """A field that is None until somebody gives it a value."""
    row = Setting(key=key, kind=kind, default=None, meaning=meaning)
    return field(default=None, metadata={"setting": row})
