"""Asks the page's web server as a browser does, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message

from elasticd.client.client import Client
from elasticd.dashboard.live import Live
from elasticd.dashboard.scraping import Scraping
from elasticd.dashboard.server import application
from elasticd.dashboard.watching import Watches

TOKEN = "t" * 43
SHOWN = ("authorization", f"Bearer {TOKEN}")


@dataclass(slots=True)
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def said(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Served:
    app: ASGIApp
    live: Live


_END = ExitStack()


def end_threads() -> None:
    """End what :func:`served` and :func:`follow` have begun: it would ask on in other tests."""
    _END.close()


def follow(home: Path, answer_seconds: float = 30.0) -> Watches:
    """Jobs that are followed until :func:`end_threads`."""
    watches = Watches(Client(home, answer_seconds))
    _END.callback(watches.close)
    return watches


def served(
    home: Path,
    pause: float = 0.05,
    answer_seconds: float = 30.0,
    token: Callable[[], str] = lambda: TOKEN,
) -> Served:
    """To be called in an event loop. ``pause``: between two looks."""
    client = Client(home, answer_seconds)
    watches = follow(home, answer_seconds)
    live = Live(client, watches, pause=pause)
    _END.callback(live.stop)
    names = frozenset({"localhost"})
    scraping = Scraping(client, watches)
    return Served(application(client, live, scraping, token, names, "http"), live)


async def ask(
    app: ASGIApp,
    path: str,
    *headers: tuple[str, str],
    method: str = "GET",
    body: bytes = b"",
    until: Any = None,
    host: str = "127.0.0.1:8050",
) -> Answer:
    """``until``: of a stream, hang up when this says of what has come that it is enough."""
    answer, gone = Answer(), asyncio.Event()
    path, _, query = path.partition("?")
    sent: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8050),
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in [("host", host), *headers]],
    }  # fmt: skip

    async def receive() -> Message:
        if sent:
            return sent.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            return
        answer.body += message.get("body", b"")
        if until is not None and until(answer.body):
            gone.set()

    async with asyncio.timeout(30):
        await app(scope, receive, send)
    return answer


def sent_events(body: bytes) -> Sequence[tuple[str, Any]]:
    """Of a stream: the kind of each event and its data."""
    found = []
    for block in body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found
