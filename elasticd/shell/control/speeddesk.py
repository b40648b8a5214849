"""Measures how fast this node computes, and has others measure themselves (docs/protocols.md §4).

In a process of its own, which gives way to all others. What was found is kept in the home.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog

from elasticd.core.words.bulk import WantSpeed
from elasticd.core.words.codec import UNKNOWN, from_plain, to_plain
from elasticd.errors import ElasticdError, OperationError
from elasticd.preflight.seen import SPEED_NAME
from elasticd.preflight.speeds import LEAST_SECONDS, MOST_SECONDS, SIDE, SpeedSeen, speed_of
from elasticd.shell.children.environment import Variables, of_child
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.answers import file_with, told_by, trained
from elasticd.shell.control.givingway import tried_aside
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.durable import write_whole
from elasticd.types import JobId, NodeId

MODULE = "elasticd.train.calibrating"
FRESH_SECONDS = 86_400.0
"""What was measured within a day need not be measured anew."""
_START_SECONDS = 40.0
"""Until MLX is there, and for products that take longer than they have."""
_ANSWER_SECONDS = 10.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class SpeedDesk:
    """One node's.

    Attributes:
        daemons: the daemon's own variables.
        trains: the jobs that have processes here now.
        program: what measures, without its arguments: the side and the seconds.
    """

    home: Path
    neighbours: Neighbours
    daemons: Variables
    trains: Callable[[], Sequence[JobId]]
    program: tuple[str, ...] = (sys.executable, "-P", "-m", MODULE)
    now: Callable[[], float] = unix_seconds
    _measuring: bool = field(default=False, init=False)

    async def serve(self, wanted: WantSpeed) -> int:
        """A descriptor of what another node asks for; the caller closes it."""
        return file_with(await self._own(wanted))

    async def told(self, node: NodeId, wanted: WantSpeed) -> SpeedSeen | None:
        """How fast ``node`` computes; None: its version can't say."""
        late = _within(wanted.seconds) + _START_SECONDS + _ANSWER_SECONDS
        try:
            own = partial(self._own, wanted)
            return replace(
                await told_by(self.neighbours, node, wanted, SpeedSeen, own, late), node=node
            )
        except TimeoutError:
            return SpeedSeen(node, error=f"it has not told it in {late:g} s")
        except (ElasticdError, OSError, ValueError) as error:
            return None if UNKNOWN in str(error) else SpeedSeen(node, error=str(error))

    async def _own(self, wanted: WantSpeed) -> SpeedSeen:
        me = self.neighbours.me
        known = await asyncio.to_thread(self._kept) if wanted.fresh_seconds > 0 else None
        if known is not None and 0 <= self.now() - known.unix < wanted.fresh_seconds:
            return known
        job = "" if wanted.busy else trained(self.trains)
        if job:
            return SpeedSeen(me, trains=job) if known is None else known
        if self._measuring:
            return SpeedSeen(me, error="it is being measured for somebody else: ask again")
        self._measuring = True
        try:
            found = await self._measured(_within(wanted.seconds), wanted.busy)
        finally:
            self._measuring = False
        if not wanted.busy and (job := trained(self.trains)):
            return SpeedSeen(me, trains=job)  # it began meanwhile
        if not found.error:
            await asyncio.to_thread(self._keep, found)
        return found

    async def _measured(self, seconds: float, busy: bool) -> SpeedSeen:
        command = [*self.program, str(SIDE), str(seconds)]
        me, late = self.neighbours.me, seconds + _START_SECONDS
        own = of_child(self.daemons, "")
        try:
            told = json.loads(
                await tried_aside(
                    command, own, self.home, late, lambda: not busy and trained(self.trains)
                )
            )
            times = [float(each) for each in told["seconds"]]
            return speed_of(me, str(told["device"]), times, self.now())
        except OperationError as error:
            return SpeedSeen(me, error=str(error))
        except (LookupError, TypeError, ValueError):
            return SpeedSeen(me, error="what measures it prints something else")

    def _kept(self) -> SpeedSeen | None:
        found = kept_speed(self.home)
        return None if found is None else replace(found, node=self.neighbours.me)

    def _keep(self, found: SpeedSeen) -> None:
        try:
            write_whole(self.home / SPEED_NAME, json.dumps(to_plain(found)).encode())
        except OSError as error:  # it is told all the same
            log.warning("how fast this node computes is not kept", reason=str(error))


def kept_speed(home: Path) -> SpeedSeen | None:
    """What was found there last, if that can be read."""
    try:
        found: SpeedSeen = from_plain(SpeedSeen, json.loads((home / SPEED_NAME).read_bytes()))
    except (ElasticdError, OSError, ValueError):
        return None
    return found if found.gflops > 0 else None


def _within(seconds: float) -> float:
    return min(max(seconds, LEAST_SECONDS), MOST_SECONDS)
