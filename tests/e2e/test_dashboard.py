"""The dashboard in a real browser: it follows the cluster, shows its past, and holds many."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kraftpy.admin.start import address_of, bind, serving
from kraftpy.clock import SystemClock
from kraftpy.storage.file_layer import OsFiles
from kraftpy.types import NO_LEADER
from tests.e2e import browser
from tests.e2e.browser import Page
from tests.unit.admin.node import LookedAt, large_topic, small_cluster
from tests.unit.metadata_log.makers import brokers, change

pytestmark = pytest.mark.skipif(bool(browser.MISSING), reason=browser.MISSING)

TILE = "[...document.querySelectorAll('.tile')].find(t => t.innerText.includes('{name}'))"
PATH = "window.partitions.lines[0]"


def tile(name: str, value: int) -> str:
    """An expression that is true when a tile shows this."""
    return f"{TILE.format(name=name)}?.querySelector('b').innerText === '{value:,}'"


def story(node: LookedAt, tell: Callable[[Page], Awaitable[None]]) -> None:
    async def run() -> None:
        sockets = bind("127.0.0.1:0")
        url = address_of(sockets)
        assert url is not None
        async with serving(node, sockets, OsFiles(), SystemClock()), browser.page() as page:
            await page.open(url)
            await tell(page)
            assert page.complaints == []

    asyncio.run(run())


def test_the_page_follows_the_cluster_and_shows_its_past(tmp_path: Path) -> None:
    node = LookedAt(tmp_path)
    node.say(*small_cluster())
    healthy = node.image.end_offset

    async def tell(page: Page) -> None:
        await page.until(f"{tile('partitions', 2)} && {tile('offline', 0)}")
        node.say(change(0, isr=brokers(2), leader=NO_LEADER, leader_epoch=5))
        await page.until(f"{tile('offline', 1)} && {tile('under-replicated', 1)}")
        await page.until("document.getElementById('records').innerText.includes('nobody can lead')")
        # Back to when all was well, and to the present again.
        await page.value(
            f"slider.value = {healthy}; slider.dispatchEvent(new Event('input')); true"
        )
        await page.until(f"moment.innerText.startsWith('as it was at offset {healthy}')")
        await page.until(tile("offline", 0))
        assert await page.value(f"{PATH}.worst") == 0
        await page.value("now.click(); true")
        await page.until(f"{tile('offline', 1)} && {PATH}.worst === 2")

    story(node, tell)


def test_ten_thousand_partitions_cost_what_is_seen_of_them(tmp_path: Path) -> None:
    node = LookedAt(tmp_path)
    node.say(*small_cluster())
    for number in range(10):
        node.log.append(
            [each for k in range(20) for each in large_topic(1000 + 20 * number + k, 50)], 1
        )
    node.image = node.log.load_image()

    async def tell(page: Page) -> None:
        await page.until(tile("partitions", 10_002))
        lines = await page.until("window.partitions.lines.length")
        assert lines >= 201
        for share in (0, 0.3, 0.6, 1):
            await page.value(f"grid.scrollTop = {share} * grid.scrollHeight; true")
            await page.value("new Promise(r => requestAnimationFrame(() => setTimeout(r, 50)))")
            assert 0 < await page.value("window.partitions.drawn") < 40
        await page.value("filter.value = '1199'; filter.dispatchEvent(new Event('input')); true")
        assert await page.value("new Set(window.partitions.lines.map(l => l.topic.name)).size") == 1
        node.say(change(0, isr=brokers(1, 2)))
        await page.value("filter.value = ''; filter.dispatchEvent(new Event('input')); true")
        await page.until(f"{PATH}.topic.name === 'orders'")  # In trouble, so it comes first.

    story(node, tell)
