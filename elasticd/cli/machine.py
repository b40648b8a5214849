"""What ``elasticctl doctor`` sees of this machine, its clock, and what was left behind on it.

It asks no daemon, and changes nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from elasticd import systemtools
from elasticd.cli.mac.probes import probe_named
from elasticd.cli.mac.running import run_probe
from elasticd.counting import counted
from elasticd.errors import ElasticdError
from elasticd.pasting import pasted, quoted
from elasticd.preflight.finding import ProbeFinding, warned
from elasticd.preflight.nodes import (
    MOST_SKEW_SECONDS,
    NODE_CHECKS,
    SET_CLOCK,
    CheckResult,
)
from elasticd.preflight.seen import REPORT_NAME, NodeFacts, NodeSeen
from elasticd.settings import config
from elasticd.shell.chaos.firewall import Firewall, firewall
from elasticd.shell.children.server import ROSTER_NAME
from elasticd.shell.children.temporary import LINKS_PREFIX, dangling
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.ownfacts import OwnFacts
from elasticd.shell.storage import papers
from elasticd.shell.storage.health import HomeFinding
from elasticd.shell.storage.records import JOURNAL_NAME
from elasticd.supervision.roster import ChildRoster
from elasticd.systemtools import Ask
from elasticd.types import NodeId

ALONE = ("mlx", "memory", "disk", "power", "sleep", "energy", "heat", "firewall")
"""The checks of a preflight that need no other node."""
HERE = "this machine"
PROBED = {"mlx": "system", "gpu": "system", "sleep": "sleep", "firewall": "firewall"}
"""Which probe of ``--mac`` says more of it."""
_GPU_SECONDS = 15.0
_REPORT_SECONDS = 24 * 3600.0
"""So long the clock that a preflight has seen says something of the one of now."""


def gpu() -> ProbeFinding:
    """Whether MLX can be loaded, and finds a GPU: in a process of its own, as it may crash."""
    probe = probe_named("system")
    assert probe is not None
    return run_probe(replace(probe, seconds=_GPU_SECONDS), None).finding


def facts(own: OwnFacts) -> NodeFacts:
    """What a machine is and how it fares, now."""
    return own.begun()()


def _unlink(folder: Path) -> str:
    """What removes links of ours that lead nowhere, as a cure; there may be hundreds."""
    name = f'"{LINKS_PREFIX}*"'
    find = f"{pasted('find -L', f'{folder}/')} -maxdepth 1 -name {name} -type l -exec rm {{}} +"
    return f"Nothing has to be done. To remove them: {quoted(find)}"


@dataclass(frozen=True, slots=True)
class Machine:
    """How it is looked at.

    Attributes:
        ask: has one of macOS's tools say something.
        facts: what it is and how it fares.
        gpu: what MLX finds on a Mac.
        links: where ranks have short names for folders.
        cuts: the packet filter, with what chaos may have left there.
        now: its clock.
    """

    system: str = sys.platform
    ask: Ask = systemtools.printed
    gpu: Callable[[], ProbeFinding] = gpu
    links: Path = Path("/tmp")
    cuts: Firewall | None = None
    now: Callable[[], float] = unix_seconds
    facts: Callable[[OwnFacts], NodeFacts] = facts

    def checked(self, home: Path, probes: Sequence[str] = ()) -> list[CheckResult]:
        """What is judged of it, well or not; not what one of these ``probes`` tries out."""
        # Path.exists raises where a folder above is closed.
        there = next(each for each in (home, *home.absolute().parents) if os.path.exists(each))
        own = OwnFacts(there, lambda: "", tuple, self.system, self.ask)
        me = NodeSeen(NodeId(HERE), self.facts(own))
        checks = [each for each in NODE_CHECKS if each.name in ALONE]
        found = [
            CheckResult.of(each.name, HERE, each.judge(me, [me]))
            for each in checks
            if PROBED.get(each.name) not in probes
        ]
        if self.system == "darwin" and PROBED["gpu"] not in probes:
            found.append(CheckResult.of("gpu", HERE, self.gpu()))
        if links := dangling(self.links):
            value = f"{counted(len(links), 'link')} to folders that are gone: {links[0]}"
            found.append(CheckResult.of("leftovers", HERE, warned(value, _unlink(self.links))))
        return found

    def of_home(self, home: Path, start: str, *, running: bool) -> Iterator[HomeFinding]:
        """Its clock, by what is in a home, and what a daemon has left that is gone. ``start``: the
        command that starts it."""
        yield from self._certificate(home)
        yield from self._journal(home)
        if running:
            yield from self._skew(home)
        else:
            yield from self._left(home, start)

    def _certificate(self, home: Path) -> Iterator[HomeFinding]:
        if not papers.is_member(home):
            return
        # Loaded only here: other commands do without its cryptography.
        from elasticd.trust import authority

        path, _ = papers.shown(home)
        try:
            begins, ends = authority.good_from_until(path.read_bytes())
        except (OSError, ElasticdError):
            return  # said already
        now = datetime.fromtimestamp(self.now(), UTC)
        if now < begins:
            cause = f"the certificate is valid from {begins:%Y-%m-%d} on"
        elif now > ends:
            cause = f"the certificate was valid until {ends:%Y-%m-%d}"
        else:
            return
        cause += f", and this machine's clock says {now:%Y-%m-%d}: no other node takes it"
        yield HomeFinding(path, cause, SET_CLOCK)

    def _journal(self, home: Path) -> Iterator[HomeFinding]:
        path = home / JOURNAL_NAME
        try:
            ahead = path.stat().st_mtime - self.now()
        except OSError:
            return  # said elsewhere
        if ahead > MOST_SKEW_SECONDS:
            cause = (
                f"it was written {ahead:.0f} s from now: this machine's clock is behind, or was"
                " ahead then"
            )
            yield HomeFinding(path, cause, SET_CLOCK, wrong=False)

    def _skew(self, home: Path) -> Iterator[HomeFinding]:
        """As the last preflight has seen it that was asked for here."""
        path = home / REPORT_NAME
        try:
            told = json.loads(path.read_bytes())
            me, then = config.load(home).node_id, float(told["time"])
            found = [CheckResult(**each) for each in told["checks"]]
        except (OSError, ElasticdError, ValueError, TypeError, LookupError):
            return
        if not 0 <= self.now() - then < _REPORT_SECONDS:
            return
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(then))
        for each in found:
            if (each.check, each.where) == ("clock", me) and each.verdict != "pass":
                cause = f"the preflight of {when} found the clock {each.value}"
                yield HomeFinding(path, cause, each.cure, wrong=each.verdict == "fail")

    def _left(self, home: Path, start: str) -> Iterator[HomeFinding]:
        path = home / ROSTER_NAME
        if living := ChildRoster(path).living():
            named = ", ".join(f"{each.role} {each.pid}" for each in living)
            kill = quoted("kill -9", *(str(each.pid) for each in living))
            yield HomeFinding(
                path,
                f"no daemon runs, and processes that it has started do: {named}",
                f"Start it, which takes them over or ends them: {quoted(start)}. Or: {kill}",
            )
        for cut in (self.cuts or firewall()).left(home):
            yield HomeFinding(
                home,
                f"no daemon runs, and a cut of 'elasticctl chaos' is still in force: {cut}",
                "Start the daemon, which takes it away, by the account that ran chaos, root:"
                f" {quoted(start)}",
            )
