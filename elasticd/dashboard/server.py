"""The web server: one page, what it is told, and the few things that it may ask for."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elasticd.cli.monitors.looking import last_log_lines
from elasticd.client.client import Client
from elasticd.core.words.codec import to_plain
from elasticd.core.words.requests.checkpoints import ListCheckpoints
from elasticd.core.words.requests.jobs import CancelJob, ChangeOfJob, PauseJob, ResumeJob
from elasticd.core.words.requests.nodes import ChangeOfNode, DrainNode, UndrainNode
from elasticd.dashboard.exposition import exposed
from elasticd.dashboard.guard import HEADERS, METRICS, Guard
from elasticd.dashboard.live import MOST_PAGES, Live, Wanted
from elasticd.dashboard.scraping import Scraping
from elasticd.dashboard.telling import wire
from elasticd.errors import ElasticdError, NoDaemonError
from elasticd.types import JobId, NodeId

PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_MOST_BODY = 4096
_TOKEN = "elasticd.token"
"""In the scope of a request: the token with which it was let in."""
_MOST_AT_ONCE = 4
"""Questions to the daemon beside the looks and the scrapers'."""

CHANGES: Mapping[str, Callable[[str], ChangeOfJob | ChangeOfNode]] = {
    "pause": lambda name: PauseJob(JobId(name)),
    "resume": lambda name: ResumeJob(JobId(name)),
    "cancel": lambda name: CancelJob(JobId(name)),
    "drain": lambda name: DrainNode(NodeId(name)),
    "undrain": lambda name: UndrainNode(NodeId(name)),
}
"""All that a page can change."""


@dataclass(slots=True)
class PageDesk:
    """What requests are answered from."""

    client: Client
    live: Live
    scraping: Scraping
    busy: asyncio.Semaphore
    scraped: asyncio.Lock
    token: Callable[[], str]

    async def page(self, request: Request) -> Response:
        name, kind = PAGE[request.url.path]
        return Response(_file(name), media_type=kind)

    async def stream(self, request: Request) -> Response:
        """What is to be seen, live."""
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        wanted = self.live.enter(request.query_params.get("job") or None)
        if wanted is False:
            return _refused(503, f"{MOST_PAGES} pages are open already")
        shown = request.scope[_TOKEN]
        return _PageStream(self.live, wanted, lambda: self.token() == shown)

    async def metrics(self, request: Request) -> Response:
        async with self.scraped:  # not held up by what pages ask
            figures = await asyncio.to_thread(self.scraping.figures)
        body, kind = exposed(figures, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": kind})

    async def logs(self, request: Request) -> Response:
        job = request.query_params.get("job", "")
        return await self._asked(lambda: {"lines": list(last_log_lines(self.client, job))})

    async def checkpoints(self, request: Request) -> Response:
        job = JobId(request.query_params.get("job", ""))
        return await self._asked(lambda: self.client.request(ListCheckpoints(job)))

    async def change(self, request: Request) -> Response:
        """Pause, resume, cancel, drain or undrain."""
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refused(415, "it must be application/json")
        body = b""
        try:
            async for part in request.stream():
                body += part
                if len(body) > _MOST_BODY:
                    return _refused(413, "it is too long")
        except ClientDisconnect:
            return _refused(400, "it was cut off")
        asked = _read(body)
        if asked is None:
            return _refused(400, f'it must be {{"do": {" | ".join(CHANGES)}, "id": …}}')
        return await self._asked(lambda: to_plain(self.client.change(asked)))

    async def _asked(self, ask: Callable[[], Mapping[str, Any]]) -> Response:
        """The daemon's answer, from a thread."""
        try:
            async with self.busy:
                answer = await asyncio.to_thread(ask)
        except ElasticdError as error:
            return _refused(503 if isinstance(error, NoDaemonError) else 409, str(error))
        return Response(wire(answer), media_type="application/json")


class _PageStream(StreamingResponse):
    """Of a page that has entered: it leaves when this ends, even if nothing was ever sent."""

    def __init__(self, live: Live, wanted: Wanted, let_in: Callable[[], bool]) -> None:
        super().__init__(live.stream(wanted, let_in), media_type="text/event-stream")
        self._leave = partial(live.leave, wanted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


def _read(body: bytes) -> ChangeOfJob | ChangeOfNode | None:
    """What a page wants to change; None: that is nothing that it may."""
    try:
        said = json.loads(body)
        do, name = said["do"], said["id"]
        f"{do}{name}".encode()  # JSON may hold half a character
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(do, str) or do not in CHANGES or not isinstance(name, str) or not name:
        return None
    return CHANGES[do](name)


def _file(name: str) -> bytes:
    return resources.files("elasticd.dashboard").joinpath("page", name).read_bytes()


def _refused(status: int, why: str) -> Response:
    return Response(wire({"error": why}), status, media_type="application/json")


async def _no_such(request: Request, error: Exception) -> Response:
    """Nothing is at that path, or not for that method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    why = {404: "there is nothing at that path", 405: "there is nothing for that method here"}
    answer = _refused(status, why.get(status, "it can't be answered"))
    answer.headers.update(getattr(error, "headers", None) or {})
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    return _refused(500, "the page's server has failed: HOME/dashboard.log of this node says more")


class Guarded:
    """Lets nobody through whom the guard refuses, and puts its headers on every answer."""

    def __init__(self, app: ASGIApp, guard: Guard, token: Callable[[], str], live: Live) -> None:
        self._app, self._guard, self._token, self._live = app, guard, token, live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        self._live.last_visit = time.monotonic()

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        scope[_TOKEN] = token = self._token()
        refusal = self._guard.refusal(scope["method"], scope["path"], headers, token)
        app = self._app if refusal is None else _refused(refusal.status, refusal.why)
        await app(scope, receive, send_guarded)


def application(
    client: Client,
    live: Live,
    scraping: Scraping,
    token: Callable[[], str],
    names: frozenset[str],
    scheme: str,
) -> ASGIApp:
    """``token``: the home's, as it is now. ``names``: those by which this node is reached."""
    desk = PageDesk(client, live, scraping, asyncio.Semaphore(_MOST_AT_ONCE), asyncio.Lock(), token)
    app = Starlette(
        routes=[
            *(Route(path, desk.page) for path in PAGE),
            Route("/api/live", desk.stream),
            Route("/api/logs", desk.logs),
            Route("/api/checkpoints", desk.checkpoints),
            Route("/api/change", desk.change, methods=["POST"]),
            Route(METRICS, desk.metrics),
        ],
        exception_handlers={HTTPException: _no_such, 500: _failed},
    )
    return Guarded(app, Guard(names, scheme, frozenset(PAGE)), token, live)
