"""Have a daemon begin anew, and wait until it answers again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticd.client.client import Client
from elasticd.client.connection import Connection, HungUp, NobodyListens, probe
from elasticd.client.processes import find_daemon
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.core.words.requests.nodes import Restart
from elasticd.errors import NoDaemonError, OperationError
from elasticd.settings.places import SOCKET_NAME

END_SECONDS = 300.0
"""For its world to go on without it, and for what it has begun to end: on a slow disk that takes
long, and it is there until then."""
SILENT_SECONDS = 10.0
"""After so long it is said what is waited for."""
BEGIN_SECONDS = 60.0
POLL_SECONDS = 0.05


class NotBackError(OperationError):
    """A daemon that is to run doesn't answer; its log says why."""


def restart(
    home: Path,
    tell: Callable[[str], None] = lambda text: None,
    silent_seconds: float = SILENT_SECONDS,
) -> None:
    """Returns when the daemon of that home answers anew. ``tell`` hears what is waited for, where
    that takes long. One that is about to end or to begin, as where another asks the same, is waited
    for first.

    Raises:
        NoDaemonError: none answers there; nothing has changed.
        NotBackError: it does not come back.
        OperationError: it goes on as it is, and why; or it does not end.
    """
    with _asked(home, tell, silent_seconds) as connection:
        deadline = time.monotonic() + END_SECONDS
        try:
            if connection.receive(silent_seconds) is None:
                tell(f"the daemon of {home} is ending; waiting up to {END_SECONDS:g} s for that")
            while (left := deadline - time.monotonic()) > 0:
                connection.receive(left)
        except NoDaemonError:  # it hung up: by now it has ended
            pass
        else:
            raise OperationError(
                f"the daemon of {home} has not ended within {END_SECONDS:g} s:"
                f" {home / 'daemon.log'} or 'elasticctl service logs' says what it waits for"
            )
    await_status(home, BEGIN_SECONDS)


def _asked(home: Path, tell: Callable[[str], None], silent_seconds: float) -> Connection:
    """To a daemon that was asked to begin anew. While its process is there, and its socket isn't,
    it is about to end or to begin: launchd or systemd would end it in the middle of that, or start
    another one that finds the home taken."""
    began = time.monotonic()
    told = False
    while True:
        try:
            probe(home / SOCKET_NAME)  # one that was stopped takes connections, too
            return Client(home).open(Restart())
        except (NobodyListens, HungUp):
            waited = time.monotonic() - began
            if waited > BEGIN_SECONDS or find_daemon(home) is None:
                raise
        if waited >= silent_seconds and not told:
            tell(
                f"the daemon of {home} runs and takes no connections, as one that ends or begins;"
                f" waiting up to {BEGIN_SECONDS:g} s for that"
            )
            told = True
        time.sleep(POLL_SECONDS)


def await_status(home: Path, seconds: float) -> dict[str, Any]:
    """What the daemon of that home says, as soon as it says anything.

    Raises:
        NotBackError: it doesn't answer in that time.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return Client(home).request(ShowStatus(ended=0))
        except NoDaemonError as error:
            if time.monotonic() > deadline:
                raise NotBackError(
                    f"the daemon did not come back ({error}): {home / 'daemon.log'} or"
                    " 'elasticctl service logs' says why"
                ) from None
        time.sleep(POLL_SECONDS)
