"""The machine's packet filter, for cuts of links on purpose: what it drops, and that it stops.

A cut is a chain of its own (Linux) or an anchor (macOS), named ``elasticd-HOME-CUT`` after a
digest of the daemon's home. Before its first rule is in force a guard process runs that takes it
away when its time is over, whatever becomes of the daemon; a daemon that starts, and ``local
down``, take away what a guard that was killed has left.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from elasticd.errors import OperationError
from elasticd.supervision.birth import UNSEEN

COMMAND_SECONDS = 10.0
GUARD_SLACK_SECONDS = 2.0
"""The guard acts so much later than the daemon, which then has done it already."""
_SHELL = ["/bin/sh", "-c"]
_PREFIX = "elasticd"
_TOKEN = re.compile(r"^Token : (\d+)$", re.MULTILINE)
_TOKEN_MARK = "-t"
AS_ROOT = (
    "run the daemons as root, for --how drop, or pull the cable; 'elasticctl chaos hang JOB --rank"
    " N --process node --seconds 5' takes a node away and needs no rights"
)
"""How a Mac is cut off, on which no connection of another process can be closed."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The packets of one TCP connection in one direction: from ``(host, port)`` to another."""

    source: tuple[str, int]
    destination: tuple[str, int]


class Firewall(Protocol):
    """What a cut needs of a packet filter. All calls block, for milliseconds."""

    def open(self, home: Path, seconds: float) -> str:
        """Begin a cut that ends after ``seconds`` by itself; returns its name.

        Raises:
            OperationError: there is no packet filter here that we may use.
        """
        ...

    def drop(self, cut: str, flows: Iterable[Flow]) -> None:
        """Drop what arrives of these flows, too. Raises OperationError."""
        ...

    def close(self, cut: str) -> None:
        """End a cut; nothing if it has ended."""
        ...

    def left(self, home: Path) -> list[str]:
        """The names of that home's cuts, as far as this account may see them."""
        ...

    def clean(self, home: Path) -> list[str]:
        """End every cut of that home; returns their names."""
        ...


def cut_prefix(home: Path) -> str:
    """What the names of a home's cuts begin with; a chain's name has 28 characters at most."""
    return f"{_PREFIX}-{hashlib.blake2b(bytes(home.absolute()), digest_size=4).hexdigest()}-"


class Guards:
    """Processes that end cuts: they sleep, act, and are gone."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, cut: str, seconds: float, script: str) -> None:
        delay = seconds + GUARD_SLACK_SECONDS
        self._running[cut] = subprocess.Popen(
            [*_SHELL, f"sleep {delay:.1f}; {script}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"},
            start_new_session=True,
        )

    def stop(self, cut: str) -> None:
        """Once the cut has ended."""
        guard = self._running.pop(cut, None)
        if guard is not None and guard.poll() is None:
            _kill_group(guard.pid)
        if guard is not None:
            guard.wait()
            return
        for process in psutil.process_iter():  # an earlier daemon's
            with contextlib.suppress(*UNSEEN):
                if process.cmdline()[:2] == _SHELL and cut in process.cmdline()[2]:
                    _kill_group(process.pid)


def _kill_group(leader: int) -> None:
    # It may just have ended; macOS answers EPERM for a group whose members all have.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


class Iptables:
    """Linux, as root: one chain for each cut, which INPUT jumps to."""

    def __init__(self, program: str = "iptables", root: bool | None = None) -> None:
        self._program = program
        self._root = os.geteuid() == 0 if root is None else root
        self._guards = Guards()

    def open(self, home: Path, seconds: float) -> str:
        if not self._root:
            raise OperationError(
                "the packet filter is for root; run the daemons as root, or cut with --how close,"
                " which needs no rights"
            )
        if shutil.which(self._program) is None:
            raise OperationError(f"{self._program} is not installed; cut with --how close")
        cut = cut_prefix(home) + secrets.token_hex(3)
        self._run("-N", cut)
        script = "; ".join(" ".join([self._program, "-w", *words]) for words in _removal(cut))
        self._guards.start(cut, seconds, script)
        try:
            self._run("-I", "INPUT", "-j", cut)
        except OperationError:
            self.close(cut)
            raise
        return cut

    def drop(self, cut: str, flows: Iterable[Flow]) -> None:
        for flow in flows:
            (source, sport), (destination, dport) = flow.source, flow.destination
            self._run(
                "-A", cut, "-p", "tcp", "-s", source, "--sport", str(sport),
                "-d", destination, "--dport", str(dport), "-j", "DROP",
            )  # fmt: skip

    def close(self, cut: str) -> None:
        for words in _removal(cut):
            self._run(*words, must=False)
        self._guards.stop(cut)

    def left(self, home: Path) -> list[str]:
        if not self._root or shutil.which(self._program) is None:
            return []
        prefix = f"-N {cut_prefix(home)}"
        return [line[3:] for line in self._run("-S", must=False) if line.startswith(prefix)]

    def clean(self, home: Path) -> list[str]:
        return _closed(self, home)

    def _run(self, *words: str, must: bool = True) -> list[str]:
        return _run([self._program, "-w", *words], must)


def _removal(cut: str) -> tuple[tuple[str, ...], ...]:
    return (("-D", "INPUT", "-j", cut), ("-F", cut), ("-X", cut))


class PacketFilter:
    """macOS, as root: one pf anchor for each cut.

    Not run by us on a Mac: it follows pfctl(8) and pf.conf(5). The default rules of macOS evaluate
    anchors below ``com.apple/``, so cuts live there. ``pfctl -E`` counts those who enabled pf, and
    prints a token with which ``pfctl -X`` takes one of them away; pf is off again without any. A
    cut's name ends with its token, so that a guard and a later daemon have it, too.
    """

    def __init__(self, program: str = "pfctl", root: bool | None = None) -> None:
        self._program = program
        self._root = os.geteuid() == 0 if root is None else root
        self._guards = Guards()
        self._flows: dict[str, list[Flow]] = {}

    def open(self, home: Path, seconds: float) -> str:
        if not self._root:
            raise OperationError(f"the packet filter is for root; {AS_ROOT}")
        said = "\n".join(_run([self._program, "-E"], must=True))
        token = match[1] if (match := _TOKEN.search(said)) else ""
        cut = f"{cut_prefix(home)}{secrets.token_hex(3)}{_TOKEN_MARK}{token}"
        self._flows[cut] = []
        script = "; ".join(" ".join([self._program, *words]) for words in _pf_removal(cut))
        try:
            self._guards.start(cut, seconds, script)
        except OSError as error:
            self.close(cut)
            raise OperationError(f"no guard for a cut: {error}") from None
        return cut

    def drop(self, cut: str, flows: Iterable[Flow]) -> None:
        known = self._flows.setdefault(cut, [])
        known.extend(flows)
        rules = "".join(
            f"block drop in quick proto tcp from {f.source[0]} port {f.source[1]}"
            f" to {f.destination[0]} port {f.destination[1]}\n"
            for f in known
        )
        _run([self._program, "-a", f"com.apple/{cut}", "-f", "-"], must=True, text=rules)

    def close(self, cut: str) -> None:
        for words in _pf_removal(cut):
            _run([self._program, *words], must=False)
        self._flows.pop(cut, None)
        self._guards.stop(cut)

    def left(self, home: Path) -> list[str]:
        if not self._root:
            return []
        listed = _run([self._program, "-a", "com.apple", "-s", "Anchors"], must=False)
        names = [line.strip().rpartition("/")[2] for line in listed]
        return [name for name in names if name.startswith(cut_prefix(home))]

    def clean(self, home: Path) -> list[str]:
        return _closed(self, home)


def _pf_removal(cut: str) -> tuple[tuple[str, ...], ...]:
    rules = ("-a", f"com.apple/{cut}", "-F", "rules")
    token = cut.rpartition(_TOKEN_MARK)[2]
    return (rules, ("-X", token)) if token else (rules,)


def _closed(firewall: Firewall, home: Path) -> list[str]:
    found = firewall.left(home)
    for cut in found:
        firewall.close(cut)
    return found


def firewall(platform: str = sys.platform) -> Firewall:
    """The packet filter of this kind of machine."""
    return PacketFilter() if platform == "darwin" else Iptables()


def _run(command: Sequence[str], must: bool, text: str | None = None) -> list[str]:
    """Returns the lines that it printed; pfctl prints its token beside its messages."""
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if must:
            raise OperationError(f"{command[0]}: {error}") from None
        return []
    if must and done.returncode:
        raise OperationError(f"{' '.join(command)}: {done.stderr.strip()}")
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]
