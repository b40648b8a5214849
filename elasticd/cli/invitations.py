"""Whom a host file invites, what each of them is to run, and what its answer means. Pure."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from elasticd.errors import ConfigError
from elasticd.pasting import quoted, word
from elasticd.settings.config import DEFAULT_LISTEN, split_address
from elasticd.settings.hostfile import HostList, ListedHost
from elasticd.settings.rules import one_line, show
from elasticd.shell.network.wall import BY_HAND
from elasticd.types import is_node_id

State = Literal["this", "member", "invited", "joined", "failed"]
PORT = split_address(DEFAULT_LISTEN)[1]
_LONGEST_BASE = 58
_LONGEST_SAID = 300
_SSH_FAILED, _NO_PROGRAM = 255, 127


@dataclass(frozen=True, slots=True)
class HereAndAlive:
    """What is known where the invitation is made.

    Attributes:
        node: this node.
        names: what this machine is called, and its addresses.
        alive: the members that live, and where each listens ("host:port").
    """

    node: str
    names: frozenset[str]
    alive: Mapping[str, str]

    def is_this(self, host: ListedHost) -> bool:
        known = {self.node.lower(), *(name.lower() for name in self.names)}
        own = {host.name.lower(), *host.ips}
        if not _is_ip(host.name):
            own.add(_short(host.name).lower())
        return bool(own & known) or _is_loopback(host.name)

    def member_at(self, host: ListedHost) -> str | None:
        """The member that seems to be the one node of that machine."""
        addresses = {host.name, *host.ips}
        for node, address in self.alive.items():
            if split_address(address)[0] in addresses:
                return node
        return self.member_called(_short(host.name))

    def member_called(self, name: str) -> str | None:
        """As a Mac's name may be written in several ways, large or small."""
        return next((node for node in self.alive if node.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class Invited:
    """One node that is to be, or that is there.

    Attributes:
        ssh: what ssh is told.
        node: its id; None: as its machine has it.
        listen: where it is to listen; None: as ``cluster join`` finds it.
        home: its home there, for the shell there; None: the usual one.
        state: ``this``: the node on which the command runs; ``member``: it is one already.
    """

    ssh: str
    node: str | None = None
    listen: str | None = None
    home: str | None = None
    state: State = "invited"

    @property
    def label(self) -> str:
        return f"{self.ssh} ({self.node})" if self.home is not None else self.ssh

    def command(self, program: str, token: str) -> str:
        """What is to be run there, for its shell."""
        # The shell there is to know its own account's home folder.
        own = "~/" if program.startswith("~/") else ""
        words = [own + word(program.removeprefix(own)), "cluster", "join", token]
        if self.node is not None:
            words += ["--node-id", self.node]
        if self.listen is not None:
            words += ["--listen", self.listen]
        if self.home is not None:
            words += ["--home", self.home]
        return " ".join(words)

    def as_json(self) -> dict[str, Any]:
        return {"host": self.ssh, "node": self.node, "state": self.state}


def plan(found: HostList, here: HereAndAlive, file: str) -> tuple[Invited, ...]:
    """All nodes of the file, in its order.

    Raises:
        ConfigError: two would be called alike, or a host could not be reached.
    """
    planned: list[Invited] = []
    lines: dict[str, int] = {}
    for host in found.hosts:
        this = here.is_this(host)
        if not this and host.ips and _is_loopback(host.ips[0]):
            text = f"{host.ips[0]} of {show(host.ssh)} can be reached from that machine only"
            raise ConfigError(text, file=file, line=host.line, key="ips")
        if host.slots == 1:
            planned.append(_one(host, here, this=this))
            continue
        for node in _several(host, here, this=this):
            assert node.node is not None
            if node.node.lower() in lines:
                raise ConfigError(
                    f"a node {show(node.node)} would be on two hosts, that of line"
                    f" {lines[node.node.lower()]}, too",
                    file=file,
                    line=host.line,
                )
            lines[node.node.lower()] = host.line
            planned.append(node)
    return tuple(planned)


def _one(host: ListedHost, here: HereAndAlive, *, this: bool) -> Invited:
    if this:
        return Invited(host.ssh, here.node, state="this")
    if (member := here.member_at(host)) is not None:
        return Invited(host.ssh, member, state="member")
    return Invited(host.ssh, listen=f"{host.ips[0]}:{PORT}" if host.ips else None)


def _several(host: ListedHost, here: HereAndAlive, *, this: bool) -> list[Invited]:
    """Of this machine the first is this node."""
    named = here.node if this else _short(host.name).lstrip("._-")
    base = named[:_LONGEST_BASE] or "mac"
    nodes = [Invited(host.ssh, here.node, state="this")] if this else []
    for slot in range(len(nodes), host.slots):
        node = f"{base}-{slot + 1}"
        known = here.member_called(node) is not None
        # A home beside others, never in a folder with them: that would be a local cluster's.
        home = f"~/elasticd-{node}"
        state: State = "member" if known else "invited"
        nodes.append(Invited(host.ssh, node, f":{PORT + slot}", home, state))
    return nodes


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command on another machine ended; ``status`` None: it was ended, as its time was up."""

    status: int | None
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class JoinOutcome:
    """What has become of an invitation; ``home`` and ``listen`` are those there."""

    state: State
    error: str = ""
    node: str = ""
    home: str = ""
    listen: str = ""
    running: bool = False


def outcome(invited: Invited, answer: Answer, cluster: str, program: str) -> JoinOutcome:
    """What an answer of ``cluster join --json`` there means; ``cluster``: the id of this one."""
    said = _last_object(answer.out)
    if answer.status is None:
        return JoinOutcome("failed", "no answer in time")
    if answer.status and isinstance(error := said.get("error"), str) and error:
        return JoinOutcome("failed", _shown(error))
    if answer.status:
        return JoinOutcome("failed", _why(answer, program))
    try:
        node, home, listen = (str(said[key]) for key in ("node", "home", "listen"))
        split_address(listen)
        whole = is_node_id(node) and invited.node in (None, node)
        other = said["cluster"] != cluster
        state: State = "member" if said["already"] is True else "joined"
        running = said["running"] is True
    except (LookupError, ValueError):
        whole = other = False
    if not whole:
        text = _last_line(answer.out) or "nothing"
        return JoinOutcome("failed", f"no elasticctl answers as it should, but: {text}")
    if other:
        return JoinOutcome("failed", "it says that it is a member of another cluster")
    return JoinOutcome(state, "", node, _shown(home), listen, running)


def _why(answer: Answer, program: str) -> str:
    """Of a command that failed and has not said why as elasticctl does."""
    text = _last_line(answer.err) or _last_line(answer.out)
    if answer.status == _SSH_FAILED:
        return f"ssh: {text.removeprefix('ssh: ') or 'it gives no reason'}"
    if answer.status == _NO_PROGRAM:
        return f"there is no {program!r} there: say where it is with --elasticctl PATH"
    return f"it ended with status {answer.status}: {text or 'it says nothing'}"


def _last_object(out: str) -> dict[str, Any]:
    """What programs print last; a shell that is started there may say something first."""
    lines = out.rstrip().split("\n")
    try:
        said = json.loads(lines[-1])
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return _shown(lines[-1]) if lines else ""


def _shown(text: str) -> str:
    return one_line(text[:_LONGEST_SAID])


def what_is_left(outcomes: Sequence[tuple[Invited, JoinOutcome]]) -> list[str]:
    """What is to be done by hand, so that the daemons of those that have joined run."""
    idle = [(who, what) for who, what in outcomes if what.state != "failed" and not what.running]
    left = []
    if names := [what.node for who, what in idle if who.home is None]:
        left.append(f"start the daemon of {', '.join(names)}: 'elasticctl service install' there")
    for who, what in idle:
        if who.home is not None:
            command = quoted("elasticd run --home", what.home)
            left.append(f"start {what.node} on {who.ssh}: {command}")
    return left


def of_services(planned: Sequence[Invited]) -> str | None:
    """What is to be known of machines with several nodes; None: there are none."""
    if not any(each.home is not None for each in planned):
        return None
    return (
        "launchd and systemd run one elasticd of a machine ('elasticctl service install --home"
        " DIR'): of several nodes on one you start the others yourself, and at each boot"
        f" ('elasticd run --home DIR'), on a Mac {BY_HAND}"
    )


def _short(name: str) -> str:
    return name if _is_ip(name) else name.partition(".")[0]


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return name.lower() == "localhost" or (_is_ip(name) and ipaddress.ip_address(name).is_loopback)
