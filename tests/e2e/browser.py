"""A real browser for tests and for pictures: headless Chromium, driven by its own protocol."""

import asyncio
import base64
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "" if CHROMIUM else "there is no chromium on this machine (make test-peers installs it)"
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
_PATIENCE_S = 60.0


class Page:
    """One tab."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []

    async def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            async with asyncio.timeout(_PATIENCE_S):
                answer = await self._socket.receive_json()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event: Any) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(event["params"]["exceptionDetails"]))
        entry = event.get("params", {}).get("entry", {})
        if event.get("method") == "Log.entryAdded" and entry.get("level") == "error":
            self.complaints.append(str(entry))

    async def open(self, url: str) -> None:
        for domain in ("Runtime", "Log", "Page"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression is, in the page."""
        found = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Look until the expression is true."""
        for _ in range(int(_PATIENCE_S / 0.1)):
            if found := await self.value(expression):
                return found
            await asyncio.sleep(0.1)
        raise AssertionError(f"never true in the page: {expression}; {self.complaints}")

    async def picture(self, path: Path) -> None:
        found = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))


@asynccontextmanager
async def page(width: int = 1400, height: int = 1000) -> AsyncIterator[Page]:
    """A tab in a browser of its own, which ends with it."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="kraftpy-browser-") as profile:
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"]
        command += [f"--window-size={width},{height}", "about:blank"]
        browser = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
        try:
            port = await _port(browser)
            async with aiohttp.ClientSession() as session:
                tabs = await (await session.get(f"http://127.0.0.1:{port}/json")).json()
                (tab,) = [each for each in tabs if each["type"] == "page"]
                async with session.ws_connect(
                    tab["webSocketDebuggerUrl"], max_msg_size=0
                ) as socket:
                    yield Page(socket)
        finally:
            browser.terminate()
            await browser.communicate()


async def _port(browser: "asyncio.subprocess.Process") -> int:
    assert browser.stderr is not None
    async with asyncio.timeout(_PATIENCE_S):
        while line := (await browser.stderr.readline()).decode():
            if "DevTools listening on" in line:
                return int(line.rsplit(":", 1)[1].split("/")[0])
    raise AssertionError("the browser ended before it was ready")
