"""Writes docs/compatibility.md: what a running broker and controller say of the APIs they serve,
beside what Apache Kafka 4.4 has; and the clients that docs/clients.md has recorded.

`make docs` writes the page; a test compares it with what it would write.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kraftpy.network.client import WireClient
from kraftpy.testing import kraftpy_cluster
from kraftpy.wire.apis import VersionRange, api_name
from kraftpy.wire.envelope import FORWARDABLE

PAGE = Path(__file__).parent / "compatibility.md"
CLIENTS = Path(__file__).parent / "clients.md"
_TIMEOUT_S = 60.0
_GROUP_KEYS = frozenset((8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69))

# What brokers of Apache Kafka 4.4 serve to clients. The page says what is missing.
KAFKA: Mapping[int, VersionRange] = {
    key: VersionRange(low, high)
    for key, low, high in (
        *((0, 3, 13), (1, 4, 18), (2, 1, 11), (3, 0, 13), (8, 2, 10), (9, 1, 10), (10, 0, 6)),
        *((11, 0, 9), (12, 0, 4), (13, 0, 5), (14, 0, 5), (15, 0, 6), (16, 0, 5), (17, 0, 1)),
        *((18, 0, 5), (19, 2, 7), (20, 1, 6), (21, 0, 2), (22, 0, 5), (23, 2, 4), (24, 0, 5)),
        *((25, 0, 4), (26, 0, 5), (27, 1, 2), (28, 0, 6), (29, 1, 3), (30, 1, 3), (31, 1, 3)),
        *((32, 1, 4), (33, 0, 2), (34, 1, 2), (35, 1, 5), (36, 0, 2), (37, 0, 3), (38, 1, 3)),
        *((39, 1, 2), (40, 1, 2), (41, 1, 3), (42, 0, 3), (43, 0, 2), (44, 0, 1), (45, 0, 1)),
        *((46, 0, 0), (47, 0, 0), (48, 0, 1), (49, 0, 1), (50, 0, 0), (51, 0, 0), (55, 0, 2)),
        *((57, 0, 2), (60, 0, 2), (61, 0, 0), (64, 0, 0), (65, 0, 0), (66, 0, 2), (68, 0, 1)),
        *((69, 0, 1), (71, 0, 0), (72, 0, 0), (74, 0, 1), (75, 0, 0), (76, 1, 1), (77, 1, 1)),
        *((78, 1, 2), (79, 1, 2)),
    )
}


class Served(NamedTuple):
    """What the two kinds of nodes say."""

    broker: Mapping[int, VersionRange]
    controller: Mapping[int, VersionRange]


def ask() -> Served:
    """Start a cluster and ask it."""

    async def versions(address: str) -> Mapping[int, VersionRange]:
        host, _, port = address.rpartition(":")
        client = await WireClient.connect(host, int(port), timeout_s=_TIMEOUT_S)
        try:
            return dict(client.versions)
        finally:
            await client.close()

    with kraftpy_cluster() as cluster:
        broker, controller = cluster.bootstrap_servers, cluster.bootstrap_controllers
        return Served(asyncio.run(versions(broker)), asyncio.run(versions(controller)))


def page(served: Served, clients: str) -> str:
    """The whole page."""
    missing = [_name(key) for key in KAFKA if key not in served.broker]
    return "\n".join(
        (
            "# Compatibility",
            "",
            "Written by `make docs` from what a running broker and controller tell their clients;",
            "a test fails when it is out of date.",
            "",
            "## Clients",
            "",
            "These are tested against kraftpy, unchanged. [clients.md](clients.md) has which",
            "version of which API each of them sends.",
            "",
            *_client_table(clients),
            "",
            "Record batches are those of version 2, which every client since Kafka 0.11 writes.",
            "",
            "## APIs of a broker",
            "",
            "Kafka is Apache Kafka 4.4. Produce is advertised from 0 on, as Kafka does, since old",
            "librdkafka looks for it; versions before 3 are refused.",
            "",
            "| key | API | kraftpy | Kafka | answered by |",
            "|---|---|---|---|---|",
            *(_row(key, served.broker[key]) for key in sorted(served.broker)),
            "",
            "Not served: " + ", ".join(missing) + ".",
            "",
            "## APIs of a controller",
            "",
            "Raft between voters is not Kafka's protocol: Vote, BeginQuorumEpoch and",
            "EndQuorumEpoch are not served. Apache Kafka's controllers and brokers cannot join.",
            "",
            "| key | API | kraftpy |",
            "|---|---|---|",
            *(
                f"| {key} | {_name(key)} | {_range(served.controller[key])} |"
                for key in sorted(served.controller)
            ),
            "",
        )
    )


def _client_table(clients: str) -> Iterator[str]:
    """The first table of the page of clients."""
    yield from re.findall(r"^\| client .*?(?=\n\n)", clients, re.MULTILINE | re.DOTALL)


def _row(key: int, versions: VersionRange) -> str:
    kafka = _range(KAFKA[key]) if key in KAFKA else ""
    return f"| {key} | {_name(key)} | {_range(versions)} | {kafka} | {_answered_by(key)} |"


def _answered_by(key: int) -> str:
    if key in FORWARDABLE:
        return "the active controller"
    return "the group's coordinator" if key in _GROUP_KEYS else "the broker"


def _name(key: int) -> str:
    return "".join(word.capitalize() for word in api_name(key).split("_"))


def _range(versions: VersionRange) -> str:
    low, high = versions
    return str(low) if low == high else f"{low}-{high}"


def current() -> str:
    """The page as it should be now."""
    return page(ask(), CLIENTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(current(), encoding="utf-8")
