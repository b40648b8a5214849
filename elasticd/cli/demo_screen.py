"""What the demo shows: lines that stay and, on a terminal, the job as it is now below them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from elasticd.cli.output import RANKS, rank_row
from elasticd.cli.screen import Line, clean
from elasticd.cli.tables import STATE_STYLES, Table, fitted, fold, shown, within
from elasticd.core.words.limits import in_short
from elasticd.counting import counted

PLAIN_PROGRESS_SECONDS = 5.0
BAR_WIDTH = 40

_TOLD = {
    "world_formed": "cyan",
    "fault_detected": "yellow",
    "recovery_finished": "green",
    "node_joined": "green",
    "node_lost": "yellow",
    "job_finished": "green",
    "job_failed": "red",
}
"""The kinds of events that the demo tells, with their colours."""


class Screen:
    """Lines with the seconds since the start before them.

    On a terminal a bar, the loss and the ranks are redrawn below the lines. Elsewhere the same is
    printed as a line every few seconds and whenever the world changed.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._label = ""
        self._job: Mapping[str, Any] = {}
        self._printed_at = 0.0
        self._world: tuple[int, int] = (0, 0)
        self._printed_generation = 0
        self._live = (
            Live(self, console=console, refresh_per_second=6) if console.is_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()
        if self._live is not None:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    def say(self, text: str, style: str = "") -> None:
        """Print a line of the story."""
        line = Text.assemble((f"{self.seconds:6.1f} s  ", "dim"), (clean(text), style))
        self._console.print(line, soft_wrap=True)

    def title(self, text: str) -> None:
        """Begin a chapter."""
        self._console.print()
        self._console.print(Text(text, "bold"), soft_wrap=True)

    def tell(self, event: Mapping[str, Any]) -> None:
        """Print an event if it belongs to the story."""
        kind = str(event.get("kind"))
        if kind in _TOLD:
            reason = in_short(event.get("reason")) or ""
            self.say(f"  {kind.replace('_', ' ')}: {reason}", _TOLD[kind])

    def show(self, label: str, job: Mapping[str, Any]) -> None:
        """Take over a new look at the job; ``label`` says what is being done."""
        self._label, self._job = label, job
        if self._live is None:
            self._maybe_print()

    def clear(self) -> None:
        """Show no job."""
        self._label, self._job = "", {}

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table."""
        room = self._console.width - 2 if self._live is not None else None
        for line in fitted(Table(tuple(columns)), rows, room):
            self._console.print(_text([("  ", ""), *line]), soft_wrap=True)

    def _maybe_print(self) -> None:
        job, now = self._job, time.monotonic()
        step, generation = int(job.get("step") or 0), int(job.get("generation") or 0)
        if generation != self._world[0]:
            self._world = (generation, step)
        # The step that was cut has shares of its own; those that last are known behind it.
        settled = step > self._world[1] and bool(job.get("ranks"))
        changed = settled and generation != self._printed_generation
        if not step or (not changed and now - self._printed_at < PLAIN_PROGRESS_SECONDS):
            return
        self._printed_at = now
        self.say(f"  {progress(job)}")
        if changed:
            self._printed_generation = generation
            for rank in job["ranks"]:
                self.say(f"    {described_rank(rank)}")

    def __rich__(self) -> RenderableType:
        job = self._job
        if not job:
            return Text("")
        width = self._console.width
        rows = [rank_row(rank) for rank in job.get("ranks") or ()]
        ranks = [_text(line) for line in within(fitted(RANKS, rows, width), width)]
        label = [Text(part, "dim") for part in fold(clean(self._label), width)]
        return Group(Text(""), *self._head(job, width), *ranks, *label)

    def _head(self, job: Mapping[str, Any], width: int) -> list[RenderableType]:
        """The bar gives way to what is beside it, which is folded where it has no room."""
        done, steps = job.get("step") or 0, job.get("steps") or 1
        state = clean(str(job.get("state")))
        parts = [state, f"{done}/{steps}", _figures(job)]
        room = width - sum(cell_len(part) + 2 for part in parts)
        if room < 1:
            return [Text(part) for part in fold("  ".join(parts), width)]
        head = Grid.grid(padding=(0, 2))
        head.add_row(
            Text(state, STATE_STYLES.get(state, "")),
            ProgressBar(total=steps, completed=done, width=min(BAR_WIDTH, room)),
            *(Text(part) for part in parts[1:]),
        )
        return [head]


def _text(line: Line) -> Text:
    return Text.assemble(*line)


def progress(job: Mapping[str, Any]) -> str:
    """Where the job is, on one line."""
    step = f"step {job.get('step')}/{job.get('steps')}"
    return f"{step}  {job.get('state')}  {_figures(job)}".rstrip()


def described_rank(rank: Mapping[str, Any]) -> str:
    """One rank on one line."""
    reducer = rank.get("reducer_pid")
    return (
        f"rank {rank.get('rank')}: {rank.get('node')}, trainer {shown(rank.get('pid'))},"
        f" reducer {shown(reducer)}, {counted(rank.get('grains'), 'grain')}"
    )


def _figures(job: Mapping[str, Any]) -> str:
    parts = []
    if isinstance(loss := job.get("loss"), int | float):
        parts.append(f"loss {loss:.3f}")
    if speed := job.get("steps_per_second"):
        parts.append(f"{speed:.1f} steps/s")
    return "  ".join(parts)
