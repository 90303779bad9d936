"""The admin listener over real HTTP: what each address says, and what bad clients get."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from kraftpy.admin import feed, metrics
from kraftpy.admin.metrics import MEANINGS
from kraftpy.admin.start import address_of, bind, serving
from kraftpy.clock import SystemClock
from kraftpy.errors import AddressInUse, ConfigError
from kraftpy.storage.file_layer import OsFiles
from tests.unit.admin.node import LookedAt, small_cluster
from tests.unit.metadata_log.makers import brokers, change

PATIENCE_S = 30.0


class Web:
    """A client of one node's listener."""

    def __init__(self, session: aiohttp.ClientSession, url: str, node: LookedAt) -> None:
        self.session = session
        self.url = url
        self.node = node

    async def get(self, path: str, status: int = 200) -> Any:
        async with self.session.get(self.url + path) as answer:
            assert answer.status == status, await answer.text()
            text = await answer.text()
            return json.loads(text) if answer.content_type == "application/json" else text


@asynccontextmanager
async def looking(node: LookedAt) -> AsyncIterator[Web]:
    sockets = bind("127.0.0.1:0")
    url = address_of(sockets)
    assert url is not None
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with (
        serving(node, sockets, OsFiles(), SystemClock()),
        aiohttp.ClientSession(timeout=timeout) as session,
    ):
        yield Web(session, url, node)


def story(path: Path, tell: Callable[[Web], Awaitable[None]]) -> None:
    async def run() -> None:
        node = LookedAt(path)
        node.say(*small_cluster())
        async with looking(node) as web:
            await tell(web)

    asyncio.run(run())


async def next_event(answer: aiohttp.ClientResponse) -> tuple[str, Any]:
    lines: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while line := (await answer.content.readline()).decode().strip():
            lines.append(line)
    name, data = lines
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def until_event(answer: aiohttp.ClientResponse, name: str) -> Any:
    for _ in range(50):
        found, data = await next_event(answer)
        if found == name and data:
            return data
    raise AssertionError(f"no {name}")


def test_health_and_readiness_are_two_things(tmp_path: Path) -> None:
    async def tell(web: Web) -> None:
        assert await web.get("healthz") == "ok\n"
        assert await web.get("readyz") == {"ready": True, "state": "active"}
        web.node.ready = False
        assert await web.get("readyz", 503) == {"ready": False, "state": "electing"}
        assert await web.get("healthz") == "ok\n"

    story(tmp_path, tell)


def test_metrics_are_read_by_prometheus_and_every_name_has_its_meaning(tmp_path: Path) -> None:
    async def tell(web: Web) -> None:
        for under_replicated in (0, 1):
            found = {
                sample.name: sample.value
                for family in text_string_to_metric_families(await web.get("metrics"))
                for sample in family.samples
            }
            assert set(found) <= set(MEANINGS)
            assert found["kafka_controller_kafkacontroller_globalpartitioncount"] == 2
            assert found["kraftpy_cluster_under_replicated_partitions"] == under_replicated
            assert found["kafka_server_raft_metrics_current_epoch"] == 1
            web.node.say(change(0, isr=brokers(1, 2), partition_epoch=8 + under_replicated))

    story(tmp_path, tell)


def test_a_metric_that_nobody_explained_is_refused() -> None:
    with pytest.raises(KeyError):
        metrics.metric("kafka_made_up", 1)


def test_status_tells_all_and_also_when_no_leader_is_known(tmp_path: Path) -> None:
    async def tell(web: Web) -> None:
        found = await web.get("status")
        assert (found["node_id"], found["role"], found["state"]) == (1, "controller", "active")
        assert found["health"]["partitions"] == 2
        assert [broker["id"] for broker in found["brokers"]] == [1, 2, 3]
        assert "cannot connect" in found["quorum"]["error"]

    story(tmp_path, tell)


def test_the_past_is_told_by_offset_and_nonsense_is_refused(tmp_path: Path) -> None:
    async def tell(web: Web) -> None:
        end_offset = web.node.image.end_offset
        assert (await web.get("image?at=0"))["topics"] == []
        found = await web.get(f"image?at={end_offset + 50}")
        assert (found["end_offset"], found["last_offset"]) == (end_offset, end_offset)
        assert len(found["topics"]) == 1
        for wrong in ("x", "-1", "1e3", str(1 << 80), "%D9%A3"):
            assert "must be an offset" in (await web.get(f"image?at={wrong}", 400))["error"]

    story(tmp_path, tell)


def test_a_page_hears_everything_and_then_what_changes(tmp_path: Path) -> None:
    async def tell(web: Web) -> None:
        async with web.session.get(web.url + "events") as answer:
            assert answer.content_type == "text/event-stream"
            topics = await until_event(answer, "topics")
            assert topics["all"]
            assert [row["name"] for row in topics["changed"]] == ["orders"]
            assert (await until_event(answer, "records"))[-1]["type"] == "PartitionRecord"
            assert (await until_event(answer, "status"))["health"]["partitions"] == 2
            web.node.say(change(0, isr=brokers(1, 2)))
            topics = await until_event(answer, "topics")
            assert "all" not in topics
            (said,) = await until_event(answer, "records")
            assert said["text"] == "orders-0: in sync [1, 2] (-3)"
            async with web.session.get(web.url + "events") as second:
                assert (await until_event(second, "topics"))["all"]
                assert len(await until_event(second, "records")) == web.node.image.end_offset

    story(tmp_path, tell)


def test_only_so_many_pages_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LISTENERS_MAX", 1)

    async def tell(web: Web) -> None:
        async with web.session.get(web.url + "events") as answer:
            await until_event(answer, "topics")
            assert "1 pages are open" in (await web.get("events", 503))["error"]
        for _ in range(200):  # The first one is gone: its place is free as soon as that is seen.
            async with web.session.get(web.url + "events") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.05)
        raise AssertionError("its place was not given back")

    story(tmp_path, tell)


def test_a_page_that_does_not_listen_is_let_go(tmp_path: Path) -> None:
    async def tell() -> None:
        node = LookedAt(tmp_path)
        told = feed.Feed(node, OsFiles(), SystemClock())
        events = told.listen()
        await anext(events)
        for number in range(feed._UNHEARD_MAX + 1):
            told._tell("status", number)
        assert not told._listeners
        with pytest.raises(StopAsyncIteration):
            await anext(events)
        await told.close()

    asyncio.run(tell())


def test_other_addresses_and_methods_are_refused_in_one_line(tmp_path: Path) -> None:
    async def tell(web: Web) -> None:
        assert await web.get("nothing", 404) == {"error": "Not Found"}
        async with web.session.post(web.url + "status") as answer:
            assert answer.status == 405
        assert "<title>kraftpy" in await web.get("")

    story(tmp_path, tell)


# -- where it listens -------------------------------------------------------------------------


def test_an_address_that_was_asked_for_must_be_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(AddressInUse):
        bind(f"127.0.0.1:{taken.getsockname()[1]}")
    assert bind("none") == []
    with pytest.raises(ConfigError, match=r"admin\.listeners: expected HOST:PORT"):
        bind("9644")


def test_the_usual_port_is_only_a_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr("kraftpy.admin.start.USUAL_PORT", taken.getsockname()[1])
        (found,) = bind("")
        assert found.getsockname()[1] != taken.getsockname()[1]
        found.close()


def test_beyond_loopback_it_says_that_anyone_can_read() -> None:
    with capture_logs() as logged:
        for sock in bind("0.0.0.0:0"):
            sock.close()
    assert [each["event"] for each in logged] == ["admin_is_open"]
