"""Following a job until it ends, whichever daemons die meanwhile."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elasticd.cli import plainjobs
from elasticd.cli.output import ENDED, event_line, reason_of
from elasticd.cli.plainjobs import is_plain
from elasticd.cli.screen import clean, print_json, say, warn
from elasticd.cli.silence import POLL_SECONDS, SilentDaemons
from elasticd.cli.tables import STATE_STYLES, fold, shown
from elasticd.client.client import Client
from elasticd.client.connection import Connection, HungUp
from elasticd.core.words.requests.looking import ReadEvents, ShowStatus
from elasticd.counting import counted
from elasticd.errors import NoDaemonError, OperationError, ProtocolError
from elasticd.types import JobId

PLAIN_PROGRESS_SECONDS = 10.0
"""Time between progress lines where there is no terminal to redraw."""
BAR_WIDTH = 40
MIN_BAR = 10
REMEMBERED_EVENTS = 100_000
"""Events kept to tell new ones from old when another daemon repeats the history. Of its events that
are older than these none is new."""

Event = dict[str, Any]


class EventTail:
    """The events of one job, or all, each once, from whichever daemon answers."""

    def __init__(self, client: Client, job: str | None) -> None:
        self._client = client
        self._request = ReadEvents(JobId(job) if job is not None else None, follow=True)
        self.ended = False
        """The job has ended: there will be no more events."""
        self._connection: Connection | None = None
        self._seen: dict[str, float] = {}
        """With their times."""
        self._again, self._forgotten = False, -math.inf
        """Another daemon tells the history; the newest time of an event that is not among them."""

    def poll(self, seconds: float) -> Event | None:
        """The next event, or None if none comes within ``seconds``.

        Every daemon tells the whole history, so after a daemon's death the next one's is read from
        its start.

        Raises:
            NoDaemonError: the daemon is lost, or none answers; poll again to try the next one.
        """
        deadline = time.monotonic() + seconds
        if self._connection is None:
            self._connection = self._client.open(self._request)
            self._again = bool(self._seen)
        while True:
            try:
                event = self._connection.follow(max(0.0, deadline - time.monotonic()))
            except NoDaemonError:
                self.close()
                raise
            except ProtocolError as error:
                self.close()
                raise HungUp(str(error)) from None
            if event is None:
                return None
            if event.get("end") is True:
                self.close()
                self.ended = self._request.job is not None
                if self.ended:
                    return None
                raise HungUp("the daemon ended the stream")
            if self._is_new(event):
                return event

    def _is_new(self, event: Event) -> bool:
        key, at = repr(sorted(event.items())), float(event.get("time", math.inf))
        if key in self._seen or (self._again and at <= self._forgotten):
            return False
        self._seen[key] = at
        if len(self._seen) > REMEMBERED_EVENTS:
            self._forgotten = max(self._forgotten, self._seen.pop(next(iter(self._seen))))
        return True

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def follow_events(client: Client, job: str | None) -> Iterator[Event]:
    """All events of a job until it has ended, or of all jobs for ever.

    Raises:
        NoDaemonError: no daemon answers, at first or for a while.
    """
    tail = EventTail(client, job)
    away = SilentDaemons(answered=False)
    try:
        while not tail.ended:
            try:
                event = tail.poll(1.0)
            except NoDaemonError as error:
                away.bear(error)
                continue
            away.heard()
            if event is not None:
                yield event
    finally:
        tail.close()


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at a job: its ``status`` and the events since the last look."""

    job: dict[str, Any]
    events: tuple[Event, ...]

    @property
    def ended(self) -> bool:
        return self.job.get("state") in ENDED

    @property
    def news(self) -> list[Event]:
        """The events that are worth a line."""
        return plainjobs.news(self.job, self.events)


def sights(client: Client, job: str, *, answered: bool) -> Iterator[Sight]:
    """Looks at a job, the last one after it has ended. ``answered``: a daemon just has.

    Raises:
        NoDaemonError: no daemon answers, at first or for a while.
        OperationError: the job is unknown.
    """
    tail = EventTail(client, job)
    away = SilentDaemons(answered=answered)
    try:
        while True:
            events = _new_events(tail)
            try:
                status = client.request(ShowStatus(JobId(job)))
            except (NoDaemonError, ProtocolError) as error:
                away.bear(error, f"; the job {job} may go on")
                continue
            away.heard()
            if not status.get("jobs"):
                raise OperationError(f"the daemon doesn't know the job {job}")
            # In full from now on: what it was called may soon be the beginning of several ids.
            job = status["jobs"][0].get("id", job)
            sight = Sight(status["jobs"][0], events)
            if sight.ended:
                yield Sight(sight.job, (*events, *_new_events(tail)))
                return
            yield sight
    finally:
        tail.close()


def _new_events(tail: EventTail) -> tuple[Event, ...]:
    events: list[Event] = []
    deadline = time.monotonic() + POLL_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        if tail.ended:
            time.sleep(left)
            break
        try:
            event = tail.poll(left)
        except NoDaemonError:
            time.sleep(left)
            break
        if event is not None:
            events.append(event)
    return tuple(events)


def wait(client: Client, job: str, *, json: bool, answered: bool = True) -> int:
    """Show a job until it ends; returns the exit code. ``answered`` as in :func:`sights`."""
    try:
        final = _show(sights(client, job, answered=answered), json=json)
    except KeyboardInterrupt:
        warn(
            f"\nthe job goes on; look at it with 'elasticctl status {job}',"
            f" end it with 'elasticctl cancel {job}'"
        )
        raise
    if json:
        print_json(plainjobs.told(final))
    else:
        say(summary(final))
    return 0 if final.get("state") == "finished" else 1


def _show(looks: Iterator[Sight], *, json: bool) -> dict[str, Any]:
    console = Console()
    if json:
        return _last(looks, lambda _: None)
    if not console.is_terminal:
        return _last(looks, PlainProgress())
    bar = LiveProgress()
    with Live(bar, console=console, refresh_per_second=8):
        return _last(looks, bar.update)


def _last(looks: Iterator[Sight], show: Callable[[Sight], None]) -> dict[str, Any]:
    job: dict[str, Any] = {}
    for sight in looks:
        show(sight)
        job = sight.job
    return job


class PlainProgress:
    """Prints each event, and every few seconds where the job is."""

    def __init__(self) -> None:
        self._printed = 0.0

    def __call__(self, sight: Sight) -> None:
        for event in sight.news:
            say(event_line(event), flush=True)
        now = time.monotonic()
        under_way = sight.job.get("step") or (is_plain(sight.job) and sight.job.get("ranks"))
        if under_way and now - self._printed >= PLAIN_PROGRESS_SECONDS:
            self._printed = now
            say(progress_line(sight.job), flush=True)


class LiveProgress:
    """A bar with the newest figures and, below it, the last event.

    On a narrow terminal the bar becomes shorter, then it goes, then the figures are folded.
    """

    def __init__(self) -> None:
        self._job: Mapping[str, Any] = {}
        self._event = ""

    def update(self, sight: Sight) -> None:
        """Take over a new look."""
        self._job = sight.job
        if news := sight.news:
            self._event = event_line(news[-1])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        job, width = self._job, options.max_width
        if not job:
            return
        state, step, steps = str(job.get("state")), job.get("step") or 0, job.get("steps")
        name, done = clean(str(job["id"])), f"{shown(step)}/{shown(steps)}" if steps else ""
        state, said = clean(state), f"{done} {clean(figures(job))}".rstrip()
        room = width - cell_len(f"{name} {state}  {said}")
        if room >= MIN_BAR and steps:
            line = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
            head = Text.assemble(name, " ", (state, STATE_STYLES.get(state, "")))
            bar = ProgressBar(total=steps, completed=step, width=min(BAR_WIDTH, room))
            line.add_row(head, bar, Text(said))
            yield line
        else:
            for part in fold(f"{name} {state} {said}", width, whole=True):
                yield Text(part, no_wrap=True)
        for part in fold(self._event, width):
            yield Text(part, "dim", no_wrap=True)


def figures(job: Mapping[str, Any]) -> str:
    """Loss, speed and world in a few words; of a plain job how its script is."""
    parts = plainjobs.in_words({**job, "ranks": ()}) if is_plain(job) else []
    if job.get("loss") is not None:
        parts.append(f"loss {shown(job['loss'])}")
    if job.get("steps_per_second"):
        parts.append(f"{shown(job['steps_per_second'])} steps/s")
    if ranks := job.get("ranks"):
        nodes = " ".join(str(rank.get("node")) for rank in ranks)
        parts.append(f"world {len(ranks)} ({nodes})")
    return ", ".join(parts)


def progress_line(job: Mapping[str, Any]) -> str:
    """Where a job is, on one line."""
    line = f"{job['id']}  {job.get('state')}"
    if job.get("steps"):  # a plain job has none
        line += f"  step {job.get('step')}/{job.get('steps')}"
    return f"{line}  {figures(job)}".rstrip()


def summary(job: Mapping[str, Any]) -> str:
    """How a job ended."""
    name, steps = job["id"], f"{job.get('step')} of {counted(job.get('steps'), 'step')}"
    recoveries = counted(job.get("recoveries"), "recovery", "recoveries")
    if not job.get("steps"):
        text = f"{name} {job.get('state')}: {recoveries}"
        anew = plainjobs.again(job)
        text += f", begun anew {anew}" if anew else ""
        return f"{text}; {job['reason']}" if job.get("reason") else text
    faults = f"{recoveries}, {counted(job.get('lost_steps'), 'step')} lost"
    if job.get("state") == "finished":
        why = f"; {reason}" if (reason := reason_of(job)) else ""
        return f"{name} finished: {steps}, loss {shown(job.get('loss'))}, {faults}{why}\n" + (
            f"digest {job.get('digest')}"
        )
    return f"{name} {job.get('state')} after {steps}: {job.get('reason') or 'no reason given'}"
