"""Looks at the node's children from outside, twice a second: what they use, and whether they run.

Of a process that has ended nothing can be asked any more, so what was seen last answers for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from elasticd.machinememory import MachineMemory, machine_memory
from elasticd.recovery.signatures import LastMemory
from elasticd.shell.children import room
from elasticd.shell.children.server import Child
from elasticd.shell.tasks import Tasks
from elasticd.supervision.birth import UNSEEN

LOOK_SECONDS = 0.4
STOPPED_SECONDS = 1.6
"""A child that is stopped for so long is hung; slices of a slowed one are far shorter."""
WAITED_SECONDS = 5.0
"""A disk answers sooner, a file server that is there too."""
PRESSED_SECONDS = 2.0
CRITICAL_SECONDS = 5.0
"""For so long what was said of a machine that kills counts for a process that ends."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a process. ``switches`` grows whenever it runs, be it for an instant."""

    stopped: bool
    switches: int
    virtual_bytes: int
    resident_bytes: int
    waits: bool = False
    """Its main thread is in a call of the kernel that a disk or a file server is to answer; where
    the system doesn't say so, never."""


@dataclass(slots=True)
class _Seen:
    look: Look
    still_since: float
    """Since when it is stopped and has not run."""
    group: Path | None
    kills_before: int
    memory: LastMemory
    waits_since: float | None = None
    """Since when it was found so at every look."""


class ChildWatch:
    """``children`` lists the living; ``stopped(child, seconds)`` is called once for each stop,
    ``pressed(low)`` now and then while the machine, or a memory cgroup that one of
    them is in, is about to run out of memory."""

    def __init__(
        self,
        children: Callable[[], Iterable[Child]],
        stopped: Callable[[Child, float], None],
        pressed: Callable[[room.LowMemory], None] = lambda low: None,
        pressure: Callable[[Iterable[Path]], room.LowMemory | None] = room.pressure,
        platform: str = sys.platform,
        memory: Callable[[], MachineMemory] = machine_memory,
    ) -> None:
        self._children, self._platform = children, platform
        # macOS says itself when memory is short. What it would let go is little there on a healthy
        # Mac too, which keeps what programs are not at work with in memory, compressed or not.
        self._memory = MachineMemory if platform == "darwin" else memory
        self._stopped, self._pressed = stopped, pressed
        self._pressure = pressure
        self._pressed_at = self._critical_at = float("-inf")
        self._critical = ""
        self._seen: dict[int, _Seen] = {}
        self._told: set[int] = set()
        self._tasks = Tasks("looking at this node's processes")

    def start(self) -> None:
        """Begin to look; needs a running loop."""
        self._tasks.keep("looking at this node's processes", self._run)

    def close(self) -> None:
        self._tasks.stop()

    def last_seen(self, pid: int, now: float | None = None) -> LastMemory | None:
        """What is known of the memory of a child that has just ended; forgets it. ``now``: by the
        monotonic clock, as in :meth:`look`."""
        seen = self._seen.pop(pid, None)
        self._told.discard(pid)
        if seen is None:
            return None
        available = self._memory().available_bytes
        before = seen.memory.available_bytes
        kills = room.kills(seen.group) - seen.kills_before
        now = time.monotonic() if now is None else now
        return replace(
            seen.memory,
            group_kills=max(0, kills),
            available_bytes=before if available is None else min(before, available),
            pressure=self._critical if now - self._critical_at < CRITICAL_SECONDS else "",
        )

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = loop.time()
            if now - before > STOPPED_SECONDS:
                self._forget_time(now)  # we were stopped ourselves, or starved
            before = now
            for child in list(self._children()):
                self.look(child, now)
            self.look_at_memory(now)

    def look_at_memory(self, now: float) -> None:
        """Look whether the machine, or a cgroup of the children, is short of it now."""
        groups = (seen.group for seen in self._seen.values() if seen.group is not None)
        short = self._pressure(groups)
        if short is None:
            return
        if short.critical:
            self._critical_at, self._critical = now, short.reason
        if now - self._pressed_at > PRESSED_SECONDS:
            self._pressed_at = now
            self._pressed(short)

    def _forget_time(self, now: float) -> None:
        for seen in self._seen.values():
            seen.still_since = now

    def look(self, child: Child, now: float) -> None:
        """Look at one child now."""
        found = look_at(child.pid, self._platform)
        if found is None:
            return
        known = self._seen.get(child.pid)
        if known is None:
            group = room.group_of(child.pid)
            known = _Seen(found, now, group, room.kills(group), LastMemory())
            self._seen[child.pid] = known
        elif not found.stopped or found.switches != known.look.switches:
            known.still_since = now
            self._told.discard(child.pid)
        if (group := room.group_of(child.pid)) not in (None, known.group):
            known.group, known.kills_before = group, room.kills(group)
        if not found.waits:
            known.waits_since = None
        elif known.waits_since is None:
            known.waits_since = now
        waited = now - known.waits_since if known.waits_since is not None else 0.0
        known.look = found
        known.memory = _memory(child.pid, found, known.group, self._memory())
        if waited >= WAITED_SECONDS:
            known.memory = replace(known.memory, waited_seconds=waited)
        still = now - known.still_since
        if found.stopped and still >= STOPPED_SECONDS and child.pid not in self._told:
            self._told.add(child.pid)
            self._stopped(child, still)


def look_at(
    pid: int,
    platform: str = sys.platform,
    process: Callable[[int], psutil.Process] = psutil.Process,
) -> Look | None:
    """None if it has ended. ``process`` looks at one where no file tells."""
    try:
        if platform == "linux":
            return _look_linux(pid)
        one = process(pid)
        with one.oneshot():
            status = one.status()
            memory, switches = one.memory_info(), one.num_ctx_switches()
        if status == psutil.STATUS_ZOMBIE:
            return None
        ran = switches.voluntary + switches.involuntary
        return Look(status == psutil.STATUS_STOPPED, ran, memory.vms, memory.rss)
    except (*UNSEEN, ValueError):
        return None


def _look_linux(pid: int) -> Look | None:
    fields = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        fields[name] = value.split()
    if fields["State"][0] == "Z" or "VmSize" not in fields:
        return None
    switches = int(fields["voluntary_ctxt_switches"][0])
    switches += int(fields["nonvoluntary_ctxt_switches"][0])
    virtual, resident = (int(fields[name][0]) << 10 for name in ("VmSize", "VmRSS"))
    state = fields["State"][0]
    return Look(state == "T", switches, virtual, resident, state == "D")


def _memory(pid: int, look: Look, group: Path | None, machine: MachineMemory) -> LastMemory:
    limit = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            soft, _ = resource.prlimit(pid, resource.RLIMIT_AS)
            limit = soft if soft != resource.RLIM_INFINITY else None
    used, most = room.use(group)
    return LastMemory(
        resident_bytes=look.resident_bytes,
        virtual_bytes=look.virtual_bytes,
        address_space_limit_bytes=limit,
        group_limit_bytes=most,
        group_used_bytes=used,
        available_bytes=machine.available_bytes or 0,
        total_bytes=0 if machine.available_bytes is None else machine.total_bytes,
    )
