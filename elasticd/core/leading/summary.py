"""What ``status`` shows of a running job, as its leader knows it, and when it tells that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from elasticd.core.leading.office import Office
from elasticd.core.leading.stepparts import step_seconds
from elasticd.core.words.effects import Reached
from elasticd.core.words.limits import clipped
from elasticd.core.words.records import World
from elasticd.counting import counted
from elasticd.types import JobId, NodeId


@dataclass(slots=True)
class Bulletin:
    """When the members of the view are told how the job is: soon after anything has changed."""

    due: bool = True
    told_at: float = 0.0
    parked: bool = False
    """It was told that too few members are there."""
    said: tuple[str, str] = ("", "")
    """The state and its reason that were told last."""

    def compare(self, state: str, why: str) -> None:
        """Time alone may have changed them."""
        if (state, why) != self.said:
            self.said = state, why
            self.changed()

    def changed(self) -> None:
        """There is something new to tell."""
        self.due = True

    def soonest(self, office: Office) -> float:
        """When it may be told again."""
        return self.told_at + office.ctx.timing.summary_seconds

    def may_tell(self, office: Office) -> bool:
        """Whether it is time; if so it counts as told."""
        if not self.due or office.ctx.now < self.soonest(office):
            return False
        self.due, self.told_at = False, office.ctx.now
        return True

    def at_once(self) -> None:
        """Tell it now, whatever was told before."""
        self.due, self.told_at = True, 0.0

    def note(self, office: Office, parked: bool, why: str) -> None:
        """Say so, once, when too few members are there."""
        if parked and not self.parked:
            least = counted(office.spec.world.min, "member is", "members are")
            office.ctx.emit("job_parked", why or f"fewer than {least} there", office.job)
        self.parked = parked


def fields(office: Office, state: str, why: str) -> dict[str, Any]:
    """What members keep to show. ``why``: what it waits for, if it does not train."""
    course, newest, world = office.course, office.newest, office.world
    speeds = [p.steps_per_second for p in course.progress.values() if p.steps_per_second > 0]
    stored = newest if course.committed else None
    return {
        "state": state,
        "reason": why or None,
        "generation": world.generation.counter if world is not None else 0,
        "step": course.committed,
        "loss": course.loss if course.committed else None,
        "values": {n: {"step": v.step, "value": v.value} for n, v in course.named.items()},
        "steps_per_second": round(min(speeds), 3) if speeds else 0.0,
        "recoveries": office.account.recoveries,
        "lost_steps": office.account.lost_steps,
        "exact": not office.exactness.reason,
        "exact_reason": office.exactness.reason or None,
        "updates_on_cpu": office.exactness.on_cpu.anywhere if world is None else world.on_cpu,
        "bytes_per_step": _most(office, "bytes_per_step"),
        "fast_bytes_per_step": _most(office, "fast_bytes_per_step"),
        "digest": stored.digest if stored is not None else None,
        "digest_step": stored.step if stored is not None else None,
        "quarantined": list(office.trust.quarantined),
        **_of_script(office),
    }


def recalled(worlds: Iterable[World], reached: Iterable[Reached]) -> dict[JobId, dict[str, Any]]:
    """Of each job what a daemon that begins remembers of its last world, until a leader tells."""
    furthest = {(each.job, each.generation): each.step for each in reached}
    return {
        world.job: {
            "generation": world.generation.counter,
            "step": max(world.step, furthest.get((world.job, world.generation), 0)),
            "recoveries": world.recoveries,
            "lost_steps": world.lost_steps,
        }
        for world in worlds
    }


def _of_script(office: Office) -> dict[str, Any]:
    """Of a plain job: how its script is."""
    if office.spec.plain is None:
        return {}
    return {
        "restarts": office.course.restarts,
        "script_seconds": round(_most(office, "script_seconds"), 1),
    }


def _most(office: Office, metric: str) -> int:
    """What the member tells that tells the most."""
    return max((p.metrics.get(metric, 0) for p in office.course.progress.values()), default=0)


def reason(office: Office, why: str, *, trains: bool) -> str:
    """What a job waits for, ``why``; or, while it ``trains``, which step breaks it again and again,
    since that one is yet to come."""
    ladder = office.trust.ladder
    if trains:
        return clipped("; ".join(filter(None, (ladder.told, ladder.said))))
    return clipped("; ".join(filter(None, (ladder.told, why)))) if office.tries.resting else why


def ranks(office: Office, world: World) -> list[dict[str, Any]]:
    """One entry per rank of ``status --json``."""
    course = office.course
    dealt = world.shares_now if course.committed <= world.step else world.shares
    told = [course.progress.get(node) for node in world.members]
    spent = step_seconds([own.seconds if own else {} for own in told])
    return [
        _rank(office, world, rank, node, dealt[rank]) | {"seconds": spent[rank]}
        for rank, node in enumerate(world.members)
    ]


def _rank(
    office: Office, world: World, rank: int, node: NodeId, share: tuple[tuple[int, int], ...]
) -> dict[str, Any]:
    status, own = office.statuses.get(node), office.course.progress.get(node)
    return {
        "rank": rank,
        "node": node,
        "pid": status.trainer.pid if status and status.trainer else None,
        "reducer_pid": status.reducer_pid if status else None,
        "step": own.step if own else world.step,
        "grains": sum(end - start for start, end in share),
        "grain_seconds": round(own.grain_seconds, 4) if own else 0.0,
        "active_bytes": own.active_bytes if own else 0,
        "cached_bytes": own.cached_bytes if own else 0,
        "peak_bytes": own.peak_bytes if own else 0,
    }
