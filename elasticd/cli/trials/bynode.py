"""One trial on each node of a cluster: its daemons run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from elasticd.archive import Archive
from elasticd.client.client import Client
from elasticd.client.queue import send_archive
from elasticd.core.words.codec import from_plain
from elasticd.core.words.requests.preflight import RunPreflight
from elasticd.errors import OperationError
from elasticd.preflight.needs import ScriptOffer
from elasticd.preflight.trials import Setting, Trial, TrialAsked, TrialSeen, slowest, untried
from elasticd.settings.job import JobSpec

_NEXT_SECONDS = 4000.0
"""Longer than a daemon takes to tell what it does next: a trial may measure for an hour."""


@dataclass(slots=True)
class ClusterTrials:
    """Of one job. ``seconds``: how long steps are measured. ``busy``: also where a job runs.
    ``tells``: what is being done."""

    client: Client
    spec: JobSpec
    packed: Archive
    seconds: float
    busy: bool
    tells: Callable[[str], None]
    seen: dict[Setting, list[TrialSeen]] = field(default_factory=dict)
    """The last that each node has told of each."""

    def run(self, setting: Setting) -> Trial:
        """What the job comes to with that setting.

        Raises:
            OperationError: it could not be tried on a node: which, and why.
        """
        seen = self._asked(TrialAsked(setting, self.seconds))
        self.seen[setting] = seen
        if why := untried(seen):
            cure = "wait until it has ended, or say --busy" if _runs(seen) else "or say --here"
            raise OperationError(f"{'; '.join(why)}: nothing was tried there; {cure}")
        tried = [(each.node, each.trial) for each in seen if each.trial is not None]
        if not tried:
            raise OperationError("no node is there that trains and knows trials: say --here")
        return slowest(tried)

    def _asked(self, asked: TrialAsked) -> list[TrialSeen]:
        data = self.packed.data
        offer = ScriptOffer(self.spec.to_dict(), len(data), self.packed.digest, asked)
        with self.client.open(RunPreflight(busy=self.busy or None, script=offer)) as connection:
            while "doing" in (frame := connection.answer(_NEXT_SECONDS)):
                self.tells(str(frame["doing"]))
                if frame.get("send"):
                    send_archive(connection, data)
        if "trials" not in frame:
            raise OperationError(
                f"the daemon at {connection.path.parent} is of an earlier version, which tries no"
                " job: restart it with this one, or say --here"
            )
        return [from_plain(TrialSeen, each) for each in frame["trials"]]


def _runs(seen: list[TrialSeen]) -> bool:
    return any(each.trains for each in seen)
