"""What a topic may be called, and which topics are the cluster's own. Pure."""

import re
from typing import Final

NAME_CHARACTERS_MAX: Final = 249  # With the partition number behind it, a file's name.
GROUP_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
SHARE_TOPIC: Final = "__share_group_state"
_INTERNAL: Final = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC})
_LETTERS: Final = re.compile(r"[a-zA-Z0-9._-]+")
_SHOWN_CHARACTERS_MAX: Final = 60


def is_internal(name: str) -> bool:
    """Whether clients only ever read it."""
    return name in _INTERNAL


def name_problem(name: str) -> str | None:
    """What is wrong with the name of a new topic."""
    if not name:
        return "a topic's name cannot be empty"
    if name in (".", ".."):
        return f"a topic's name cannot be {name}"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"a topic's name has {NAME_CHARACTERS_MAX} characters at most, not {len(name)}"
    if not _LETTERS.fullmatch(name):
        shown = ascii(name[:_SHOWN_CHARACTERS_MAX])
        return f"a topic's name has ASCII letters, digits, '.', '_' and '-' only: not {shown}"
    return None
