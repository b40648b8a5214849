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
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from elasticd.core.words.bulk import CHANGING, WANTS
from elasticd.core.words.children import FROM_REDUCER, FROM_TRAINER
from elasticd.core.words.codec import Words
from elasticd.core.words.connections import ASIDE, CONNECTION, FETCH, EchoedChallenge
from elasticd.core.words.joining import FROM_GUEST
from elasticd.core.words.messages import DAEMONS
from elasticd.core.words.processes import FROM_ANY_CHILD, ChildHello
from elasticd.core.words.requests import REQUESTS, ShutDown
from elasticd.ipc.frames import Decoder, encode
from elasticd.settings.config import load as load_config
from elasticd.settings.config import split_address
from elasticd.types import NodeId
from tests.fuzz.frames import Frames
from tests.fuzz.samples import NAMES, frames

SECONDS = 5.0
"""A daemon that neither answers nor hangs up for so long is stuck."""
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

    def connect(self) -> socket.socket:
        connection = socket.socket(self.family, socket.SOCK_STREAM)
        connection.settimeout(SECONDS)
        try:
            connection.connect(self.address)
        except BaseException:
            connection.close()
            raise
        return connection


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
        hellos = [greeting(load_config(home).listen) for home in self.others]
        names = ("t", "version", "cluster", "node", "boot", "address")
        hellos = [{name: hello[name] for name in names} for hello in hellos]
        mine = greeting(settings.listen)
        stranger = {**mine, "node": "mallory", "boot": "0", "address": "127.0.0.1:9"}
        peers = [*hellos, stranger, *PEERS_SAY]
        proof = CONNECTION.encode(EchoedChallenge(mine["challenge"]))
        beat = {"t": "Heartbeat", "epoch": [1, "node-0", "x"], "counter": 10**9}
        replays = [encode(hello) + encode(proof) + encode(beat) for hello in hellos]
        replays += [encode(hello) for hello in hellos]
        cluster = mine["cluster"]
        fetches = [{"t": "fetch", "cluster": cluster, **request} for request in FETCHES]
        changing = [encode(f) + encode(proof) for f in fetches if f["what"] in CHANGING]
        requests = [encode(request) for request in ASKED]
        return [
            Port("peers", socket.AF_INET, address, Frames(self._dice, peers, replays)),
            Port("transfer", socket.AF_INET, address, Frames(self._dice, fetches, changing)),
            Port("control", socket.AF_UNIX, self._unix("control.sock"),
                 Frames(self._dice, ASKED, requests, NAMES[NodeId])),
            Port("children", socket.AF_UNIX, self._unix("children.sock"),
                 Frames(self._dice, CHILDREN_SAY, self._hellos_of_children())),
        ]  # fmt: skip

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
HARMFUL = (ShutDown,)
"""Requests that do something whatever they name."""
ASKED = frames(REQUESTS, without=HARMFUL)
PEERS_SAY = (*frames(CONNECTION), *frames(ASIDE), *frames(DAEMONS), *frames(FROM_GUEST))
CHILD_HELLOS = (
    {"t": "hello", "nonce": "00" * 16, "pid": 1, "role": "trainer"},
    {"t": "hello", "nonce": "ff" * 16, "pid": 1, "role": "reducer"},
)
CHILDREN_SAY = (
    *CHILD_HELLOS, *frames(FROM_ANY_CHILD), *frames(FROM_TRAINER), *frames(FROM_REDUCER),
)  # fmt: skip
SENT: tuple[Words[Any], ...] = (
    FETCH, WANTS, CONNECTION, ASIDE, DAEMONS, FROM_GUEST, FROM_ANY_CHILD, FROM_TRAINER,
    FROM_REDUCER, REQUESTS,
)  # fmt: skip
"""What a daemon is told: every conversation in which it listens to somebody who has connected."""


def greeting(address: str) -> dict[str, Any]:
    """The hello with which the daemon at ``address`` answers a hello of another cluster's."""
    with socket.create_connection(split_address(address), SECONDS) as connection:
        connection.settimeout(SECONDS)
        probe = {"t": "hello", "version": 0, "cluster": "?", "node": "?", "boot": "?"}
        connection.sendall(encode({**probe, "address": "127.0.0.1:9"}))
        decoder = Decoder()
        while data := connection.recv(1 << 16):
            for frame in decoder.feed(data):
                return {"challenge": "00" * 8, **frame}
    raise AssertionError(f"{address} gave no answer")
