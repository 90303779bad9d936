"""Where somebody listens: HOST:PORT, as people write it. Pure but for its place in this package."""

import re
from typing import Final, NamedTuple

from kraftpy.errors import ConfigError

_PLACE: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_PORT_MAX: Final = 65535


class Place(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_place(text: str, origin: str, example: str, *, port_min: int = 1) -> Place:
    """ConfigError names `origin` if the text is not HOST:PORT."""
    match = _PLACE.fullmatch(text.strip())
    if match is None or not port_min <= int(match[2]) <= _PORT_MAX:
        raise ConfigError(f"{origin}: expected HOST:PORT, such as {example}, not {text.strip()!r}")
    return Place(match[1].strip("[]"), int(match[2]))
