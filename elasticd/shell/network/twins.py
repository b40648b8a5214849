"""Two machines with the papers of one node, as one that was set up from the other's disk.

Each daemon names its run, and another run of a node takes the place of the one before: it was
started again, and that one comes no more. If it does come back, over and over, both are alive. Then
one of them is kept, and the other refused for as long as it calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import structlog

from elasticd.core.words.connections import CONNECTION, TwinFound
from elasticd.shell.network.hello import Hello, Refused
from elasticd.types import NodeId

RETURNS = 2
"""A run that has come back so often after another had its place is alive, and so is the other. What
was on its way when a daemon ended may seem to come back once."""
RECENT_SECONDS = 60.0
"""Returns of longer ago don't count."""
QUIET_SECONDS = 30.0
"""Whoever was refused last so long ago is gone: there is one machine again."""
HOLD_SECONDS = 10.0
"""For so long after the run that was kept has gone nobody takes its place but another one of the
same machine."""
CURE = (
    "On the one that is the copy stop the daemon, remove HOME/cluster, and join anew under another"
    " id: 'elasticctl cluster join TOKEN --node-id ID'"
)
_MOST_TAKEN = 1024
_MOST_RUNS = 8
"""Of one node that are remembered, the newest."""

log = structlog.get_logger(__name__)


class RefusedTwin(Refused):
    """It has the name of a node that another machine is."""

    def __init__(self, why: str, frame: dict[str, Any]) -> None:
        super().__init__(why)
        self.frame = frame
        """What it is told."""


@dataclass(slots=True)
class _Run:
    """What is known of one run of a node's daemon."""

    addresses: tuple[str, ...]
    at: float
    """When it said hello last."""
    replaced: bool = False
    """Another has had its place."""
    returns: list[float] = field(default_factory=list)
    """When it came back after that."""

    def recent(self, now: float) -> list[float]:
        return [at for at in self.returns if now - at < RECENT_SECONDS]


@dataclass(slots=True)
class _Quarrel:
    """Which run is kept, and when others were refused last."""

    kept: str
    refused: dict[str, float] = field(default_factory=dict)
    gone_at: float | None = None
    """Since when the one that is kept is not connected, as far as was looked."""


@dataclass(slots=True)
class Twins:
    """Of all nodes that say hello to this one."""

    clock: Callable[[], float] = time.monotonic
    _runs: dict[NodeId, dict[str, _Run]] = field(default_factory=dict)
    _quarrels: dict[NodeId, _Quarrel] = field(default_factory=dict)
    _own: dict[str, float] = field(default_factory=dict)
    """Where machines are with the name of this node, and when that was found last."""
    _taken: dict[str, None] = field(default_factory=dict)
    """At which addresses others have said that they take nodes; the newest come last."""
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def admit(self, hello: Hello, connected: str | None) -> None:
        """Find out whether it may take the place of the run that is ``connected``.

        Raises:
            RefusedTwin: another machine is that node.
        """
        now = self.clock()
        quarrel = self._quarrel(hello.node, now)
        run = self._note(hello, connected, now)
        if quarrel is None and len(run.returns) == RETURNS:
            quarrel = self._begin(hello.node, now)
        if quarrel is not None:
            self._judge(quarrel, hello, connected, now)

    def met_namesake(self, address: str) -> None:
        """A machine there has the name of this node."""
        self._own.pop(address, None)
        self._own[address] = self.clock()
        if len(self._own) > _MOST_RUNS:
            del self._own[next(iter(self._own))]

    def taken(self, others: Collection[str]) -> Collection[NodeId]:
        """Another node says at which addresses it takes others. Of some nodes that may be the
        machine that is refused here: from now on it is kept here, too, as all should keep one.

        That is for a daemon that has just been started, and may have met the other one first.
        Those that were there before go by who came first.
        """
        if self.clock() - self._began >= RECENT_SECONDS:
            return []
        for address in others:
            self._taken.pop(address, None)
            self._taken[address] = None
        while len(self._taken) > _MOST_TAKEN:
            del self._taken[next(iter(self._taken))]
        changed = []
        for node, quarrel in self._quarrels.items():
            theirs = [
                boot for boot in (quarrel.kept, *quarrel.refused) if self._is_at(node, boot, others)
            ]
            if theirs and quarrel.kept not in theirs:
                quarrel.refused[quarrel.kept] = quarrel.refused.pop(theirs[0])
                quarrel.kept, quarrel.gone_at = theirs[0], None
                log.warning(
                    "two machines are one node", node=node, reason=self._said(node, quarrel)
                )
                changed.append(node)
        return changed

    def told(self, me: NodeId, own: str) -> list[str]:
        """Of which nodes there are two, for people. ``own``: where this one is."""
        now = self.clock()
        said = []
        for node in sorted(self._quarrels):
            if (quarrel := self._quarrel(node, now)) is not None:
                said.append(self._said(node, quarrel))
        for address, at in self._own.items():
            if now - at < QUIET_SECONDS:
                others = f"this one at {own} and the one at {address}"
                said.append(f"two machines are {me}: {others}. {CURE}")
        return said

    def _note(self, hello: Hello, connected: str | None, now: float) -> _Run:
        runs = self._runs.setdefault(hello.node, {})
        if connected not in (None, hello.boot) and connected in runs:
            runs[connected].replaced = True
        run = runs.setdefault(hello.boot, _Run(hello.addresses, now))
        run.addresses, run.at = hello.addresses, now
        if run.replaced and connected != hello.boot:
            run.returns = [*run.recent(now), now][-RETURNS:]
        if len(runs) > _MOST_RUNS:
            quarrel = self._quarrels.get(hello.node)
            kept = {hello.boot, connected, quarrel.kept if quarrel is not None else None}
            oldest = min(runs.keys() - kept, key=lambda boot: runs[boot].at)
            del runs[oldest]
            if quarrel is not None:
                quarrel.refused.pop(oldest, None)
        return run

    def _is_at(self, node: NodeId, boot: str, addresses: Collection[str]) -> bool:
        return not set(addresses).isdisjoint(self._runs[node][boot].addresses)

    def _begin(self, node: NodeId, now: float) -> _Quarrel | None:
        """Who came first stays, unless others take another one. None: only one has come back."""
        alive = [boot for boot, run in self._runs[node].items() if run.recent(now)]
        if len(alive) < 2:
            return None
        taken = [boot for boot in alive if self._is_at(node, boot, self._taken)]
        first = taken[0] if len(taken) == 1 else alive[0]
        others = dict.fromkeys((boot for boot in alive if boot != first), now)
        quarrel = self._quarrels[node] = _Quarrel(first, others)
        log.warning("two machines are one node", node=node, reason=self._said(node, quarrel))
        return quarrel

    def _quarrel(self, node: NodeId, now: float) -> _Quarrel | None:
        """That goes on."""
        quarrel = self._quarrels.get(node)
        if quarrel is None or any(now - at < QUIET_SECONDS for at in quarrel.refused.values()):
            return quarrel
        self._end(node, quarrel.kept)
        return None

    def _end(self, node: NodeId, boot: str) -> None:
        """That run is the node."""
        del self._quarrels[node]
        runs = self._runs[node]
        self._runs[node] = {boot: _Run(runs[boot].addresses, runs[boot].at)}
        log.info("one machine is that node again", node=node, address=runs[boot].addresses[0])

    def _judge(self, quarrel: _Quarrel, hello: Hello, connected: str | None, now: float) -> None:
        node, boot = hello.node, hello.boot
        if boot not in quarrel.refused and self._is_kept_machine(quarrel, hello):
            quarrel.kept = boot  # its daemon may have been started again
        if quarrel.kept in (boot, connected):
            quarrel.gone_at = None
        elif quarrel.gone_at is None:
            quarrel.gone_at = now
        elif now - quarrel.gone_at >= HOLD_SECONDS:
            self._end(node, boot)
            return
        if boot != quarrel.kept:
            quarrel.refused[boot] = now
            at = self._runs[node][quarrel.kept].addresses[0]
            raise RefusedTwin(self._said(node, quarrel), CONNECTION.encode(TwinFound(at)))

    def _is_kept_machine(self, quarrel: _Quarrel, hello: Hello) -> bool:
        """By its addresses, where only the one that is kept has them."""
        at = hello.addresses
        others = any(self._is_at(hello.node, boot, at) for boot in quarrel.refused)
        return self._is_at(hello.node, quarrel.kept, at) and not others

    def _said(self, node: NodeId, quarrel: _Quarrel) -> str:
        runs = self._runs[node]
        kept, *refused = (runs[boot].addresses[0] for boot in (quarrel.kept, *quarrel.refused))
        both = f"the one at {kept} is taken, the one at {', '.join(dict.fromkeys(refused))} is not"
        return f"two machines are {node}: {both}. {CURE}"
