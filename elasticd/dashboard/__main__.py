"""The web page's process: ``python -m elasticd.dashboard``, started by a daemon, which holds its
standard input open: it ends when that closes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO, cast

import uvicorn
from starlette.types import ASGIApp

from elasticd.client.client import Client
from elasticd.dashboard.accepting import WebServer
from elasticd.dashboard.connections import BoundedErrors, WebConnection
from elasticd.dashboard.guard import LOOPBACK_NAMES
from elasticd.dashboard.live import Live
from elasticd.dashboard.scraping import Scraping
from elasticd.dashboard.server import application
from elasticd.dashboard.watching import Watches
from elasticd.settings.ownname import machine_names
from elasticd.shell.control.webtoken import token_of
from elasticd.shell.storage import papers
from elasticd.supervision.priority import BEHIND_DAEMONS, give_way

IDLE_SECONDS = 600.0
"""After so long without a visitor it ends; the daemon starts another one for the next."""
LIFE_SECONDS = 6 * 3600.0
"""After so long another one takes over, which reads the node's certificate anew."""
LOOK_SECONDS = 2.0
LOOK_ANSWER_SECONDS = 2.0
"""Whose daemon says nothing for so long is told that it hangs; changes and logs may take longer.
Scrapers wait for 10 s by default."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="elasticd.dashboard")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--fd", type=int, required=True, help="the socket that it listens on")
    parser.add_argument("--tls", action="store_true", help="with the node's certificate")
    parser.add_argument("names", nargs="*", help="host names by which the node is reached")
    given = parser.parse_args(arguments)
    sys.stderr = cast(TextIO, BoundedErrors(sys.stderr))
    threading.Thread(target=_end_with_the_daemon, daemon=True, name="daemon").start()
    give_way(BEHIND_DAEMONS)
    listening = socket.socket(fileno=given.fd)
    asyncio.run(_serve(given.home, listening, _names(given.names, given.tls), tls=given.tls))
    return 0


def _end_with_the_daemon() -> None:
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    os._exit(0)  # nothing of it is worth keeping


def _names(given: Sequence[str], tls: bool) -> frozenset[str]:
    if not tls:
        return LOOPBACK_NAMES
    return LOOPBACK_NAMES | {name.lower() for name in (*machine_names(), *given)}


async def _serve(home: Path, listening: socket.socket, names: frozenset[str], *, tls: bool) -> None:
    client = Client(home)
    looking = Client(home, LOOK_ANSWER_SECONDS)
    watches = Watches(looking)
    live = Live(looking, watches)
    scheme = "https" if tls else "http"
    app = application(
        client, live, Scraping(looking, watches), lambda: token_of(home), names, scheme
    )
    certificate, key = papers.shown(home) if tls else (None, None)
    server = WebServer(config_of(app, certificate, key))
    watcher = asyncio.create_task(_end_when_idle(server, live))
    try:
        await server.serve(sockets=[listening])
    finally:
        watcher.cancel()
        live.stop()


def config_of(
    app: ASGIApp, certificate: Path | None = None, key: Path | None = None
) -> uvicorn.Config:
    """How it is served. What strangers do wrong is a warning of uvicorn's, a line each: nobody
    wants to read those."""
    return uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http=WebConnection,
        loop="asyncio",
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )


async def _end_when_idle(server: uvicorn.Server, live: Live) -> None:
    began = time.monotonic()
    while not server.should_exit:
        await asyncio.sleep(LOOK_SECONDS)
        now = time.monotonic()
        server.should_exit = is_over(live.pages, now - live.last_visit, now - began)


def is_over(pages: int, seconds_idle: float, seconds_alive: float) -> bool:
    """Whether the process is to end: nobody looks any more, or it has run for long."""
    return (not pages and seconds_idle > IDLE_SECONDS) or seconds_alive > LIFE_SECONDS


if __name__ == "__main__":
    sys.exit(main())
