"""Run a script of the gallery on real daemons, break them, and judge what came of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticd.cli.submit import prepare
from elasticd.core.words.requests.checkpoints import VerifyCheckpoints
from elasticd.core.words.requests.jobs import CancelJob
from elasticd.errors import NoDaemonError, OperationError, ProtocolError
from elasticd.types import JobId
from tests.gallery.alone import SEARCHED, Alone
from tests.gallery.blows import Blow
from tests.gallery.cards import Card, as_toml
from tests.integration.alone import copy_kernels
from tests.integration.cluster import ENDED, Cluster

NODES = 3
PACE_SECONDS = 0.05
"""Of a step of a job that is broken, so that a kill meets all phases of a step."""
POLL_SECONDS = 0.1
STUCK_SECONDS = 180.0
"""Without any change of what status shows: it hangs. Compilers of three nodes take half a minute,
on a busy machine more."""
PARKED_SECONDS = 60.0
"""So long a job may be parked while every node lives."""
MAX_RECOVERIES = 15
"""Without a step between."""
RETURN_SECONDS = 10.0
STRIKE_SECONDS = 10.0
CREEP_SECONDS = 1.0
LAST_STEPS = 3
"""Behind the last blow, with all nodes."""
FREE = 1_000_000
"""A step that no script gets to."""
TOLD = ("node_unfit", "job_failed", "job_finished", "job_stops", "warning")
"""Events in which a user is told of a habit that can't hold."""
_SHOWN_LINES = 6
ROOM = 5
"""So many steps may begin between the one that a blow waits for and the blow."""


class Stuck(Exception):
    """A job hangs; the sentence says where."""


@dataclass
class Hold:
    """The file that says which steps may begin."""

    path: Path

    def until(self, step: int) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(str(step))
        fresh.replace(self.path)


@dataclass
class Watch:
    """Polls one job, and notices when it gets no further."""

    cluster: Cluster
    job: str
    _seen: tuple[Any, ...] = ()
    _changed: float = field(default_factory=time.monotonic)
    _parked: float | None = None
    _recoveries_at: tuple[int, int] = (0, 0)
    """The newest step, and how many recoveries there were by then."""

    def look(self) -> dict[str, Any]:
        """The job's status now.

        Raises:
            Stuck: it hangs, is parked though every node lives, or recovers for ever.
        """
        now = time.monotonic()
        status: dict[str, Any] = {}
        with contextlib.suppress(NoDaemonError, OperationError, ProtocolError):
            status = self.cluster.status(self.job)
        state, step = status.get("state", "not shown"), status.get("step", 0)
        where = f"{state} at step {step}: {status.get('reason')}"
        seen = (state, step, status.get("generation"), status.get("recoveries"))
        if seen != self._seen:
            self._seen, self._changed = seen, now
        elif now - self._changed > STUCK_SECONDS and state not in ENDED:
            raise Stuck(f"hangs, {where}")
        if state != "parked" or len(self.cluster.living()) < self.cluster.size:
            self._parked = None
        elif self._parked is None:
            self._parked = now
        elif now - self._parked > PARKED_SECONDS:
            raise Stuck(f"stays {where}")
        recoveries = status.get("recoveries", 0)
        if step > self._recoveries_at[0]:
            self._recoveries_at = step, recoveries
        elif recoveries - self._recoveries_at[1] > MAX_RECOVERIES:
            raise Stuck(f"recovers for ever, {where}")
        return status

    def until(self, step: int) -> dict[str, Any]:
        """Its status once ``step`` is committed and it runs, or it has ended."""
        while True:
            status = self.look()
            if status.get("state") in ENDED:
                return status
            if status.get("state") == "running" and status["ranks"] and status["step"] >= step:
                return status
            time.sleep(POLL_SECONDS)


@dataclass(frozen=True)
class Ended:
    """What a cluster says of a job that is over, or why it hangs."""

    status: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    struck: tuple[str, ...] = ()
    stuck: str = ""
    unverified: str = ""
    """What ``checkpoints verify`` found wrong."""


def run_on(
    cluster: Cluster, card: Card, folder: Path, blows: Sequence[Blow], kernels: Path
) -> Ended:
    """Submit the script, make the blows, wait for its end. ``kernels``: those compiled so far."""
    for node in cluster.nodes:
        copy_kernels(kernels, cluster.home / node)
    hold = Hold(folder / "hold")
    folder.mkdir(parents=True, exist_ok=True)
    hold.until(blows[0].step if blows else FREE)
    description = card.lay_out(folder / "job")
    environment = {**card.settings.get("job.env", {}), "PYTHONPATH": SEARCHED}
    if blows:
        environment |= {"GALLERY_HOLD": str(hold.path), "GALLERY_PACE": str(PACE_SECONDS)}
    spec, packed = prepare(description, [f"job.env={as_toml(environment)}"])
    job = cluster.client.submit(spec, packed)
    watch = Watch(cluster, job)
    struck: list[str] = []
    stuck = unverified = ""
    status: dict[str, Any] = {}
    try:
        for number, blow in enumerate(blows):
            if watch.until(blow.step)["state"] in ENDED:
                break
            later = blows[number + 1 :]
            last = later[0].step if later else card.steps - LAST_STEPS
            # It runs on, but not to its end: nodes may be slow, and the blow is to find it alive.
            hold.until(min(blow.step + ROOM, last))
            time.sleep(blow.after_seconds)
            before = watch.until(blow.step).get("generation")
            if strike(watch, blow):
                struck.append(str(blow))
                _creep(watch, hold, range(blow.step + 1, last + 1), before)
            hold.until(later[0].step if later else FREE)
        while (status := watch.look()).get("state") not in ENDED:
            time.sleep(POLL_SECONDS)
    except Stuck as error:
        stuck = str(error)
    finally:
        hold.until(FREE)
    events = cluster.events(job)
    if stuck:
        cluster.client.change(CancelJob(JobId(job)))  # it may have ended meanwhile
    elif status["state"] == "finished":
        unverified = verify(cluster, job)
    return Ended(status, events, tuple(struck), stuck, unverified)


def verify(cluster: Cluster, job: str) -> str:
    """The first replica that isn't what its manifest says, in words."""
    for frame in cluster.client.stream(VerifyCheckpoints(JobId(job), None)):
        if "ok" in frame and not frame["ok"]:
            return f"{frame['node']}: step {frame['step']}: {frame['reason']}"
    return ""


def _creep(watch: Watch, hold: Hold, steps: range, before: object) -> None:
    """Let one step after another begin until all nodes are in a world after generation ``before``:
    who joins does so between two steps, and what it doesn't know shows in those that follow."""
    for step in steps:
        hold.until(step)
        deadline = time.monotonic() + CREEP_SECONDS
        while time.monotonic() < deadline:
            status = watch.look()
            fresh = status.get("state") == "running" and status["generation"] != before
            whole = fresh and len(status["ranks"]) == watch.cluster.size
            if whole or status.get("state") in ENDED:
                return
            time.sleep(POLL_SECONDS)


def strike(watch: Watch, blow: Blow) -> bool:
    """Kill what the blow names, bring nodes back; False if the job has ended before, or there is
    nothing of that kind: a world of one has no reducer, and none joins it while it is held."""
    deadline = time.monotonic() + STRIKE_SECONDS
    while (status := watch.look()).get("state") not in ENDED and time.monotonic() < deadline:
        with contextlib.suppress(NoDaemonError, OperationError, ProtocolError):  # none answers now
            if status.get("ranks") and _strike(watch, blow, status):
                return True
        time.sleep(POLL_SECONDS)
    return False


def _strike(watch: Watch, blow: Blow, status: Mapping[str, Any]) -> bool:
    """Whether it was there to be killed."""
    cluster, job, ranks = watch.cluster, watch.job, status["ranks"]
    match blow.kind:
        case "trainer":
            return cluster.kill_trainer(job, blow.rank % len(ranks)) is not None
        case "reducer":
            return cluster.kill_reducer(job, blow.rank % len(ranks)) is not None
        case "main":
            step = status["step"]
            cluster.kill_node(ranks[0]["node"])
            deadline = time.monotonic() + RETURN_SECONDS
            while time.monotonic() < deadline:
                status = watch.look()
                if status.get("state") in ENDED or status.get("step", 0) > step:
                    break
                time.sleep(POLL_SECONDS)
        case "everything":
            cluster.kill_nodes(cluster.nodes)
    cluster.up()
    return True


def judge(card: Card, alone: Alone, ended: Ended) -> list[str]:
    """What is not as the card says, in sentences."""
    if ended.stuck:
        return [ended.stuck]
    status = ended.status
    reason = _one_line(str(status["reason"]))
    left_out = [_one_line(e["reason"]) for e in ended.events if e["kind"] == "node_unfit"]
    said = [_one_line(e["reason"]) for e in ended.events if e["kind"] in TOLD]
    # A job's end may be known before its event has come from the node that wrote it.
    said += [reason, str(status.get("exact_reason")), alone.words]
    match card.expect:
        case "same":
            return list(_differences(alone, ended)) + [f"left out: {r}" for r in left_out]
        case "left out":
            wrong = list(_differences(alone, ended))
            wrong += [f"left out: {r}" for r in left_out if not all(w in r for w in card.words)]
            if not left_out and any(e["kind"] == "growth_finished" for e in ended.events):
                wrong.append("who joined trains on")
            return wrong
        case "named":
            if any(all(word in text for word in card.words) for text in said):
                return []
            return list(_differences(alone, ended))
        case "refused" | "fails":
            wrong = []
            if status["state"] != "failed":
                wrong.append(f"is {status['state']} at step {status['step']}")
            elif not all(word in reason for word in card.words):
                wrong.append(f"fails without the words {card.words}: {reason}")
            if card.expect == "refused" and status["step"]:
                wrong.append(f"is refused only behind step {status['step']}")
            return wrong
    return []


def _differences(alone: Alone, ended: Ended) -> list[str]:
    status = ended.status
    if status["state"] != "finished":
        return [f"{status['state']} at step {status['step']}: {_one_line(status['reason'])}"]
    wrong = []
    if status["step"] != alone.step:
        wrong.append(f"ends with step {status['step']}, alone with {alone.step}")
    if status["digest"] != alone.digest:
        wrong.append(f"other bits than alone, and is called {_exact(status)}")
    elif not status["exact"]:
        wrong.append(f"is called {_exact(status)}")
    odd = [e for e in ended.events if e["kind"] == "fault_detected" and e["fault"] == "divergence"]
    wrong += [f"divergence: {event['evidence']}" for event in odd[:1]]
    if ended.unverified:
        wrong.append(f"checkpoints: {ended.unverified}")
    return wrong


def _exact(status: Mapping[str, Any]) -> str:
    return "exact" if status["exact"] else f"not exact: {status['exact_reason']}"


def _one_line(text: object) -> str:
    """The end of ``text``, where a traceback says what it is about."""
    return " / ".join(line.strip() for line in str(text).strip().splitlines()[-_SHOWN_LINES:])
