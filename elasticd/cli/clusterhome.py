"""Which home the commands of ``elasticctl cluster`` mean, and where its daemon is to listen."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from elasticd.cli.options import Common
from elasticd.cli.screen import warn
from elasticd.client.homes import home_behind_sudo, home_option
from elasticd.client.processes import find_daemon
from elasticd.errors import DamageError, OperationError, UsageError
from elasticd.pasting import of_home, quoted
from elasticd.settings import config
from elasticd.settings.config import NodeConfig, split_address
from elasticd.settings.localhomes import begun_anew, cluster_of, is_local, node_homes
from elasticd.settings.ownhome import make_private, refuse_open, refuse_ownerless
from elasticd.settings.places import default_home
from elasticd.shell.network import ownaddresses
from elasticd.shell.network.binding import refuse_shared
from elasticd.shell.network.ownaddresses import EVERYWHERE
from elasticd.shell.storage import issuing, papers
from elasticd.trust import tokens
from elasticd.trust.member import MemberPapers
from elasticd.trust.tokens import Token
from elasticd.types import OF_NODE_ID, NodeId, is_node_id


@dataclass(frozen=True, slots=True)
class OpenedToken:
    """A token with which ``uses`` nodes can join."""

    token: Token
    until_unix: float
    uses: int

    def warn_of_troubles(self, home: Path) -> None:
        """Say what keeps others from using it, if something does."""
        where = self.token.addresses
        if all(map(is_loopback, where)):
            warn(f"this node listens on {where[0]}, which only this machine can reach")
        if find_daemon(home) is None:
            warn(f"this node's daemon takes it, and does not run; {starting(home)}")


def own_home(options: Common) -> Path:
    """The home of one node; never a local cluster's.

    Raises:
        UsageError: it is one, or no folder.
    """
    home = (options.given_home or default_home()).absolute()
    if home.exists() and not home.is_dir():
        raise UsageError(f"{home}: is no folder")
    if nodes := node_homes(home):
        raise UsageError(
            f"{home} is the home of a local cluster, whose nodes are members already; a node's own"
            f" home is {nodes[0]}, say"
        )
    return home


def member_home(options: Common) -> Path:
    """The home of a member; of a local cluster that of the node which makes members.

    Raises:
        UsageError: no member lives there.
    """
    home = options.given_home or default_home().absolute()
    if not papers.is_member(home):
        home = options.home  # a local cluster's, where none was named
    found = [each for each in (home, *node_homes(home)) if papers.is_member(each)]
    for each in found:
        if papers.makes_members(each):
            return each
    if not found and is_local(home):
        raise UsageError(
            f"{home} has lost what makes it a member of its local cluster; it gets that anew by"
            f" {begun_anew(home)}"
        )
    if not found:
        raise UsageError(
            f"{home} is no member of a cluster ('elasticctl cluster init' makes one, 'elasticctl"
            " cluster join TOKEN' joins one)"
        )
    return found[0]


def is_lone(home: Path, other: str = "") -> bool:
    """Whether the home's node is the only one of its cluster, which isn't ``other``, and can have
    let nobody in: a daemon that is started alone makes such a cluster.

    Raises:
        OperationError: its papers are damaged.
    """
    with damage_told():
        makes, own = papers.makes_members(home), papers.read(home)
    alone = makes and own.cluster_id != other and cluster_of(home) == home
    return alone and not (own.peers or issuing.read(home) or papers.read_tokens(home))


def make(home: Path) -> None:
    """Raises OSError: it can't be made; UsageError: others could replace it."""
    make_private(home)
    refuse_open(home)


def make_members(home: Path) -> None:
    """As :func:`make`, for a node that is to be a member: its keys will lie there.

    Raises as that does, also where every account owns everything.
    """
    make(home)
    refuse_ownerless(home)


def open_token(home: Path, member: MemberPapers, seconds: float, uses: int) -> OpenedToken:
    """Let so many nodes join.

    Raises:
        OperationError: this node makes no members, or the file with the other tokens is damaged.
        OSError: the disk is full or broken.
    """
    if not papers.makes_members(home):
        raise OperationError(
            f"{member.node} makes no members: ask on the node where 'cluster init' was run"
        )
    settings = ownaddresses.found(config.load(home))
    now = time.time()
    until, secret = now + seconds, secrets.token_bytes(tokens.SECRET_BYTES)
    made = Token(member.cluster_id, secret, settings.addresses[: tokens.MOST_ADDRESSES])
    issuing.open_token(home, tokens.opened(secret, until, uses), now)
    return OpenedToken(made, until, uses)


def damage_of(home: Path) -> DamageError | None:
    """What is damaged of what makes its node a member; None: nothing, or it is none."""
    try:
        if papers.folder_of(home).exists():
            papers.read(home)
    except DamageError as error:
        return error
    return None


def has_let_in(home: Path) -> bool:
    """Whether others may be members by what is in this home."""
    if not papers.makes_members(home):
        return False
    try:
        return bool(issuing.read(home) or papers.read_tokens(home))
    except OperationError:
        return True


@contextmanager
def damage_told() -> Iterator[None]:
    """Damaged papers end a command like whatever else fails."""
    try:
        yield
    except DamageError as error:
        raise OperationError(str(error)) from None


def leaving(home: Path) -> str:
    """How a home ceases to be a member's."""
    if is_local(home):
        return "a local cluster's node stays in it: name another --home"
    return f"to leave it, stop the daemon and remove {papers.folder_of(home)}"


def starting(home: Path) -> str:
    """What is to be done, so that a member's daemon runs."""
    of = home_option(home)
    if is_local(home):
        return f"start it with its local cluster: {quoted('elasticctl local up', *of)}"
    install = quoted("elasticctl service install", *home_behind_sudo(home))
    return f"start its daemon: {install}, or {quoted('elasticd run', *of)} to watch it"


def restarting(home: Path) -> str:
    """The command that has a daemon begin anew: that of this node, also of a local cluster's."""
    if is_local(home):
        return quoted(of_home("service restart", home))
    return quoted("elasticctl service restart", *home_option(home))


def checked_id(given: str | None, settings: NodeConfig) -> NodeId:
    """Raises UsageError: that is no node's id."""
    node = settings.node_id if given is None else given
    if not is_node_id(node):
        raise UsageError(f"--node-id: must be {OF_NODE_ID}, not {node!r}")
    return NodeId(node)


def checked_listen(given: str, *, bare: bool = False) -> str:
    """``bare``: the host may be missing, as in ``:7071``.

    Raises:
        UsageError: it is no address.
    """
    try:
        split_address(f"host{given}" if bare and given.startswith(":") else given)
    except ValueError:
        raise UsageError(f"--listen: must be HOST:PORT, not {given!r}") from None
    return given


def is_loopback(address: str) -> bool:
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen_of_first(port: int, hosts: Sequence[str]) -> str:
    """Where the first node of a cluster is to listen on a machine that has these addresses.

    Raises:
        UsageError: it has none by which others reach it.
    """
    if not hosts:
        text = "this machine has no address but loopback: say one with --listen HOST:PORT"
        raise UsageError(text)
    return f"{EVERYWHERE}:{port}"


def found_listen(
    host: str,
    settings: NodeConfig,
    given: str | None = None,
    *,
    written: bool,
    running: bool,
    free: Callable[[str, int], int],
) -> str:
    """Where a node is to listen that reaches its cluster from ``host``.

    Args:
        given: what the user says, HOST:PORT or :PORT.
        written: elasticd.toml says where. That counts, unless only this machine gets there.
        running: the daemon of this home has its port itself.
        free: :func:`free_port`.
    """
    at = host if host.startswith("127.") else EVERYWHERE
    if given is not None:
        return f"{at}{given}" if given.startswith(":") else given
    if written and (host.startswith("127.") or not is_loopback(settings.listen)):
        return settings.listen
    wanted = split_address(settings.listen)[1]
    return f"{at}:{wanted if running else free(at, wanted)}"


def reached_at(listen: str, host: str, settings: NodeConfig) -> str:
    """The address to be told to the others of a node that reaches them from ``host``."""
    at, port = split_address(listen)
    if at != EVERYWHERE:
        return listen
    return settings.advertise[0] if settings.advertise else f"{host}:{port}"


def free_port(host: str, wanted: int, system: str = sys.platform) -> int:
    """``wanted`` if nobody listens there, else one that the system gives.

    Raises:
        OperationError: the address isn't this machine's.
    """
    try:
        found = _bound(host, wanted)
        refuse_shared(host, found, system)
        return found
    except OSError:
        pass
    try:
        return _bound(host, 0)
    except OSError as error:
        raise OperationError(f"can't listen on {host}: {error.strerror}") from None


def _bound(host: str, port: int) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])


def moment(unix: float) -> str:
    return datetime.fromtimestamp(unix).strftime("%Y-%m-%d %H:%M")
