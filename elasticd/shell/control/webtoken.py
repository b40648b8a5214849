"""What a web page needs to be let in, and where it is, as files of the home.

``dashboard.token`` is for this account alone, as the control socket is: on loopback any account of
the machine can connect to a port. ``metrics.token`` is made of it, for who may read the metrics
and nothing else. ``dashboard.json`` says where the newest daemon serves the page,
or why it doesn't.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from elasticd.shell.storage.durable import write_whole

TOKEN_FILE = "dashboard.token"
METRICS_FILE = "metrics.token"
PLACE_FILE = "dashboard.json"
_TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{22,256}")
"""The shortest has 128 bits, if chance has made it."""
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class WebPlace:
    """``why``: there is no page; empty: there is."""

    host: str = ""
    port: int = 0
    tls: bool = False
    why: str = ""


def token_of(home: Path) -> str:
    """The home's token; empty: there is none, or others can read it, or it is none that an address
    can hold."""
    return _read(home / TOKEN_FILE)


def _read(path: Path) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(file.fileno())
        if found.st_mode & 0o077 or found.st_uid not in (0, os.geteuid()):
            return ""
        try:
            text = file.read(_MOST_BYTES).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""
    return text if _TOKEN.fullmatch(text) else ""


def make_token(home: Path) -> None:
    """The one that is there stays, so that addresses which people keep go on to work.

    Raises:
        OSError: it can't be written.
    """
    token = token_of(home)
    if not token:
        token = renew_token(home)
    if _read(home / METRICS_FILE) != metrics_token(token):
        write_whole(home / METRICS_FILE, metrics_token(token).encode())


def renew_token(home: Path) -> str:
    """Another one, and another for the metrics. The old ones open nothing any more.

    Raises:
        OSError: it can't be written.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    write_whole(home / TOKEN_FILE, token.encode())
    write_whole(home / METRICS_FILE, metrics_token(token).encode())
    return token


def metrics_token(token: str) -> str:
    """Made of the page's, and tells nothing of it."""
    return hmac.new(token.encode(), b"metrics", "sha256").hexdigest()


def tell_place(home: Path, place: WebPlace) -> None:
    """Raises OSError: it can't be written; what was told before is no longer told."""
    try:
        write_whole(home / PLACE_FILE, json.dumps(asdict(place)).encode())
    except OSError:
        with contextlib.suppress(OSError):
            (home / PLACE_FILE).unlink()
        raise


def place_of(home: Path) -> WebPlace:
    """Where the page of the home's daemon is."""
    try:
        said = json.loads((home / PLACE_FILE).read_bytes())
        return WebPlace(
            str(said["host"]), int(said["port"]), bool(said["tls"]), str(said.get("why", ""))
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return WebPlace(
            why="its daemon is of a version that serves none, or has only just begun, or its disk"
            " takes nothing"
        )
