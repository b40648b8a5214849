"""One connection to a daemon's control socket (docs/protocols.md §3)."""

from __future__ import annotations

import errno
import math
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from elasticd.client.homes import home_behind_sudo, home_option
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.core.words.requests.wire import ASKED
from elasticd.errors import NoDaemonError, OperationError, UsageError
from elasticd.ipc.accounts import account_of, peer_uid
from elasticd.ipc.frames import Decoder, encode
from elasticd.ipc.unixpath import addressed
from elasticd.pasting import of_home, quoted
from elasticd.settings.localhomes import cluster_of, is_cluster
from elasticd.settings.places import FILE_NAME

ANSWER_SECONDS = 10.0
PROBE_SECONDS = 2.0
"""How long one of several daemons may take to prove that it answers."""
QUIET_SECONDS = 2.0
"""After so long without a word a daemon that is followed is asked whether it is still there."""

_READ_BYTES = 256 * 1024
_AGAIN_SECONDS = 0.05
_HUNG_UP = "it hung up"

# A file that is no socket, or a home that is no folder, has no daemon either.
_NOBODY = {errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED, errno.ENOTSOCK}


class NobodyListens(NoDaemonError):
    """There is no socket, or its daemon has ended."""

    def __init__(self, home: Path) -> None:
        of = home_option(home)
        local = quoted("elasticctl local up", *of)
        service = quoted("elasticctl service install", *home_behind_sudo(home))
        start = f"{local} or {service}"
        if is_cluster(cluster_of(home)):
            start = local
        elif (home / FILE_NAME).exists():  # a node's own: a local cluster would be laid into it
            start = service
        super().__init__(
            f"no daemon runs at {home} (start one with {start}, or name its home with --home)"
        )


class HungUp(NoDaemonError):
    """A daemon that was there has ended, or ends; another may answer."""


class Connection:
    """Frames to a daemon, and its answers."""

    def __init__(self, path: Path, platform: str = sys.platform) -> None:
        """Connect.

        Raises:
            NobodyListens: no daemon runs there.
            NoDaemonError: it takes no connection from us.
            UsageError: it is one of another account. (Root may ask any.)
        """
        self._path = path
        self._decoder = Decoder()
        self._frames: deque[dict[str, Any]] = deque()
        self._heard_at = time.monotonic()
        try:
            self._socket = _connected(path, platform)
        except OSError as error:
            raise refused(error, path.parent) from None
        try:
            self._account = _asked_account(self._socket, path)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    @property
    def path(self) -> Path:
        """The socket of the daemon at the other end."""
        return self._path

    def require_own(self, fd: int, path: Path) -> None:
        """A file that the daemon has named is opened with our rights. Those of root reach farther
        than an account's whose daemon it asks: to that only files of its own are opened.

        Raises:
            OperationError: this is another account's.
        """
        if os.geteuid() == 0 and self._account not in (0, os.fstat(fd).st_uid):
            whose = account_of(self._account) or "an account that the system doesn't tell"
            raise OperationError(
                f"{path}: the daemon, which runs as {whose}, names this file of another account;"
                " as root nothing of it is read: ask as the daemon's account"
            )

    def send(self, message: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> None:
        """Send one frame, which the daemon is to take within ``seconds``.

        Raises:
            NoDaemonError: the daemon hung up or doesn't read.
        """
        self._socket.settimeout(seconds)
        try:
            self._socket.sendall(_encoded(message))
        except OSError as error:
            raise self._gone(_why(error, f"it read nothing for {seconds:g} s")) from None

    def receive(self, seconds: float | None) -> dict[str, Any] | None:
        """The next frame, or None if it hasn't come within ``seconds`` (None: wait for ever).

        Raises:
            NoDaemonError: the daemon hung up.
            OperationError, UsageError: the frame is the daemon's refusal.
            ProtocolError: the frame is none.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._frames:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                return None
            except OSError as error:
                raise self._gone(_why(error)) from None
            if not data:
                raise self._gone(_HUNG_UP)
            self._heard_at = time.monotonic()
            self._frames.extend(self._decoder.feed(data))
        return _checked(self._frames.popleft())

    def follow(self, seconds: float | None) -> dict[str, Any] | None:
        """As :meth:`receive`, for frames that come only when something happens. A daemon that has
        been silent is asked, on another connection, whether it lives: one that was stopped keeps
        its connections open.

        Raises:
            NoDaemonError: it hung up, or answers nothing. Else as :meth:`receive`.
        """
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            asks_at = self._heard_at + QUIET_SECONDS
            frame = self.receive(max(0.0, min(deadline, asks_at) - time.monotonic()))
            if frame is not None:
                return frame
            if time.monotonic() >= asks_at:
                probe(self._path)
                self._heard_at = time.monotonic()
            if time.monotonic() >= deadline:
                return None

    def answer(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """The next frame.

        Raises:
            NoDaemonError: none came within ``seconds``; else as :meth:`receive`.
        """
        frame = self.receive(seconds)
        if frame is None:
            raise self._gone(f"nothing came for {seconds:g} s")
        return frame

    def whole_answer(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """As :meth:`answer`, put together if it comes in parts; ``seconds`` for each."""
        lists: dict[str, list[Any]] = {}
        while (frame := self.answer(seconds)).get("more") is True:
            for name, items in frame.items():
                if name != "more":
                    lists.setdefault(name, []).extend(items)
        return {**frame, **{name: [*items, *frame[name]] for name, items in lists.items()}}

    def _gone(self, why: str) -> NoDaemonError:
        return _gone(self._path.parent, why)


def refused(error: OSError, home: Path) -> NoDaemonError:
    """What is raised where looking for a home's socket, or connecting to it, ends so."""
    if error.errno in _NOBODY:
        return NobodyListens(home)
    return _gone(home, _why(error, "it takes no connection"))


def probe(path: Path, seconds: float | None = None) -> dict[str, Any]:
    """The ``status`` of the daemon at one socket, which is to come within ``seconds`` (None:
    :data:`PROBE_SECONDS`).

    A stopped daemon still accepts connections, so only an answer proves that one is there.

    Raises:
        NoDaemonError: nothing answers in time.
    """
    with Connection(path) as connection:
        connection.send(ASKED.encode(ShowStatus(ended=0)))
        return connection.answer(PROBE_SECONDS if seconds is None else seconds)


def _connected(path: Path, platform: str) -> socket.socket:
    """Tries for :data:`PROBE_SECONDS` where so many wait for the daemon that its queue is full.

    Raises:
        BlockingIOError: it is still full.
        OSError: nobody listens there, or we may not connect.
    """
    deadline = time.monotonic() + PROBE_SECONDS
    while True:
        try:
            return _connected_at_once(path)
        except OSError as error:
            if not _is_full(error, path.parent, platform):
                raise
            if time.monotonic() >= deadline:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
        time.sleep(_AGAIN_SECONDS)


def _connected_at_once(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.settimeout(PROBE_SECONDS)
        with addressed(path) as address:
            found.connect(address)
    except BaseException:
        found.close()
        raise
    return found


def _is_full(error: OSError, home: Path, platform: str) -> bool:
    """Whether that is said of a queue. Linux says EAGAIN; macOS ECONNREFUSED, as of a daemon that
    has ended (XNU, unp_connect in bsd/kern/uipc_usrreq.c)."""
    if platform != "darwin" or error.errno != errno.ECONNREFUSED:
        return isinstance(error, BlockingIOError)
    # psutil is loaded here alone: who asks for the status should not wait for that.
    from elasticd.client.processes import find_daemon

    return find_daemon(home) is not None


def _asked_account(connected: socket.socket, path: Path) -> int | None:
    """Whose daemon it is. The folders on the way may have been others a moment ago, so that is what
    the system says of the connection itself. macOS may say nothing of one that has just ended.

    Returns:
        None, for root alone: nobody can say.

    Raises:
        HungUp: nobody can say; nothing is asked of it.
        UsageError: it is neither root's nor our own account's. (Root may ask any.)
    """
    me, listens = os.geteuid(), peer_uid(connected)
    if me == 0:
        return listens
    if listens is None:
        raise _gone(path.parent, _HUNG_UP)
    if listens not in (0, me):
        raise UsageError(
            f"{path} is answered by another account of this machine ({account_of(listens)}), and"
            " nothing was asked of it: ask as that account, or name another home"
        )
    return listens


def _gone(home: Path, why: str) -> NoDaemonError:
    said = f"the daemon at {home} doesn't answer ({why})"
    if why == _HUNG_UP:
        return HungUp(said)
    return NoDaemonError(f"{said}: {quoted(of_home('doctor', home))} says what to do")


def _checked(frame: dict[str, Any]) -> dict[str, Any]:
    if "error" in frame:
        kind = UsageError if frame.get("code") == 2 else OperationError
        raise kind(str(frame["error"]))
    return frame


def _why(error: OSError, silent: str = "") -> str:
    """What is said of ``error``; ``silent``: that the daemon did nothing in time."""
    if isinstance(error, TimeoutError | BlockingIOError):  # the latter: its queue is full
        return silent
    if isinstance(error, BrokenPipeError | ConnectionResetError):
        return _HUNG_UP
    if isinstance(error, PermissionError):
        return "permission denied: ask as the account that it runs as"
    return error.strerror or str(error)


def _encoded(message: Mapping[str, Any]) -> bytes:
    try:
        return encode(message)
    except OverflowError:
        raise UsageError("a number of the request has more than 64 bits") from None
    except UnicodeEncodeError:  # what it is may be a secret
        raise UsageError("an argument is not UTF-8") from None
