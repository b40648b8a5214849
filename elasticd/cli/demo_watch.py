"""One job as any living daemon of a cluster tells of it, looked at again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from elasticd.cli import demo_faults as faults
from elasticd.cli.output import ENDED
from elasticd.cli.watch import EventTail
from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import NoDaemonError, OperationError, ProtocolError

POLL_SECONDS = 0.1
QUICK_POLL_SECONDS = 0.01
"""Between two looks while a recovery is timed."""
SILENCE_SECONDS = 20.0
"""How long no daemon at all may answer."""

Show = Callable[["Watch"], None]
Tell = Callable[[dict[str, Any]], None]


class Watch:
    """The newest status of the cluster and of one job, and all events since the start.

    Daemons die and come back meanwhile, so an answer that is behind what was seen already, in
    epoch or generation, is passed over.
    """

    def __init__(
        self, client: Client, show: Show, tell: Tell, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        """``show`` is called after each look, ``tell`` with each new event.

        Looking fails once no daemon at all has answered for ``silence_seconds``.
        """
        self._silence_seconds = silence_seconds
        self._client = client
        self._show, self._tell = show, tell
        self._tail = EventTail(client, None)
        self._since = time.time()
        self.events: list[dict[str, Any]] = []
        """The cluster's and all jobs', in the order of their arrival."""
        self.view: dict[str, Any] = {"epoch": 0, "leader": None, "members": []}
        self.nodes: list[dict[str, Any]] = []
        self.job: dict[str, Any] = {}
        self.seen_at = 0.0
        """Unix seconds of the newest look."""
        self._id = ""
        self._answered = time.monotonic()

    def follow(self, job: str) -> None:
        """Look at this job from now on."""
        self._id, self.job = job, {"id": job, "generation": 0, "step": 0, "ranks": []}

    def close(self) -> None:
        """Hang up."""
        self._tail.close()

    @property
    def step(self) -> int:
        """The newest committed step."""
        return int(self.job.get("step") or 0)

    @property
    def state(self) -> str:
        return str(self.job.get("state"))

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """The members of the world that trains; none while there is none."""
        return self.job.get("ranks") or [] if self.state == "running" else []

    def job_events(self) -> list[dict[str, Any]]:
        """The events of the job and of the cluster, in the order of time."""
        mine = [event for event in self.events if event.get("job") in (None, self._id)]
        return sorted(mine, key=lambda event: float(event["time"]))

    def look(self, seconds: float) -> None:
        """Take in events for so long, then ask for the status.

        Raises:
            NoDaemonError: none has answered for too long.
        """
        self._take_events(time.monotonic() + seconds)
        try:
            answer = self._client.request(ShowStatus())
        except (NoDaemonError, ProtocolError) as error:
            if time.monotonic() - self._answered > self._silence_seconds:
                why = f"no daemon has answered for {self._silence_seconds:.0f} s: {error}"
                raise NoDaemonError(why) from None
            return
        self.seen_at, self._answered = time.time(), time.monotonic()
        job = next((job for job in answer["jobs"] if job["id"] == self._id), None)
        if int(answer["view"]["epoch"]) >= int(self.view["epoch"]):
            self.view, self.nodes = answer["view"], answer["nodes"]
            if job is not None and not self._is_behind(job):
                self.job = job
        self._show(self)

    def _is_behind(self, job: dict[str, Any]) -> bool:
        if job["state"] in ENDED:
            return False
        return bool(job["generation"] < self.job["generation"] or job["step"] < self.step)

    def _take_events(self, deadline: float) -> None:
        while True:
            left = deadline - time.monotonic()
            try:
                event = self._tail.poll(max(0.0, left))
            except NoDaemonError:
                time.sleep(max(0.0, min(left, POLL_SECONDS)))
                event = None
            if event is not None and float(event["time"]) >= self._since:
                self.events.append(event)
                if event.get("job") in (None, self._id):
                    self._tell(event)
            if left <= 0:
                return

    def until(
        self,
        what: str,
        reached: Callable[[], bool],
        seconds: float,
        *,
        poll_seconds: float = POLL_SECONDS,
        while_it_moves: bool = False,
    ) -> None:
        """Look until ``reached()``.

        Args:
            what: what is awaited, for the message.
            seconds: how long that may take; with ``while_it_moves`` how long no step may be
                committed.

        Raises:
            OperationError: it took too long, or the job ended meanwhile.
            NoDaemonError: all daemons are gone.
        """
        self._answered = time.monotonic()
        deadline, step = time.monotonic() + seconds, self.step
        self.look(0.0)
        while not reached():
            if self.state in ENDED:
                reason = self.job.get("reason") or "no reason given"
                why = "" if self.state == "finished" else f": {reason}"
                raise OperationError(f"the job {self.state} while {what} was awaited{why}")
            if while_it_moves and self.step > step:
                deadline, step = time.monotonic() + seconds, self.step
            if time.monotonic() > deadline:
                raise OperationError(f"{what} did not come within {seconds:.0f} s")
            self.look(poll_seconds)


def time_recovery(watch: Watch, struck: faults.Strike, seconds: float) -> faults.StrikeCost:
    """Look until a step is committed in a new world after a strike.

    Raises:
        OperationError: a new world, or its first step, takes longer than ``seconds``.
    """

    def formed() -> bool:
        return faults.new_world(struck, watch.job_events()) is not None

    def committed() -> bool:
        world = faults.new_world(struck, watch.job_events())
        return world is not None and watch.step > int(world["resume_step"])

    what = f"after the death of {struck.target}, "
    watch.until(what + "a new world", formed, seconds, poll_seconds=QUICK_POLL_SECONDS)
    watch.until(what + "its first step", committed, seconds, poll_seconds=QUICK_POLL_SECONDS)
    seen_at = watch.seen_at
    watch.look(0.3)  # the event that closes the recovery comes with that step or right behind it
    return faults.measure(struck, watch.job_events(), seen_at)
