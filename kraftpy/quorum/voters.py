"""Who votes and where they listen: `1@host:9093,2@host:9093,3@host:9093`. Pure."""

import hashlib
import re
from typing import Final, NamedTuple

from kraftpy.errors import ConfigError
from kraftpy.types import Uuid

_VOTER: Final = re.compile(r"(\d{1,9})@(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_PORT_MAX: Final = 65535


class Voter(NamedTuple):
    """One controller and its only address."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node_id}@{self.host}:{self.port}"


def parse_voters(text: str) -> tuple[Voter, ...]:
    """The voters, by id. ConfigError says what is wrong with the text."""
    found: dict[int, Voter] = {}
    for part in text.split(","):
        match = _VOTER.fullmatch(part.strip())
        if match is None or int(match[3]) > _PORT_MAX:
            raise ConfigError(f"voters: expected ID@HOST:PORT, not {part.strip()!r}")
        voter = Voter(int(match[1]), match[2].strip("[]"), int(match[3]))
        if voter.node_id in found:
            raise ConfigError(f"voters: node {voter.node_id} is named twice")
        found[voter.node_id] = voter
    addresses = {(voter.host, voter.port) for voter in found.values()}
    if len(addresses) < len(found):
        raise ConfigError("voters: two voters have the same address")
    return tuple(found[node_id] for node_id in sorted(found))


def default_cluster_id(voters: tuple[Voter, ...]) -> Uuid:
    """The same id on every node that was started with the same voters, without asking anyone."""
    digest = hashlib.sha256(",".join(map(str, voters)).encode()).digest()
    raw = bytearray(digest[:16])
    raw[0] &= 0x7F  # Its text never begins with a dash.
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return Uuid(bytes(raw))
