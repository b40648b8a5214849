"""Following what ranks print, whichever daemons die meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from elasticd.cli.silence import SilentDaemons
from elasticd.client.client import Client
from elasticd.core.words.requests.logs import ReadLogs
from elasticd.errors import NoDaemonError, ProtocolError


def follow_logs(client: Client, request: ReadLogs) -> Iterator[dict[str, Any]]:
    """The answers to ``request``, until the job has ended. If the daemon that tells them is lost
    the next one goes on at the place of each node's log where it was.

    Raises:
        NoDaemonError: no daemon answers, at first or for a while; or one is lost, or comes next,
            that is of an earlier version and knows no places.
    """
    past: dict[str, int] = {}
    away = SilentDaemons(answered=False)
    places = True
    while True:
        resumed = bool(past)
        try:
            for piece in client.stream(replace(request, past=dict(past))):
                away.heard()
                if not ("text" in piece or "data" in piece):
                    yield piece
                    continue
                at = piece.pop("at", None)
                places = isinstance(at, int)
                if resumed and not places:
                    break
                if piece.get("text") or piece.get("data"):
                    yield piece
                if isinstance(at, int):
                    past[str(piece.get("node"))] = at
            else:
                return
        except (NoDaemonError, ProtocolError) as error:
            if not places:
                raise NoDaemonError(str(error)) from None
            away.bear(error)
            continue
        raise NoDaemonError(
            "the daemon that told the log is gone, and the next one is of an earlier version, which"
            " can't go on in the middle of it"
        )
