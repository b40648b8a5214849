"""Looks at all nodes before a job runs, and keeps what was found (docs/protocols.md §3).

Each node says what it is; what that means is judged in elasticd/preflight.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import structlog

from elasticd.core.words.bulk import (
    OfPreflight,
    WantDoor,
    WantFacts,
    WantFirstStep,
    WantJobFacts,
    WantLinks,
    WantSpeed,
)
from elasticd.core.words.codec import UNKNOWN, to_plain
from elasticd.core.words.requests.preflight import PreflightTold, RunPreflight
from elasticd.counting import counted
from elasticd.errors import ElasticdError, OperationError, UsageError
from elasticd.preflight.firststeps import StepSeen, judged_steps
from elasticd.preflight.jobs import judged_job, judged_world, least_bytes
from elasticd.preflight.links import LinkSeen, Pair, judged_links, rounds
from elasticd.preflight.needs import JobNeeds, JobSeen, NeedsMet, ScriptOffer
from elasticd.preflight.nodes import SLOWING, CheckResult, answers, judged
from elasticd.preflight.seen import (
    LINKS_NAME,
    REPORT_NAME,
    SPEEDS_NAME,
    NodeFacts,
    NodeSeen,
    NodeUnseen,
)
from elasticd.preflight.speeds import USUAL_SECONDS, SpeedSeen, judged_speeds, machines
from elasticd.preflight.trials import TrialAsked
from elasticd.settings.job import JobSpec
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.answers import file_with, told_by
from elasticd.shell.control.linkdesk import LinkDesk
from elasticd.shell.control.ownfacts import OwnFacts
from elasticd.shell.control.ownneeds import OwnNeeds
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.control.speeddesk import FRESH_SECONDS, SpeedDesk
from elasticd.shell.control.stepdesk import StepDesk
from elasticd.shell.control.trialdesk import TrialDesk, is_trial
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.durable import write_whole
from elasticd.types import NodeId, NodeRole

_NAMES = {None: REPORT_NAME, "links": LINKS_NAME, "speed": SPEEDS_NAME}
_COMMANDS = {REPORT_NAME: "preflight", LINKS_NAME: "check-network", SPEEDS_NAME: "calibrate"}
ANSWER_SECONDS = 20.0
"""A node that has not said by then what it is doesn't answer."""
JOB_SECONDS = 60.0
"""So one that has not said what it has of a job's needs."""
_SHORT_SECONDS = 2.0
"""For so long a preflight measures it."""
_FACTS_BYTES = 1 << 20

log = structlog.get_logger(__name__)

Tell = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PreflightDesk:
    """One node's.

    Attributes:
        away: nodes that are known and not here.
        duty: what a node does, and whether it is drained.
    """

    home: Path
    neighbours: Neighbours
    own: OwnFacts
    own_needs: OwnNeeds
    links: LinkDesk
    speeds: SpeedDesk
    steps: StepDesk
    trials: TrialDesk
    away: Callable[[], Sequence[NodeId]]
    duty: Callable[[NodeId], tuple[NodeRole, bool]]
    now: Callable[[], float] = unix_seconds

    def handlers(self) -> Handlers:
        return on(RunPreflight, self.run)

    async def serve(self, wanted: OfPreflight) -> int:
        """A descriptor of what another node asks for; the caller closes it."""
        match wanted:
            case WantFacts():
                return file_with(await self._own_facts())
            case WantJobFacts(needs):
                return file_with(await self._had(needs))
            case WantSpeed():
                return await self.speeds.serve(wanted)
            case WantFirstStep() if is_trial(wanted):
                return await self.trials.serve(wanted)
            case WantFirstStep():
                return await self.steps.serve(wanted)
            case WantLinks() | WantDoor():
                return await self.links.serve(wanted)
            case _:
                assert_never(wanted)

    async def run(self, request: RunPreflight, stream: Stream) -> Mapping[str, Any]:
        """Raises OperationError: nothing is stored."""
        path = self.home / _NAMES[request.only]
        if request.last:
            return await asyncio.to_thread(self._stored, path)

        async def tell(doing: str) -> None:
            await stream.send(PreflightTold(doing))

        offer = request.script
        if offer is not None and offer.trial is not None:
            return await self._tries(offer, offer.trial, bool(request.busy), stream)
        report = self._report(await self._look(request, tell, stream), request.job)
        kept = dict(report)
        if request.job is not None:
            kept["needs"] = to_plain(request.job)
        try:
            await asyncio.to_thread(write_whole, path, json.dumps(kept).encode())
        except OSError as error:  # it is told all the same
            log.warning("the report of the preflight is not kept", reason=str(error))
        return report

    async def _tries(
        self, offer: ScriptOffer, trial: TrialAsked, busy: bool, stream: Stream
    ) -> Mapping[str, Any]:
        """What the job comes to with another setting, on all nodes that train. Nothing is kept."""
        _spec(offer)
        nodes = [node for node in self.nodes() if self.duty(node) == ("train", False)]
        asked = await asyncio.gather(*(self.ask(node) for node in nodes))
        seen = [each for each in asked if isinstance(each, NodeSeen)]
        return await self.trials.look(offer, trial, seen, busy, stream)

    async def _look(self, request: RunPreflight, tell: Tell, stream: Stream) -> list[CheckResult]:
        nodes = self.nodes()
        await tell(f"asking {counted(len(nodes), 'node')} what they are")
        asked = await asyncio.gather(*(self.ask(node) for node in nodes))
        seen = [each for each in asked if isinstance(each, NodeSeen)]
        unseen = [each for each in asked if isinstance(each, NodeUnseen)]
        # Who left while it was asked has been told of.
        unseen += [NodeUnseen(node, away=True) for node in self.away() if node not in nodes]
        job: list[CheckResult] = []
        if request.job is not None:
            await tell(f"asking them what they have for {request.job.name}")
            having, silent = await self._having(request.job, seen)
            unseen += silent
            seen = [each for each in seen if each.node not in {one.node for one in silent}]
            job = [*judged_job(request.job, having)]
            if request.script is not None:
                able = _able(having, job)
                job += await self._steps(request, able, seen, stream)
        found = [*answers(seen, unseen)]
        if request.only is None:
            found += judged(seen)
        if request.only == "speed":
            found += judged(seen, SLOWING)
        if request.only != "links":
            found += judged_speeds(await self._speeds(seen, request, tell), self.now())
        if request.job is not None:
            found += job
            wrong = {NodeId(each.where) for each in found if each.verdict == "fail"}
            found += judged_world(request.job, having, wrong)
        if request.only != "speed":
            found += judged_links(await self._links(seen, bool(request.busy), tell))
        return found

    async def _having(
        self, needs: JobNeeds, seen: Sequence[NodeSeen]
    ) -> tuple[list[JobSeen], list[NodeUnseen]]:
        """What those have for a job that say what they are, and which don't."""

        told = await asyncio.gather(*(self.ask_job(each.node, needs) for each in seen))
        return (
            [each for each in told if isinstance(each, JobSeen)],
            [each for each in told if isinstance(each, NodeUnseen)],
        )

    async def ask_job(self, node: NodeId, needs: JobNeeds) -> JobSeen | NodeUnseen:
        """What a node has of a job's needs."""
        try:
            wanted, own = WantJobFacts(needs), partial(self._had, needs)
            facts = await told_by(
                self.neighbours, node, wanted, NeedsMet, own, JOB_SECONDS, _FACTS_BYTES
            )
        except (ElasticdError, OSError, ValueError) as error:
            return _unseen(node, error, JOB_SECONDS)
        return JobSeen(node, facts, *self.duty(node))

    async def _steps(
        self,
        request: RunPreflight,
        able: Sequence[JobSeen],
        seen: Sequence[NodeSeen],
        stream: Stream,
    ) -> list[CheckResult]:
        """What the job's first step comes to on those; no two on one machine at once."""
        needs, offer = request.job, request.script
        if needs is None or offer is None or not able:
            return []
        spec, found = _spec(offer), list[StepSeen]()
        had = {each.node: each.facts for each in able}
        turns = machines([each for each in seen if each.node in had])
        await stream.send(PreflightTold(f"taking in the files of {needs.name}", send=True))
        async with self.steps.taken(offer, stream):
            for turn, nodes in enumerate(turns, 1):
                of = f"{turn} of {counted(len(turns), 'turn')}"
                await stream.send(PreflightTold(f"making the first step of {needs.name}, {of}"))
                wanted = [
                    (
                        node,
                        WantFirstStep(
                            offer.spec,
                            offer.archive_digest,
                            least_bytes(needs, had[node])[0],
                            bool(request.busy),
                        ),
                    )
                    for node in nodes
                ]
                told = await asyncio.gather(*(self.steps.told(*each) for each in wanted))
                found += [each for each in told if each is not None]
        found.sort(key=lambda each: each.node)
        return [*judged_steps(found, exact=spec.world.require_exact)]

    async def _speeds(
        self, seen: Sequence[NodeSeen], request: RunPreflight, tell: Tell
    ) -> list[SpeedSeen]:
        """Of those whose version can say it; no two on one machine at once."""
        wanted = WantSpeed(_SHORT_SECONDS, bool(request.busy), FRESH_SECONDS)
        if request.only == "speed":
            wanted = WantSpeed(request.seconds or USUAL_SECONDS, bool(request.busy))
        turns, found = machines(seen), list[SpeedSeen]()
        for turn, nodes in enumerate(turns, 1):
            await tell(f"measuring how fast nodes compute, {turn} of {counted(len(turns), 'turn')}")
            told = await asyncio.gather(*(self.speeds.told(node, wanted) for node in nodes))
            found += [each for each in told if each is not None]
        return sorted(found, key=lambda each: each.node)

    async def _links(self, seen: Sequence[NodeSeen], busy: bool, tell: Tell) -> list[LinkSeen]:
        """Those between nodes that answer, both ways, each node with one other at a time."""
        found: list[LinkSeen] = []
        turns = rounds([each.node for each in seen])
        for turn, pairs in enumerate(turns, 1):
            await tell(f"measuring links, {turn} of {counted(len(turns), 'turn')}")
            for both in await asyncio.gather(*(self._pair(pair, busy) for pair in pairs)):
                found += both
        return sorted(found, key=lambda each: (each.node, each.peer))

    async def _pair(self, pair: Pair, busy: bool) -> list[LinkSeen]:
        one, other = pair
        there = await self.links.measured(one, other, busy=busy)
        return there + await self.links.measured(other, one, busy=busy)

    def nodes(self) -> list[NodeId]:
        """Those that are here."""
        return sorted({self.neighbours.me, *self.neighbours.living()})

    async def _own_facts(self) -> NodeFacts:
        return await asyncio.to_thread(self.own.begun())

    async def _had(self, needs: JobNeeds) -> NeedsMet:
        return await asyncio.to_thread(self.own_needs.read, needs)

    async def ask(self, node: NodeId) -> NodeSeen | NodeUnseen:
        """What a node is, and how far its clock is ahead: it says its time last."""
        try:
            wanted, own = WantFacts(), self._own_facts
            facts = await told_by(
                self.neighbours, node, wanted, NodeFacts, own, ANSWER_SECONDS, _FACTS_BYTES
            )
        except (ElasticdError, OSError, ValueError) as error:
            return _unseen(node, error, ANSWER_SECONDS)
        ahead = 0.0 if node == self.neighbours.me else facts.unix - self.now()
        return NodeSeen(node, facts, ahead)

    def _report(self, found: Sequence[CheckResult], job: JobNeeds | None) -> dict[str, Any]:
        return {
            "asked": self.neighbours.me,
            "job": None if job is None else job.name,
            "time": self.now(),
            "wrong": sum(each.verdict == "fail" for each in found),
            "checks": [asdict(each) for each in found],
        }

    def _stored(self, path: Path) -> dict[str, Any]:
        command = f"'elasticctl {_COMMANDS[path.name]}'"
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise OperationError(
                f"nothing was found on {self.neighbours.me} yet: run {command}"
            ) from None
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("checks"), list):
            raise OperationError(f"{path} is damaged: run {command} again")
        found.pop("needs", None)
        return found


def _able(having: Sequence[JobSeen], found: Sequence[CheckResult]) -> list[JobSeen]:
    """Those that train, and have what the job needs."""
    wrong = {each.where for each in found if each.verdict == "fail"}
    return [each for each in having if each.trains and each.node not in wrong]


def _spec(offer: ScriptOffer) -> JobSpec:
    try:
        return JobSpec.from_dict(offer.spec)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"bad job: {error}") from None


def _unseen(node: NodeId, error: Exception, seconds: float) -> NodeUnseen:
    if isinstance(error, TimeoutError):
        return NodeUnseen(node, reason=f"nothing came for {seconds:g} s")
    return NodeUnseen(node, older=UNKNOWN in str(error), reason=str(error))
