"""A cluster of real daemons on this machine: started, awaited, ended.

HOME holds ``node-0/ node-1/ …``, one daemon's home each. In each: ``elasticd.toml`` and
``cluster/`` (what makes it a member; the first node founds the cluster), written here, and
``daemon.json`` and ``children.json``, in which the daemon names its processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from elasticd.cli.daemons import (
    DAEMON,
    LOG_FILE,
    StartDaemon,
    StartedDaemon,
    let_live,
    start_daemon,
)
from elasticd.cli.interrupts import Interrupts
from elasticd.cli.keeper import end_keeper, start_keeper
from elasticd.cli.screen import warn
from elasticd.client.connection import Connection, probe
from elasticd.client.homes import home_option
from elasticd.client.processes import find_daemon
from elasticd.core.words.requests.nodes import ShutDown
from elasticd.core.words.requests.wire import ASKED
from elasticd.counting import counted
from elasticd.errors import DamageError, NoDaemonError, OperationError, ProtocolError, UsageError
from elasticd.pasting import quoted
from elasticd.settings import config
from elasticd.settings.config import NodeConfig
from elasticd.settings.localhomes import count_at, node_homes
from elasticd.settings.ownhome import make_private, refuse_open, refuse_ownerless
from elasticd.settings.places import DAEMON_FILE, FILE_NAME, LOCAL_LOCK_NAME, SOCKET_NAME
from elasticd.shell.chaos.firewall import firewall
from elasticd.shell.children.ports import PORTS, claim
from elasticd.shell.network.binding import refuse_shared
from elasticd.shell.storage import papers
from elasticd.shell.storage.durable import write_whole
from elasticd.supervision.birth import UNSEEN, has_ended
from elasticd.supervision.roster import ChildRoster, kill_group
from elasticd.trust.issuing import Issuer
from elasticd.trust.member import MemberPapers
from elasticd.trust.renewal import Renewal
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId, Partition

DEFAULT_NODES = 3
UP_SECONDS = 60.0
AGREE_SECONDS = 3.0
"""How long a daemon may take to agree to a shutdown; one that doesn't is killed."""
DOWN_SECONDS = 20.0
KILL_SECONDS = 5.0
POLL_SECONDS = 0.05
LOG_TAIL_BYTES = 4096
LOG_TAIL_LINES = 15

CHILDREN_FILE = "children.json"


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node of a local cluster."""

    home: Path
    config: NodeConfig

    @property
    def name(self) -> str:
        return self.config.node_id


def up(
    home: Path,
    count: int | None,
    program: Sequence[str] = DAEMON,
    *,
    partition: str | None = None,
    keep: bool = False,
    start: StartDaemon = start_daemon,
) -> list[dict[str, Any]]:
    """Start the cluster's nodes that don't run; returns once all share a view.

    Args:
        home: folder of the cluster; made if missing.
        count: nodes that it shall have; None: as many as it has, or the default.
        program: what is started as the daemon, with ``run --home DIR`` behind it.
        partition: the setting of that name; None: as the cluster has it.
        keep: have a keeper start daemons again that die; one that is at work stays in any case.
        start: how the daemons are started, but for those that a keeper starts.

    Returns:
        Per node ``{"id", "address", "home", "pid"}``.

    Raises:
        UsageError: the cluster has another size and can't be changed now, or another account could
            command it.
        OperationError: a daemon failed or the view didn't form; what was started is ended, as it is
            after Ctrl-C, SIGTERM or SIGHUP. Or what a node has stored is damaged; then the others
            run.
    """
    interrupts = Interrupts()
    with _locked(home), interrupts.in_force():
        refuse_ownerless(home)
        nodes = _prepare(home, count, _partition(partition))
        started: dict[str, StartedDaemon] = {}
        kept = False
        try:
            with interrupts.held():
                kept = end_keeper(home)  # two that start the same daemon would be one too many
                for node in nodes:
                    if find_daemon(node.home) is None:
                        started[node.name] = start(node.home, program)
            damaged = _await_view(nodes, started, lambda home: start(home, program), interrupts)
            described = [_described(node, started) for node in nodes if node not in damaged]
            with interrupts.held():
                if keep or kept:
                    start_keeper(home, program)
        except BaseException:
            # Whoever presses Ctrl-C again gets nothing sooner: a daemon would be left.
            with contextlib.suppress(KeyboardInterrupt), interrupts.held():
                end_keeper(home)
                _end([node.home for node in nodes if node.name in started], started)
                if kept:
                    start_keeper(home, program)
            raise
    if damaged:
        others = f"the other {len(described)} run and share a view"
        raise OperationError(f"{_obituary(damaged[0], 'is damaged')}\n({others})")
    return described


def down(home: Path, patience_seconds: float = DOWN_SECONDS) -> list[str]:
    """End all daemons of the cluster and their children; returns the names of those that ran.

    A daemon that has agreed to a shutdown has ``patience_seconds`` for it before it is killed.

    Raises:
        UsageError: another account could have laid something there.
        OperationError: a process survives even SIGKILL. Or a daemon runs there that is in no local
            cluster.
    """
    homes = node_homes(home)
    if not homes:
        if (daemon := find_daemon(home)) is not None:
            raise OperationError(
                f"{home}: its daemon runs (process {daemon.pid}) and is in no local cluster; end it"
                f" with {quoted('elasticctl service stop', *home_option(home))}, or with Ctrl-C"
                " where it was started"
            )
        return []
    with _locked(home):
        end_keeper(home)
        running = [folder for folder in homes if find_daemon(folder) is not None]
        _end(homes, {}, patience_seconds)
        return [folder.name for folder in running]


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Keep two ``local`` commands off the same home.

    Raises:
        UsageError: another account could have laid something there.
    """
    make_private(home, 0o755)
    for folder in (home, *node_homes(home)):
        refuse_open(folder)
    fd = os.open(home / LOCAL_LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OperationError(f"{home}: another 'elasticctl local' is at work") from None
        yield
    finally:
        os.close(fd)


# --- configuration ------------------------------------------------------------------------------


def _partition(asked: str | None) -> Partition | None:
    for known in (None, *config.PARTITIONS):
        if asked == known:
            return known
    raise UsageError(f"--partition must be {' or '.join(config.PARTITIONS)}, not {asked}")


def _prepare(home: Path, count: int | None, partition: Partition | None) -> list[LocalNode]:
    existing = [LocalNode(folder, config.load(folder)) for folder in node_homes(home)]
    there = count_at(home)
    total = count or there or DEFAULT_NODES
    if total < there:
        raise UsageError(
            f"{home} has nodes up to node-{there - 1}, more than {total};"
            " leave -n out or use another --home"
        )
    running = [node.name for node in existing if find_daemon(node.home) is not None]
    if running and count is not None and total > len(existing):
        raise UsageError(
            f"{home} has {counted(len(existing), 'node')}, of which"
            f" {counted(len(running), 'runs', 'run')}; nodes can be added after"
            " 'elasticctl local down'"
        )
    if running and partition not in (None, existing[0].config.partition):
        raise UsageError(
            f"{home} runs with --partition {existing[0].config.partition}; it can be changed after"
            " 'elasticctl local down'"
        )
    return existing if running else _configure(home, existing, total, partition)


def _configure(
    home: Path, existing: Sequence[LocalNode], total: int, partition: Partition | None
) -> list[LocalNode]:
    """Write what is missing or has become impossible; nothing runs now."""
    kept = {folder.home: folder.config for folder in existing}
    there = count_at(home)
    folders = [home / f"node-{number}" for number in range(total)]
    wanted = [_kept_address(kept.get(folder)) for folder in folders]
    addresses = _addresses([*wanted, *(_kept_page(kept.get(folder)) for folder in folders)])
    pages = [config.split_address(address)[1] for address in addresses[total:]]
    before = existing[0].config.partition if existing else NodeConfig().partition
    nodes = []
    for number, folder in enumerate(folders):
        settings = replace(
            kept.get(folder, NodeConfig(node_id=folder.name)),
            node_id=folder.name,
            cluster="local",
            listen=addresses[number],
            dashboard_port=_page_port(kept.get(folder), pages[number]),
            partition=partition or before,
            peers=tuple(each for at, each in enumerate(addresses[:total]) if at != number),
        )
        if number < there and folder not in kept:
            warn(f"{folder} is gone; {folder.name} begins anew, with nothing")
        folder.mkdir(mode=0o700, exist_ok=True)
        if kept.get(folder) != settings or not (folder / FILE_NAME).exists():
            write_whole(folder / FILE_NAME, config.dump(settings).encode())
        nodes.append(LocalNode(folder, settings))
    _give_papers(nodes)
    return nodes


def _kept_address(settings: NodeConfig | None) -> str | None:
    return None if settings is None or settings.listen == config.DEFAULT_LISTEN else settings.listen


def _kept_page(settings: NodeConfig | None) -> str | None:
    port = config.DEFAULT_DASHBOARD_PORT if settings is None else settings.dashboard_port
    return None if port in (0, config.DEFAULT_DASHBOARD_PORT) else f"127.0.0.1:{port}"


def _page_port(settings: NodeConfig | None, free: int) -> int:
    """0, that is none, where somebody wants none."""
    return 0 if settings is not None and settings.dashboard_port == 0 else free


def _addresses(wanted: Sequence[str | None]) -> list[str]:
    """A free loopback address each, the wanted one where it is still free."""
    with contextlib.ExitStack() as held:
        return [
            (_bound(held, address) if address else None) or _free_address(held)
            for address in wanted
        ]


def _free_address(held: contextlib.ExitStack) -> str:
    for port in random.sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError):  # a reducer's that doesn't listen yet, say
            held.enter_context(contextlib.closing(claim(port, "127.0.0.1")))
            if address := _bound(held, f"127.0.0.1:{port}"):
                return address
    raise OperationError(f"no free port from {PORTS.start} to {PORTS.stop - 1}")


def _bound(held: contextlib.ExitStack, address: str) -> str | None:
    taken = held.enter_context(socket.socket())
    # As the daemon does: connections that are only just closing don't count.
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.suppress(OSError):
        taken.bind(config.split_address(address))
        refuse_shared(*config.split_address(address))
        return address
    return None


def _give_papers(nodes: Sequence[LocalNode]) -> None:
    """Make every node a member of the cluster that its first one founds, unless it is already."""
    # Loaded only here: other commands do without its cryptography, and should start quickly.
    from elasticd.shell.storage import founding
    from elasticd.trust.authority import issued

    first = nodes[0]
    founder = founding.founder_of(first.home)
    if founder is None or _papers_of(first, founder.certificate) is None:
        founding.found(first.home, NodeId(first.name))
        founder = founding.founder_of(first.home)
    assert founder is not None
    own, revoked, wanted = papers.read(first.home), _put_out(nodes), _old(nodes)
    issuer = Issuer(own, revoked, {}, wanted=wanted)
    for node in nodes[1:]:
        member = _papers_of(node, founder.certificate)
        if member is not None and revoked.holds(issued(member.certificate)):
            warn(f"{node.name} was put out of this cluster; it is let in again")
            member = None
        if member is None:
            at, where = issuer.made_at(NodeId(node.name), time.time()), node.config.listen
            made = founding.admit_beside(first.home, founder, own, NodeId(node.name), where, at)
            papers.write(node.home, made)


def _papers_of(node: LocalNode, authority: bytes) -> MemberPapers | None:
    """Those of a node that is a member which this authority has made; where they are damaged, they
    are made again."""
    try:
        member = papers.read(node.home)
    except DamageError:
        return None
    return member if member.authority == authority and member.node == node.name else None


def _put_out(nodes: Sequence[LocalNode]) -> Revoked:
    """Who was put out, as far as any of the nodes knows."""
    known = Revoked()
    for node in nodes:
        with contextlib.suppress(DamageError):
            known = known.merged(papers.read_revoked(node.home))
    return known


def _old(nodes: Sequence[LocalNode]) -> int:
    """The serial up to which certificates are to be renewed, as far as any of the nodes knows."""
    known = Renewal()
    for node in nodes:
        with contextlib.suppress(DamageError):
            known = known.merged(papers.read_renewal(node.home))
    return known.wanted


# --- processes ----------------------------------------------------------------------------------


def _await_view(
    nodes: Sequence[LocalNode],
    started: dict[str, StartedDaemon],
    start: Callable[[Path], StartedDaemon],
    interrupts: Interrupts,
) -> list[LocalNode]:
    """Wait until the nodes share a view; returns those that don't start since they are damaged."""
    deadline = time.monotonic() + UP_SECONDS
    every = nodes
    while True:
        for node in nodes:
            process = started.get(node.name)
            if process is None and find_daemon(node.home) is None:
                # It was killed a moment before we looked, and had not ended yet.
                with interrupts.held():
                    started[node.name] = process = start(node.home)
            if process is not None and process.poll() == DamageError.exit_code and len(nodes) > 1:
                nodes = [other for other in nodes if other is not node]
                break
            if process is not None and process.poll() is not None:
                raise OperationError(_obituary(node, f"ended with status {process.returncode}"))
        views = [_view(node) for node in nodes]
        late = [node for node, view in zip(nodes, views, strict=True) if view is None]
        if not late and _agree(nodes, views):
            break
        if time.monotonic() > deadline:
            if late:
                raise OperationError(_obituary(late[0], f"didn't answer for {UP_SECONDS:g} s"))
            shown = "; ".join(f"{n.name} sees {v}" for n, v in zip(nodes, views, strict=True))
            raise OperationError(f"the daemons share no view after {UP_SECONDS:g} s: {shown}")
        time.sleep(POLL_SECONDS)
    for process in started.values():
        let_live(process)
    return [node for node in every if node not in nodes]


def _view(node: LocalNode) -> tuple[Any, ...] | None:
    try:
        view = probe(node.home / SOCKET_NAME, 1.0)["view"]
        return view["epoch"], view["leader"], tuple(sorted(view["members"]))
    except (NoDaemonError, OperationError, ProtocolError, KeyError, TypeError):
        return None


def _agree(nodes: Sequence[LocalNode], views: Sequence[tuple[Any, ...] | None]) -> bool:
    first = views[0]
    names = tuple(sorted(node.name for node in nodes))
    return first is not None and first[2] == names and all(view == first for view in views)


def _obituary(node: LocalNode, what: str) -> str:
    try:
        with (node.home / LOG_FILE).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    except OSError:
        lines = []
    for line in lines:
        warn(f"  {node.name}: {line}")
    return f"the daemon of {node.name} {what} (log: {node.home / LOG_FILE})"


def _described(node: LocalNode, started: dict[str, StartedDaemon]) -> dict[str, Any]:
    process = find_daemon(node.home)
    pid = process.pid if process else started[node.name].pid if node.name in started else None
    return {
        "id": node.name,
        "address": node.config.addresses[0],
        "home": str(node.home),
        "pid": pid,
    }


# --- the end ------------------------------------------------------------------------------------


def _end(
    homes: Sequence[Path],
    started: dict[str, StartedDaemon],
    patience_seconds: float = DOWN_SECONDS,
) -> None:
    """End the daemons of ``homes``: asked first, then by SIGKILL, their children too."""
    daemons = {home: process for home in homes if (process := find_daemon(home)) is not None}
    for home in homes:
        child = started.get(home.name)
        if home not in daemons and child is not None and child.poll() is None:
            daemons[home] = psutil.Process(child.pid)
    agreed = _ask_to_end(homes)
    _await_end(
        [daemons[home] for home in homes if home in daemons and home in agreed], patience_seconds
    )
    for process in daemons.values():
        if _runs(process):
            kill_group(process.pid)
    left = _await_end(list(daemons.values()), KILL_SECONDS)
    for child in started.values():
        child.poll()
    for home in homes:
        if (home / CHILDREN_FILE).exists():
            ChildRoster(home / CHILDREN_FILE).end_leftovers(KILL_SECONDS)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise OperationError(f"can't be ended: process {pids}")
    for home in homes:
        firewall().clean(home)
        for name in (SOCKET_NAME, DAEMON_FILE):
            (home / name).unlink(missing_ok=True)


def _ask_to_end(homes: Sequence[Path]) -> set[Path]:
    """Ask the daemons of ``homes`` to shut down; returns the homes of those that said yes."""
    agreed: set[Path] = set()
    with contextlib.ExitStack() as stack:
        asked: list[tuple[Path, Connection]] = []
        for home in homes:
            with contextlib.suppress(NoDaemonError):
                connection = stack.enter_context(Connection(home / SOCKET_NAME))
                connection.send(ASKED.encode(ShutDown()))
                asked.append((home, connection))
        deadline = time.monotonic() + AGREE_SECONDS
        for home, connection in asked:
            with contextlib.suppress(NoDaemonError, OperationError, ProtocolError):
                if connection.receive(max(0.01, deadline - time.monotonic())) is not None:
                    agreed.add(home)
    return agreed


def _await_end(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until all have ended, at most ``seconds``; returns those that haven't."""
    deadline = time.monotonic() + seconds
    while left := [process for process in processes if _runs(process)]:
        if time.monotonic() > deadline:
            break
        psutil.wait_procs(left, timeout=POLL_SECONDS)
    psutil.wait_procs(processes, timeout=0)  # reaps those that were started by this very process
    return left


def _runs(process: psutil.Process) -> bool:
    # In a container whose first process doesn't reap, what has ended stays as a zombie.
    try:
        return process.is_running() and not has_ended(process)
    except UNSEEN:
        return False
