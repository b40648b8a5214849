"""A cluster whose nodes are network namespaces, joined by a switch: cables that can be pulled.

Each node has a namespace with one interface; the other ends of these cables are ports of a bridge
in a namespace of its own, so nothing of the machine's network is touched. Needs root and ``ip``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import NoDaemonError, OperationError, ProtocolError
from elasticd.shell.storage import papers
from elasticd.trust.authority import Authority, admit
from elasticd.trust.names import SECRET_BYTES
from elasticd.types import JobId, NodeId
from tests.integration.alone import copy_kernels
from tests.integration.cluster import WAIT_SECONDS, Cluster

DAEMON_PORT = 7070
COMMAND_SECONDS = 10.0
FILLER = "filler"
_NETWORK, _SECOND_NETWORK = "10.213.7", "10.213.8"


@functools.cache
def why_not() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    if shutil.which("ip") is None or shutil.which("iptables") is None:
        return "ip or iptables is missing"
    name = f"eld-{secrets.token_hex(3)}"
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "hub", "type", "bridge")
        _ip("-n", name, "link", "add", "one", "type", "veth", "peer", "name", "two")
    except OSError as error:
        return f"no network namespaces here: {error}"
    finally:
        with contextlib.suppress(OSError):
            _ip("netns", "delete", name)
    return ""


class NetCluster(Cluster):
    """As :class:`Cluster`; every daemon runs in a namespace and listens on its own address."""

    def __init__(
        self,
        folder: Path,
        nodes: int,
        kernels: Path | None = None,
        disk_mib: int = 0,
        addresses: int = 1,
        **settings: Any,
    ) -> None:
        """``settings`` are keys of elasticd.toml for every node; with ``disk_mib`` each home is a
        disk of its own of that size. Of two ``addresses`` the first is the one to be cut."""
        super().__init__(folder, nodes, kernels)
        self._disk_mib = disk_mib
        self._networks = (_NETWORK, _SECOND_NETWORK)[:addresses]
        self._settings = settings
        self._prefix = f"eld-{secrets.token_hex(3)}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._hub = f"{self._prefix}-hub"
        self._wire()
        self._furnish()

    # The network.

    def _wire(self) -> None:
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "hub", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "hub", "up")
        for number, node in enumerate(self.nodes):
            space, port = self.space(node), f"p{number}"
            _ip("netns", "add", space)
            _ip("-n", self._hub, "link", "add", port, "type", "veth", "peer", "name", "eth0",
                "netns", space)  # fmt: skip
            _ip("-n", self._hub, "link", "set", port, "master", "hub")
            _ip("-n", self._hub, "link", "set", port, "up")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "link", "set", "eth0", "up")
            for address in self.hosts(node):
                self.give_address(node, address)

    def give_address(self, node: str, address: str) -> None:
        """Its interface has this address, too."""
        _ip("-n", self.space(node), "addr", "add", f"{address}/24", "dev", "eth0")

    def take_address(self, node: str, address: str) -> None:
        """Its interface, which stays up, has this address no more."""
        _ip("-n", self.space(node), "addr", "del", f"{address}/24", "dev", "eth0")

    def cut_address(self, node: str, address: str) -> None:
        """Swallow all that arrives for one address of ``node``, or from there."""
        for which in ("-s", "-d"):
            self._filter(node, "-A", "INPUT", which, address, "-j", "DROP")

    def space(self, node: str) -> str:
        """The name of a node's namespace."""
        return f"{self._prefix}-{node}"

    def host(self, node: str) -> str:
        """A node's first address."""
        return self.hosts(node)[0]

    def hosts(self, node: str) -> list[str]:
        """All of its addresses."""
        return [f"{network}.{self.nodes.index(node) + 1}" for network in self._networks]

    def pull(self, node: str) -> None:
        """Pull the node's cable: it hears nobody, and its own interface has no carrier."""
        _ip("-n", self._hub, "link", "set", f"p{self.nodes.index(node)}", "down")

    def plug(self, node: str) -> None:
        """Put the cable back."""
        _ip("-n", self._hub, "link", "set", f"p{self.nodes.index(node)}", "up")

    def deafen(self, node: str, *sources: str) -> None:
        """Swallow all that arrives at ``node`` from ``sources``, without a word to either."""
        for source in sources:
            self._filter(node, "-A", "INPUT", "-s", self.host(source), "-j", "DROP")

    def hear(self, node: str) -> None:
        """Take all of :meth:`deafen` back."""
        self._filter(node, "-F", "INPUT")

    def part(self, *groups: list[str]) -> None:
        """Swallow everything between nodes of different groups, both ways."""
        for group in groups:
            for node in group:
                self.deafen(node, *(n for other in groups if other is not group for n in other))

    def join(self) -> None:
        """Let everybody hear everybody again."""
        for node in self.nodes:
            self.plug(node)
            self.hear(node)

    def _filter(self, node: str, *words: str) -> None:
        _run("ip", "netns", "exec", self.space(node), "iptables", "-w", *words)

    # The daemons.

    def listens(self, node: str) -> str:
        """Where the daemon of ``node`` listens."""
        return f"{self.host(node)}:{DAEMON_PORT}"

    def answers(self, node: str) -> list[str]:
        """Where the others reach it."""
        return [f"{host}:{DAEMON_PORT}" for host in self.hosts(node)]

    def launcher(self, node: str) -> list[str]:
        """What goes before the daemon's command."""
        return ["ip", "netns", "exec", self.space(node)]

    def _furnish(self) -> None:
        founder, secret = Authority.make(), secrets.token_bytes(SECRET_BYTES)
        for node in self.nodes:
            folder = self.home / node
            folder.mkdir(parents=True)
            if self._disk_mib:
                _run(
                    "mount",
                    "-t",
                    "tmpfs",
                    "-o",
                    f"size={self._disk_mib}m,mode=700",
                    "elasticd",
                    str(folder),
                )
            self.configure(
                node,
                node_id=node,
                listen=self.listens(node),
                advertise=tuple(self.answers(node)),
                peers=tuple(self.answers(n)[0] for n in self.nodes if n != node),
                **self._settings,
            )
            # As 'elasticctl local up' does it: the first node can admit others.
            papers.write(
                folder,
                admit(founder, NodeId(node), secret),
                founder.key if node == self.nodes[0] else None,
            )
            if self._kernels is not None:
                copy_kernels(self._kernels, folder)

    def up(self) -> None:
        """Start the nodes that don't run; returns once all who can share a view."""
        self._starting = True
        try:
            self.wait_for(f"a view of {self.nodes}", self._whole)
        finally:
            self._starting = False
        self.note()

    revive = up

    def _start(self, node: str) -> None:
        old = self._running.pop(node, None)
        if old is not None:
            old.wait(WAIT_SECONDS)
        with (self.home / node / "daemon.log").open("ab") as log:
            self._running[node] = subprocess.Popen(
                [*self.launcher(node), sys.executable, "-P", "-m",
                 "elasticd.shell.daemon", "run", "--home", self.home / node],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home / node,
                env=self.environment, start_new_session=True,
            )  # fmt: skip

    def restart_daemon(self, node: str) -> None:
        """SIGKILL the daemon of ``node`` and start another at once; returns when that answers."""
        self.kill_daemon(node)
        self._start(node)
        pid = self._running[node].pid

        def answers() -> bool:
            nodes = self.client_of(node).request(ShowStatus())["nodes"]
            return any(one["id"] == node and one["pid"] == pid for one in nodes)

        self.wait_for(f"the new daemon of {node}", answers)

    def wait_view(self, members: list[str]) -> None:
        """Until exactly these nodes share a view."""

        self.wait_for(f"a view of {members}", lambda: self._agree(members))

    def _agree(self, members: list[str]) -> bool:
        views = [self.view_of(node) for node in members]
        same = all(view == views[0] for view in views)
        return same and views[0] is not None and sorted(views[0]["members"]) == sorted(members)

    def wait_links(self) -> None:
        """Until every node hears every other one over each of its addresses."""

        def links() -> list[dict[str, Any]]:
            asked = [self.client_of(node).request(ShowStatus()) for node in self.nodes]
            return [link for said in asked for node in said["nodes"] for link in node["links"]]

        count = len(self.nodes) * (len(self.nodes) - 1) * len(self._networks)
        self.wait_for(
            "all links",
            lambda: len(links()) >= count and all(link["state"] == "up" for link in links()),
        )

    def _whole(self) -> bool:
        """Start whoever doesn't run, also one that was just ending when it was looked at first."""
        living = self.living()
        for node in self.nodes:
            running = self._running.get(node)
            if node not in living and (running is None or running.poll() is not None):
                self._start(node)
        return self._agree(self.nodes)

    def client_of(self, node: str) -> Client:
        """Asks that node's daemon."""
        return Client(self.home / node)

    def view_of(self, node: str) -> dict[str, Any] | None:
        """The view that ``node`` is in; None if it doesn't answer."""
        try:
            found: dict[str, Any] = self.client_of(node).request(ShowStatus())["view"]
        except (NoDaemonError, OperationError, ProtocolError):
            return None
        return found

    def status_at(self, node: str, job: str) -> dict[str, Any]:
        """The job's entry of ``status --json`` as ``node`` sees it."""
        found = self.client_of(node).request(ShowStatus(JobId(job)))["jobs"][0]
        return dict(found)

    @property
    def addresses(self) -> list[str]:
        return []  # they can't be reached from here

    def down(self) -> list[str]:
        with contextlib.suppress(OSError):
            self.join()
        for node in self.nodes:
            self.free_disk(node)
        left = super().down()
        for process in self._running.values():
            process.wait(WAIT_SECONDS)
        self._unwire()
        return left

    def _unwire(self) -> None:
        for space in [self._hub, *map(self.space, self.nodes)]:
            with contextlib.suppress(OSError):
                _ip("netns", "delete", space)

    def unmount(self) -> None:
        """Take the disks away, with all that is on them."""
        for node in self.nodes if self._disk_mib else ():
            _run("umount", "-l", str(self.home / node))

    # Disks.

    def fill_disk(self, node: str) -> None:
        """Leave no byte free on the node's disk."""
        with (self.home / node / FILLER).open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size) == size:
                        pass

    def free_disk(self, node: str) -> None:
        """Take :meth:`fill_disk` back."""
        (self.home / node / FILLER).unlink(missing_ok=True)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(str(error)) from error
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
