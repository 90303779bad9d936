"""The admin listener: HTTP with aiohttp, for monitors, tools and people. It only tells.

    /healthz   200 as long as the process answers
    /readyz    200 if the node does what it is there for, else 503
    /metrics   Prometheus
    /status    JSON: the node, its quorum, its cluster in numbers
    /image     JSON: the cluster as it was after every record before ?at=OFFSET
    /events    server-sent events: what the dashboard lives on
    /          the dashboard

Imported when somebody connects, and in a thread (kraftpy/admin/start.py).
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from importlib.resources import files as resources
from typing import Any, Final

from aiohttp import web

from kraftpy.admin.feed import Event, Feed, TooManyListeners
from kraftpy.admin.metrics import Metrics
from kraftpy.admin.sources import NodeSource
from kraftpy.clock import Clock
from kraftpy.errors import KraftError
from kraftpy.storage.file_layer import FileLayer

_PAGE: Final = {
    "/": ("index.html", "text/html"),
    "/dashboard.js": ("dashboard.js", "text/javascript"),
    "/partitions.js": ("partitions.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
}
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:",
    "X-Content-Type-Options": "nosniff",
}
_OFFSET_MAX: Final = (1 << 63) - 1
_IMAGES_AT_ONCE: Final = 2
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AdminServer:
    """Lives in the node's event loop, on sockets that are bound already."""

    def __init__(self, source: NodeSource, files: FileLayer, clock: Clock) -> None:
        self._source = source
        self._feed = Feed(source, files, clock)
        self._metrics = Metrics()
        self._scraping = asyncio.Lock()
        self._looking_back = asyncio.Semaphore(_IMAGES_AT_ONCE)
        application = web.Application(middlewares=[_refusals])
        application.add_routes(
            [
                web.get("/healthz", self._health),
                web.get("/readyz", self._ready),
                web.get("/metrics", self._scrape),
                web.get("/status", self._status),
                web.get("/image", self._image),
                web.get("/events", self._events),
                *(web.get(path, _page(name, kind)) for path, (name, kind) in _PAGE.items()),
            ]
        )
        self._runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0
        )

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        await self._runner.setup()
        for sock in sockets:
            await web.SockSite(self._runner, sock).start()

    async def close(self) -> None:
        await self._feed.close()
        await self._runner.cleanup()

    # -- for monitors -------------------------------------------------------------------------

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n", headers=_HEADERS)

    async def _ready(self, _request: web.Request) -> web.Response:
        ready = self._source.is_ready()
        said = {"ready": ready, "state": self._source.state()}
        return _json(said, status=200 if ready else 503)

    async def _scrape(self, _request: web.Request) -> web.Response:
        source = self._source
        node = {"node_id": str(source.node_id), "role": source.role, "cluster": source.cluster_id}
        loop = asyncio.get_running_loop()
        async with self._scraping:
            text = await loop.run_in_executor(
                None, self._metrics.render, source.image, source.numbers(), source.requests(), node
            )
        return web.Response(body=text, headers={**_HEADERS, "Content-Type": _METRICS_TYPE})

    async def _status(self, _request: web.Request) -> web.Response:
        return _json(await self._feed.status())

    # -- for the dashboard --------------------------------------------------------------------

    async def _image(self, request: web.Request) -> web.Response:
        end_offset = self._source.image.end_offset
        text = request.query.get("at", str(end_offset))
        if not text.isascii() or not text.isdigit() or int(text) > _OFFSET_MAX:
            return _json({"error": f"at must be an offset, not {text[:60]!r}"}, status=400)
        loop = asyncio.get_running_loop()
        async with self._looking_back:
            first = await loop.run_in_executor(None, self._feed.past.first_offset)
            offset = min(max(int(text), first), end_offset)
            found = await loop.run_in_executor(None, self._feed.past.at, offset)
        return _json({**found, "first_offset": first, "last_offset": end_offset})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        async with aclosing(self._feed.listen()) as events:
            first = await anext(events)
            await response.prepare(request)
            try:
                await response.write(_sse(first))
                async for event in events:
                    await response.write(_sse(event))
            except ConnectionResetError:
                pass  # The page is closed.
        return response


def _sse(event: Event) -> bytes:
    return f"event: {event.name}\ndata: {json.dumps(event.data)}\n\n".encode()


def _json(value: Any, *, status: int = 200) -> web.Response:
    text = json.dumps(value) + "\n"
    return web.Response(text=text, status=status, headers=_HEADERS, content_type="application/json")


def _page(name: str, kind: str) -> Handler:
    text = (resources("kraftpy.admin") / "dashboard" / name).read_text(encoding="utf-8")

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=text, headers=_HEADERS, content_type=kind)

    return page


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What cannot be answered, in one line of JSON."""
    try:
        return await handler(request)
    except TooManyListeners as error:
        return _json({"error": str(error)}, status=503)
    except web.HTTPException as error:
        return _json({"error": error.reason}, status=error.status)
    except KraftError as error:
        return _json({"error": str(error)}, status=500)
