"""Sends what nobody sends to every port of a running daemon, and watches the daemon.

A few connections stay half open meanwhile, and a few let their bytes trickle.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import random
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from elasticd.core.words.bulk import WANTS
from elasticd.core.words.codec import Words
from elasticd.core.words.connections import ASIDE, CONNECTION, FETCH, Errand
from elasticd.core.words.joining import FROM_GUEST, FROM_RENEWER
from elasticd.core.words.messages import DAEMONS
from elasticd.core.words.processes import FROM_ANY_CHILD, ChildHello
from elasticd.core.words.reducers import FROM_REDUCER
from elasticd.core.words.requests.every import REQUESTS
from elasticd.core.words.requests.nodes import Restart, RotateCertificates, ShutDown
from elasticd.core.words.trainers import FROM_TRAINER
from elasticd.ipc.frames import Decoder, encode
from elasticd.settings.config import load as load_config
from elasticd.settings.config import split_address
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import founding, papers
from elasticd.trust.authority import admit
from elasticd.types import NodeId
from tests.fuzz.frames import Frames
from tests.fuzz.samples import NAMES, frames
from tests.members import credentials, credentials_of

SECONDS = 30.0
"""A daemon that neither answers nor hangs up for so long is stuck; a busy disk may hold one up for
seconds."""
IDLERS = 40
MIB = 1 << 20


@dataclass(frozen=True)
class Health:
    """What of a daemon must not grow."""

    pid: int
    resident_bytes: int
    descriptors: int
    log_bytes: int

    @classmethod
    def of(cls, home: Path, pid: int) -> Health:
        process = psutil.Process(pid)
        size = (home / "daemon.log").stat().st_size
        return cls(pid, process.memory_info().rss, process.num_fds(), size)


@dataclass
class Port:
    """One way into a daemon."""

    name: str
    family: int
    address: str | tuple[str, int]
    frames: Frames
    enter: Callable[[socket.socket], socket.socket] = lambda connection: connection
    """What is done before the frame is sent."""

    def connect(self) -> socket.socket:
        connection = socket.socket(self.family, socket.SOCK_STREAM)
        connection.settimeout(SECONDS)
        try:
            connection.connect(self.address)
            return self.enter(connection)
        except BaseException:
            connection.close()
            raise


@dataclass
class Fuzzer:
    """Fuzzes the daemon of one node; ``others`` are nodes of its cluster, as which it poses."""

    home: Path
    seed: int
    others: Sequence[Path] = ()
    sent: Counter[str] = field(default_factory=Counter)
    """Per ``port: kind``."""
    stuck: list[str] = field(default_factory=list)
    _idle: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self.ports = self._ports()

    def run(self, count: int) -> None:
        """Send ``count`` frames, each on a connection of its own, then let go of everything."""
        try:
            for number in range(count):
                port = self._dice.choice(self.ports)
                kind, data = port.frames.draw()
                self.sent[f"{port.name}: {kind}"] += 1
                self._send(port, kind, data)
                if number % 50 == 0:
                    self._loiter(port, data)
        finally:
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _send(self, port: Port, kind: str, data: bytes) -> None:
        try:
            with port.connect() as connection:
                if port.name == "children" and self._dice.random() < 0.2:
                    self._with_descriptors(connection, data)
                else:
                    connection.sendall(data)
                if self._dice.random() < 0.9:
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 16):
                        pass
        except TimeoutError:
            self.stuck.append(f"{port.name}: {kind} {data[:80]!r}")
        except OSError:
            pass  # it hung up, as it may

    def _with_descriptors(self, connection: socket.socket, data: bytes) -> None:
        rights = array.array("i", [connection.fileno()] * self._dice.randint(1, 60))
        space = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
        connection.sendmsg([data or b"\0"], space)

    def _loiter(self, port: Port, data: bytes) -> None:
        """Open one more connection that says little or nothing, and let one trickle on."""
        with contextlib.suppress(OSError):
            connection = port.connect()
            connection.setblocking(False)
            self._idle.append(connection)
            connection.send(data[: self._dice.randint(0, 3)])
        if len(self._idle) > IDLERS:
            self._idle.pop(self._dice.randrange(len(self._idle))).close()
        with contextlib.suppress(OSError):
            self._dice.choice(self._idle).send(b"\0")

    def _ports(self) -> list[Port]:
        settings = load_config(self.home)
        address = split_address(settings.listen)
        poser = _admitted(self.home, *self.others)
        hellos = [greeting(load_config(home).listen, poser) for home in self.others]
        names = ("t", "version", "node", "boot", "address")
        hellos = [{name: hello[name] for name in names} for hello in hellos]
        stranger = {**hellos[0], "node": "mallory", "boot": "0", "address": "127.0.0.1:9"}
        peers = [*hellos, stranger, *PEERS_SAY]
        beat = {"t": "Heartbeat", "epoch": [1, "node-0", "x"], "counter": 10**9}
        replays = [encode(hello) + encode(beat) for hello in hellos]
        gone = NAMES[NodeId]
        contexts = [poser.outgoing, credentials("mallory", "mallory's").outgoing, _nobody()]
        requests = [encode(request) for request in ASKED]
        return [
            Port("peers", socket.AF_INET, address, Frames(self._dice, peers, replays),
                 partial(_sealed, Errand.PEER, poser.outgoing)),
            Port("transfer", socket.AF_INET, address, Frames(self._dice, FETCHES, node=gone),
                 partial(_sealed, Errand.FETCH, poser.outgoing)),
            Port("strangers", socket.AF_INET, address, Frames(self._dice, peers, replays),
                 lambda connection: self._as_stranger(connection, contexts[1:])),
            Port("control", socket.AF_UNIX, self._unix("control.sock"),
                 Frames(self._dice, ASKED, requests, NAMES[NodeId])),
            Port("children", socket.AF_UNIX, self._unix("children.sock"),
                 Frames(self._dice, CHILDREN_SAY, self._hellos_of_children())),
        ]  # fmt: skip

    def _as_stranger(
        self, connection: socket.socket, contexts: Sequence[ssl.SSLContext]
    ) -> socket.socket:
        """Say some of what members say first, and go on without their certificate."""
        if self._dice.random() < 0.5:
            return _sealed(self._dice.choice(list(Errand)), self._dice.choice(contexts), connection)
        connection.sendall(self._dice.choice((b"", b"P", b"F", b"J", b"P\x16\x03\x01\x00")))
        return connection

    def _unix(self, name: str) -> str:
        if sys.platform != "linux":
            return str(self.home / name)
        # The path itself may be too long for a socket address.
        fd = os.open(self.home, os.O_PATH)
        return f"/proc/self/fd/{fd}/{name}"

    def _hellos_of_children(self) -> list[bytes]:
        """The hellos of the children that it has, each of which it has heard once."""

        found = []
        for entry in json.loads((self.home / "children.json").read_bytes()):
            with contextlib.suppress(psutil.Error, KeyError, ValueError):
                told = json.loads(psutil.Process(entry["pid"]).environ()["ELASTICD_CHILD"])
                hello = ChildHello(told["nonce"], entry["pid"], told["role"])
                found.append(encode(FROM_ANY_CHILD.encode(hello)))
        return found


_RELAYED = {"what": "relay", "node": NAMES[NodeId]}
FETCHES = (
    *frames(FETCH),
    *frames(WANTS),
    {**_RELAYED, "request": {"what": "stored_jobs"}},
    {**_RELAYED, "request": {**_RELAYED, "request": {}}},
)
HARMFUL = (Restart, RotateCertificates, ShutDown)
"""Requests that do something whatever they name."""
ASKED = frames(REQUESTS, without=HARMFUL)
PEERS_SAY = (
    *frames(CONNECTION), *frames(ASIDE), *frames(DAEMONS), *frames(FROM_GUEST),
    *frames(FROM_RENEWER),
)  # fmt: skip
CHILD_HELLOS = (
    {"t": "hello", "nonce": "00" * 16, "pid": 1, "role": "trainer"},
    {"t": "hello", "nonce": "ff" * 16, "pid": 1, "role": "reducer"},
)
CHILDREN_SAY = (
    *CHILD_HELLOS, *frames(FROM_ANY_CHILD), *frames(FROM_TRAINER), *frames(FROM_REDUCER),
)  # fmt: skip
SENT: tuple[Words[Any], ...] = (
    FETCH, WANTS, CONNECTION, ASIDE, DAEMONS, FROM_GUEST, FROM_RENEWER, FROM_ANY_CHILD,
    FROM_TRAINER, FROM_REDUCER, REQUESTS,
)  # fmt: skip
"""What a daemon is told: every conversation in which it listens to somebody who has connected."""


def _admitted(*homes: Path) -> Credentials:
    """Those of a member that no daemon is: who has them may speak, for itself."""
    founder = next(found for home in homes if (found := founding.founder_of(home)))
    return credentials_of(admit(founder, NodeId("fuzz"), papers.read(homes[0]).secret))


def _nobody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _sealed(errand: Errand, context: ssl.SSLContext, connection: socket.socket) -> socket.socket:
    connection.sendall(errand.value)
    return context.wrap_socket(connection, suppress_ragged_eofs=True)


def greeting(address: str, poser: Credentials) -> dict[str, Any]:
    """The hello with which the daemon at ``address`` answers one that it refuses."""
    with socket.create_connection(split_address(address), SECONDS) as opened:
        opened.settimeout(SECONDS)
        with _sealed(Errand.PEER, poser.outgoing, opened) as connection:
            probe = {"t": "hello", "version": 0, "node": "?", "boot": "?"}
            connection.sendall(encode({**probe, "address": "127.0.0.1:9"}))
            decoder = Decoder()
            while data := connection.recv(1 << 16):
                for frame in decoder.feed(data):
                    return frame
    raise AssertionError(f"{address} gave no answer")
