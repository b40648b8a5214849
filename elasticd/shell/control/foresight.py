"""Has a new job do without nodes on which its preflight fails (docs/operating.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from elasticd.core.words.codec import from_plain
from elasticd.core.words.effects import Emit
from elasticd.core.words.records import JobRecord
from elasticd.errors import ProtocolError
from elasticd.preflight.foresight import fails, unfit_nodes
from elasticd.preflight.jobs import judged_job
from elasticd.preflight.needs import JobNeeds, JobSeen
from elasticd.preflight.nodes import CheckResult, judged
from elasticd.preflight.seen import REPORT_NAME, NodeSeen
from elasticd.recovery.fitness import Unfit, clipped
from elasticd.shell.control.answers import in_time
from elasticd.shell.control.preflightdesk import PreflightDesk
from elasticd.types import NodeId

FRESH_SECONDS = 2.0
"""A job waits so long for what nodes say now; of those that don't the stored result counts."""
COUNTS_SECONDS = 86_400.0
"""An older result is none."""


@dataclass(frozen=True, slots=True)
class Foresight:
    """One node's. ``emit`` writes an event."""

    desk: PreflightDesk
    emit: Callable[[Emit], None]

    async def foresee(
        self, record: JobRecord, waits: Callable[[], None]
    ) -> tuple[JobRecord, Callable[[], None]]:
        """The record of a job that is about to be known, with the nodes that it does without; and
        what tells of that, once it is known. Only of files that a preflight has looked at. It calls
        ``waits`` before nodes are asked."""
        kept = await asyncio.to_thread(self._kept, record)
        if kept is None:
            return record, _nothing
        needs, stored, age_seconds = kept
        able = [node for node in self.desk.nodes() if _trains(*self.desk.duty(node))]
        fresh, answered = list[CheckResult](), list[NodeId]()
        if fails(stored, able):
            waits()
            seen = await self._fresh(able, needs)
            answered = [job.node for _, job in seen]
            fresh = [*judged([one for one, _ in seen]), *judged_job(needs, [j for _, j in seen])]
        least = int(record.spec["world"]["min"])
        found = unfit_nodes(stored, fresh, answered, able, least)
        entries = tuple(
            Unfit(node, 1, clipped(found[node]), foreseen=True) for node in sorted(found)
        )
        wrong = sum(each.verdict == "fail" for each in stored)
        fields = {"wrong": wrong, "unfit": sorted(found), "age_seconds": round(age_seconds, 1)}

        def tell() -> None:
            reason = f"its preflight: {wrong} of {len(stored)} checks failed"
            self.emit(Emit(record.id, "preflight_finished", reason, None, fields))
            for entry in entries:
                said = {"culprit": entry.node}
                self.emit(Emit(record.id, "node_unfit", entry.reason, None, said))

        return replace(record, unfit=entries), tell

    def _kept(self, record: JobRecord) -> tuple[JobNeeds, tuple[CheckResult, ...], float] | None:
        """What was found of these very files, if that is not too old."""
        try:
            report: Any = json.loads((self.desk.home / REPORT_NAME).read_bytes())
            needs: JobNeeds = from_plain(JobNeeds, report["needs"])
            stored: tuple[CheckResult, ...] = from_plain(tuple[CheckResult, ...], report["checks"])
            age_seconds = self.desk.now() - float(report["time"])
        except (OSError, LookupError, TypeError, ValueError, ProtocolError):
            return None
        same = needs.archive == record.archive and needs.name == record.spec["job"]["name"]
        return (needs, stored, age_seconds) if same and 0 <= age_seconds < COUNTS_SECONDS else None

    async def _fresh(self, nodes: list[NodeId], needs: JobNeeds) -> list[tuple[NodeSeen, JobSeen]]:
        """What those say of themselves that do so soon."""

        async def ask(node: NodeId) -> tuple[NodeSeen, JobSeen] | None:
            seen, having = await asyncio.gather(self.desk.ask(node), self.desk.ask_job(node, needs))
            both = isinstance(seen, NodeSeen) and isinstance(having, JobSeen)
            return (seen, having) if both else None  # type: ignore[return-value]

        told = await in_time(map(ask, nodes), FRESH_SECONDS)
        return [each for each in told if each is not None]


def _trains(role: str, draining: bool) -> bool:
    return role == "train" and not draining


def _nothing() -> None:
    pass
