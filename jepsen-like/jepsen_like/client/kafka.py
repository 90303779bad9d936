"""A client of one process of the harness: knows who leads, and says of each attempt what it means.

Every operation ends in one of three ways: it returns (it happened), Definite is raised (it surely
did not), or Indefinite (nobody knows). Nothing is repeated behind the caller's back; `send` alone
repeats a record, as producers do, and then one indefinite attempt makes the whole operation
indefinite unless a later one is acknowledged. An idempotent record keeps its sequence number; one
that is not may stand in the log more than once.
"""

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from jepsen_like.client import requests
from jepsen_like.client.codec import BadAnswer
from jepsen_like.client.connection import Connection
from jepsen_like.client.errors import (
    DUPLICATE_SEQUENCE,
    Unanswered,
    Unsent,
    is_definite,
    name_of,
)
from jepsen_like.client.records import Batch, one_record, read_batches
from jepsen_like.client.requests import ClusterInfo, PartitionInfo

PRODUCE: Final = (0, 7)
FETCH: Final = (1, 11)
LIST_OFFSETS: Final = (2, 5)
METADATA: Final = (3, 7)
OFFSET_COMMIT: Final = (8, 7)
OFFSET_FETCH: Final = (9, 5)
FIND_COORDINATOR: Final = (10, 2)
CREATE_TOPICS: Final = (19, 4)
DELETE_TOPICS: Final = (20, 3)
INIT_PRODUCER_ID: Final = (22, 1)
DESCRIBE_CONFIGS: Final = (32, 1)
ELECT_LEADERS: Final = (43, 1)
ALTER_CONFIGS: Final = (44, 0)
REASSIGN: Final = (45, 0)
UNREGISTER_BROKER: Final = (64, 0)
DESCRIBE_QUORUM: Final = (55, 0)

Address = tuple[str, int]
_FETCH_BYTES_MAX: Final = 1_000_000
_RETRY_PAUSE_S: Final = 0.1


class Definite(Exception):
    """It did not happen and never will."""


class Indefinite(Exception):
    """It may have happened, or may yet."""


class Sent(NamedTuple):
    offset: int
    leader_epoch: int
    node_id: int


class Polled(NamedTuple):
    batches: list[Batch]
    next_offset: int
    node_id: int


class KafkaClient:
    """Lives in one event loop, for one process at a time."""

    def __init__(
        self,
        brokers: Mapping[int, Address] | list[Address],
        controllers: Mapping[int, Address],
        rng: random.Random,
        timeout_s: float = 5.0,
        *,
        learns: bool = True,
    ) -> None:
        """Without `learns` it asks at the given addresses, whatever brokers advertise."""
        self.timeout_s = timeout_s
        self._learns = learns
        self._bootstrap = list(brokers.values()) if isinstance(brokers, Mapping) else list(brokers)
        self._given: dict[int, Address] = dict(brokers) if isinstance(brokers, Mapping) else {}
        self._known = dict(self._given)
        self._controllers = dict(controllers)
        self._rng = rng
        self._connections: dict[Address, Connection] = {}
        self._topics: dict[str, dict[int, PartitionInfo]] = {}
        self._active: int | None = None
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[tuple[str, int], int] = {}
        self._coordinators: dict[str, int] = {}

    @property
    def broker_ids(self) -> list[int]:
        return sorted(self._known)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # -- asking --------------------------------------------------------------------------------

    def _to(self, address: Address) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(*address)
        return self._connections[address]

    async def _ask(
        self,
        address: Address,
        api: tuple[int, int],
        body: bytes,
        *,
        flexible: bool = False,
        timeout_s: float | None = None,
    ) -> bytes:
        try:
            return await self._to(address).ask(
                *api, body, timeout_s or self.timeout_s, flexible=flexible
            )
        except Unsent as error:
            raise Definite(str(error)) from None
        except Unanswered as error:
            raise Indefinite(str(error)) from None

    async def ask_broker(
        self, node_id: int, api: tuple[int, int], body: bytes, *, flexible: bool = False
    ) -> bytes:
        if node_id not in self._known:
            raise Definite("no such broker known")
        return await self._ask(self._known[node_id], api, body, flexible=flexible)

    async def ask_any(
        self, api: tuple[int, int], body: bytes, *, flexible: bool = False
    ) -> tuple[int, bytes]:
        """Of a random broker; its id and the answer."""
        if not self._known:
            await self.refresh(None)
        node_id = self._rng.choice(self.broker_ids)
        return node_id, await self.ask_broker(node_id, api, body, flexible=flexible)

    # -- metadata -----------------------------------------------------------------------------

    async def refresh(self, topics: list[str] | None) -> ClusterInfo:
        """Ask one node after the other, in any order, until one answers."""
        places = [*self._known.values()] or list(self._bootstrap)
        self._rng.shuffle(places)
        problem: Exception = Definite("there is nobody to ask")
        for place in places:
            try:
                data = await self._ask(place, METADATA, requests.metadata(topics), timeout_s=2.0)
                found = requests.read_metadata(data)
            except (Definite, Indefinite, BadAnswer) as error:
                problem = error
                continue
            if self._learns and found.nodes:
                self._known = {**self._given, **found.nodes}  # Others have left.
            self._topics.update(found.topics)
            return found
        raise Definite(f"no metadata: {problem}")

    async def view(self, node_id: int, topics: list[str] | None = None) -> ClusterInfo:
        """The cluster as this broker sees it."""
        data = await self.ask_broker(node_id, METADATA, requests.metadata(topics))
        return requests.read_metadata(data)

    async def _leader(self, topic: str, partition: int) -> PartitionInfo:
        info = self._topics.get(topic, {}).get(partition)
        if info is None or info.leader < 0 or info.leader not in self._known:
            await self.refresh([topic])
            info = self._topics.get(topic, {}).get(partition)
        if info is None or info.leader < 0 or info.leader not in self._known:
            raise Definite("no leader")
        return info

    def forget_leader(self, topic: str, partition: int) -> None:
        self._topics.get(topic, {}).pop(partition, None)

    # -- records ------------------------------------------------------------------------------

    async def send(
        self, topic: str, partition: int, value: bytes, *, idempotent: bool, retry_s: float = 0.0
    ) -> Sent:
        """Append one record with acks=all, and try again for so long."""
        key = (topic, partition)
        sequence = self._sequences.get(key, 0)
        if idempotent:
            producer_id, epoch = await self._own_producer()
            sequence = self._sequences.get(key, 0)
            batch = one_record(value, _now_ms(), producer_id, epoch, sequence)
        else:
            batch = one_record(value, _now_ms())
        deadline = time.monotonic() + retry_s
        doubt: Indefinite | None = None
        while True:
            try:
                sent = await self._attempt(topic, partition, batch)
                self._sequences[key] = sequence + 1
                return sent
            except Definite as error:
                if doubt is None and time.monotonic() >= deadline:
                    raise
                last: Exception = error
            except Indefinite as error:
                doubt = last = error
            if time.monotonic() >= deadline:
                self._producer = None  # Nobody knows where its sequence stands.
                raise Indefinite(str(doubt or last))
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def _own_producer(self) -> tuple[int, int]:
        if self._producer is None:
            try:
                _, data = await self.ask_any(INIT_PRODUCER_ID, requests.init_producer_id())
            except Indefinite as error:  # An id that is lost is no record.
                raise Definite(f"no producer id: {error}") from None
            error_code, producer_id, epoch = requests.read_init_producer_id(data)
            if error_code:
                raise Definite(f"no producer id: {name_of(error_code)}")
            self._producer = producer_id, epoch
            self._sequences.clear()
        return self._producer

    async def _attempt(self, topic: str, partition: int, batch: bytes) -> Sent:
        info = await self._leader(topic, partition)
        timeout_ms = int(self.timeout_s * 800)
        try:
            body = requests.produce(topic, partition, batch, timeout_ms)
            data = await self.ask_broker(info.leader, PRODUCE, body)
            code, offset = requests.read_produce(data)
        except (Definite, Indefinite):
            self.forget_leader(topic, partition)
            raise
        if code in (0, DUPLICATE_SEQUENCE) and offset >= 0:
            return Sent(offset, info.leader_epoch, info.leader)
        self.forget_leader(topic, partition)
        if is_definite(code):
            raise Definite(name_of(code))
        # NOT_LEADER_OR_FOLLOWER as well: a leader that was replaced says it of what it appended.
        raise Indefinite(name_of(code))

    async def poll(
        self,
        topic: str,
        partition: int,
        offset: int,
        wait_ms: int = 100,
        bytes_max: int = _FETCH_BYTES_MAX,
    ) -> Polled:
        """Records from `offset` on, as many as come within the time."""
        info = await self._leader(topic, partition)
        body = requests.fetch(topic, partition, offset, wait_ms, bytes_max)
        fetched = requests.read_fetch(await self._read(info, topic, partition, FETCH, body))
        self._check(fetched.error, topic, partition)
        try:
            batches = read_batches(fetched.data)
        except BadAnswer as error:
            raise Definite(f"CORRUPT: {error}") from None
        next_offset = max([offset, *(each.last_offset + 1 for each in batches)])
        return Polled(batches, next_offset, info.leader)

    async def end_offset(self, topic: str, partition: int) -> tuple[int, int]:
        """(end of what can be read, who said so)."""
        info = await self._leader(topic, partition)
        body = requests.list_offsets(topic, partition)
        data = await self._read(info, topic, partition, LIST_OFFSETS, body)
        code, offset = requests.read_list_offsets(data)
        self._check(code, topic, partition)
        return offset, info.leader

    async def _read(
        self, info: PartitionInfo, topic: str, partition: int, api: tuple[int, int], body: bytes
    ) -> bytes:
        try:
            return await self.ask_broker(info.leader, api, body)
        except (Definite, Indefinite):
            self.forget_leader(topic, partition)
            raise

    def _check(self, code: int, topic: str, partition: int) -> None:
        if code:
            self.forget_leader(topic, partition)
            raise Definite(name_of(code))

    # -- groups --------------------------------------------------------------------------------

    async def coordinator(self, group: str) -> int:
        """Who keeps the group's offsets."""
        if group in self._coordinators:
            return self._coordinators[group]
        _, data = await self.ask_any(FIND_COORDINATOR, requests.find_coordinator(group))
        code, node_id, host, port = requests.read_find_coordinator(data)
        if code:
            raise Definite(name_of(code))
        self._known[node_id] = host, port
        self._coordinators[group] = node_id
        return node_id

    def forget_coordinator(self, group: str) -> None:
        self._coordinators.pop(group, None)

    async def ask_coordinator(self, group: str, body: bytes, *, commit: bool) -> tuple[int, bytes]:
        """OffsetCommit or OffsetFetch; who answered, and the answer."""
        try:
            node_id = await self.coordinator(group)
        except Indefinite as error:  # Nothing was committed by asking who would.
            raise Definite(f"no coordinator: {error}") from None
        try:
            api = OFFSET_COMMIT if commit else OFFSET_FETCH
            return node_id, await self.ask_broker(node_id, api, body)
        except (Definite, Indefinite):
            self.forget_coordinator(group)
            raise

    # -- the active controller -----------------------------------------------------------------

    @property
    def has_controllers(self) -> bool:
        return bool(self._controllers)

    async def active_controller(self) -> int:
        """Who says it leads the quorum, or is said to; asked anew after each failure."""
        if self._active is not None:
            return self._active
        ids = sorted(self._controllers)
        self._rng.shuffle(ids)
        for node_id in ids:
            try:
                info = await self.quorum(node_id)
            except (Definite, Indefinite, BadAnswer):
                continue
            if info.leader_id in self._controllers:
                self._active = info.leader_id
                return info.leader_id
        raise Definite("no active controller")

    async def quorum(self, node_id: int) -> requests.QuorumInfo:
        """What this controller knows of the quorum."""
        address = self._controllers[node_id]
        data = await self._ask(
            address, DESCRIBE_QUORUM, requests.describe_quorum(), flexible=True, timeout_s=2.0
        )
        return requests.read_describe_quorum(data)

    async def ask_controller(self, api: tuple[int, int], body: bytes) -> tuple[int, bytes]:
        """Of the active controller; its id and the answer."""
        node_id = await self.active_controller()
        try:
            return node_id, await self._ask(self._controllers[node_id], api, body)
        except (Definite, Indefinite):
            self._active = None
            raise

    async def read_metadata_log(self, node_id: int, offset: int) -> tuple[list[Batch], int]:
        """Batches of the metadata log from a controller, and the next offset."""
        body = requests.fetch(requests.METADATA_TOPIC, 0, offset, 100, _FETCH_BYTES_MAX)
        fetched = requests.read_fetch(await self._ask(self._controllers[node_id], FETCH, body))
        if fetched.error:
            raise Definite(name_of(fetched.error))
        batches = read_batches(fetched.data)
        return batches, max([offset, *(each.last_offset + 1 for each in batches)])

    async def metadata_log_start(self, node_id: int) -> int:
        """The first offset that the metadata log still has."""
        body = requests.list_offsets(requests.METADATA_TOPIC, 0, requests.EARLIEST)
        data = await self._ask(self._controllers[node_id], LIST_OFFSETS, body)
        code, offset = requests.read_list_offsets(data)
        if code:
            raise Definite(name_of(code))
        return offset

    def forget_controller(self) -> None:
        self._active = None

    def controller_said(self, code: int) -> None:
        """Raise what an error of the active controller means."""
        if code == 0:
            return
        self._active = None
        raise Definite(name_of(code)) if is_definite(code) else Indefinite(name_of(code))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
