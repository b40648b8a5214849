"""Tries a job with another setting on this node, and has others do so (docs/protocols.md §4).

Its script runs in a process of its own, which gives way to all others, for a few steps. Nothing is
submitted, and nothing of it stays.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from elasticd.core.words.bulk import WantFirstStep
from elasticd.core.words.codec import UNKNOWN, from_plain, to_plain
from elasticd.core.words.requests.preflight import PreflightTold
from elasticd.counting import counted
from elasticd.errors import ElasticdError
from elasticd.preflight.needs import ScriptOffer
from elasticd.preflight.seen import NodeSeen
from elasticd.preflight.speeds import machines
from elasticd.preflight.trials import TABLE, Trial, TrialAsked, TrialSeen
from elasticd.settings.job import JobSpec
from elasticd.shell.children.trialrunning import TrialRunner
from elasticd.shell.control.answers import file_with, told_by, trained
from elasticd.shell.control.givingway import given_way
from elasticd.shell.control.server import Stream
from elasticd.shell.control.stepdesk import LEAST_BYTES, StepDesk
from elasticd.types import NodeId

START_SECONDS = 240.0
"""A trial has so long besides what is measured: for its start, its first steps and slow ones."""
MOST_MEASURED_SECONDS = 3600.0
_ANSWER_SECONDS = 30.0


@dataclass(slots=True)
class TrialDesk:
    """One node's. ``steps``: where job files come and processes run, as for a first step."""

    steps: StepDesk
    _trying: bool = field(default=False, init=False)

    async def look(
        self, offer: ScriptOffer, asked: TrialAsked, seen: Sequence[NodeSeen], busy: bool,
        stream: Stream,
    ) -> Mapping[str, Any]:  # fmt: skip
        """What the trial comes to on those nodes; no two on one machine at once."""
        wanted = WantFirstStep(
            {**offer.spec, TABLE: to_plain(asked)}, offer.archive_digest, busy=busy
        )
        turns, found = machines(seen), list[TrialSeen]()
        await stream.send(PreflightTold("taking in the job's files", send=True))
        async with self.steps.taken(offer, stream):
            for turn, nodes in enumerate(turns, 1):
                of = f", {turn} of {counted(len(turns), 'turn')}" if len(turns) > 1 else ""
                await stream.send(
                    PreflightTold(f"trying {asked.setting} on {', '.join(nodes)}{of}")
                )
                found += await asyncio.gather(*(self.told(node, wanted) for node in nodes))
        found.sort(key=lambda each: each.node)
        return {"trials": [to_plain(each) for each in found]}

    async def told(self, node: NodeId, wanted: WantFirstStep) -> TrialSeen:
        """What it comes to on ``node``."""
        late = _asked(wanted).seconds + START_SECONDS + _ANSWER_SECONDS
        try:
            own = partial(self._own, wanted)
            found = await told_by(self.steps.neighbours, node, wanted, TrialSeen, own, late)
        except TimeoutError:
            return TrialSeen(node, error=f"it has not told it in {late:g} s")
        except (ElasticdError, OSError, ValueError) as error:
            return TrialSeen(node, older=UNKNOWN in str(error), error=str(error))
        # What knows of no trial has made a first step, or has found the table wrong.
        older = found.trial is None and not found.trains
        older = older and (not found.error or f"{TABLE}: unknown" in found.error)
        return replace(found, node=node, older=older)

    async def serve(self, wanted: WantFirstStep) -> int:
        """A descriptor of what another node asks for; the caller closes it."""
        return file_with(await self._own(wanted))

    async def _own(self, wanted: WantFirstStep) -> TrialSeen:
        steps, me = self.steps, self.steps.neighbours.me
        if not wanted.busy and (job := trained(steps.trains)):
            return TrialSeen(me, trains=job)
        if (free := steps.free()) is not None and free < LEAST_BYTES:
            return TrialSeen(me, error=f"{free >> 20} MiB of memory are free: too few for a trial")
        if self._trying:
            return TrialSeen(me, error="it tries a job for somebody else just now: ask again")
        self._trying = True
        try:
            return TrialSeen(me, await self._tried(wanted))
        except (ElasticdError, OSError, LookupError, TypeError, ValueError) as error:
            if not wanted.busy and (job := trained(steps.trains)):
                return TrialSeen(me, trains=job)  # it began meanwhile
            return TrialSeen(me, error=str(error))
        finally:
            self._trying = False

    async def _tried(self, wanted: WantFirstStep) -> Trial:
        steps, asked = self.steps, _asked(wanted)
        spec = JobSpec.from_dict({k: v for k, v in wanted.spec.items() if k != TABLE})
        spec = replace(spec, track=None)
        async with steps.packed(wanted.digest) as data:
            with steps.scratch.folder() as folder, steps.variables(spec.job, folder) as own:

                def run(stop: threading.Event) -> Trial:
                    runner = TrialRunner(
                        spec, data, own, folder, min(asked.seconds, MOST_MEASURED_SECONDS),
                        stop=lambda: "it was stopped" if stop.is_set() else "", aside=True,
                        most_seconds=asked.seconds + START_SECONDS,
                    )  # fmt: skip
                    return runner.run(asked.setting)

                return await given_way(run, lambda: not wanted.busy and trained(steps.trains))


def is_trial(wanted: WantFirstStep) -> bool:
    """Whether it is for a trial, and not for the first step alone."""
    return TABLE in wanted.spec


def _asked(wanted: WantFirstStep) -> TrialAsked:
    asked: TrialAsked = from_plain(TrialAsked, wanted.spec[TABLE])
    return asked
