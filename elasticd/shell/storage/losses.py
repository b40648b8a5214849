"""HOME/history: the loss of each job by step, as its leader tells it, what its script gave to
``run.log``, and what its steps were made of.

Every node keeps what it hears, so any of them tells it, also when the job has ended and its leader
has died. One file for each job: a line for what was seen in a second. It is written again when it
has more lines than the curve can have points, or is too long.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from elasticd.core.jobs.losses import MOST_POINTS, LossCurve
from elasticd.settings.ownhome import make_inside
from elasticd.shell.storage.durable import open_private, write_whole
from elasticd.types import JobId

LOOK_SECONDS = 1.0
PARTS_SECONDS = 30.0
"""Between two notes of what a step is made of."""
FOLDER, FILE = "history", "losses.jsonl"
_KEYS = ("step", "loss", "lost")
_MOST_LINES = 3 * MOST_POINTS
_MOST_BYTES = 2 << 20

log = structlog.get_logger(__name__)

Status = Mapping[str, Any]
Ranks = list[dict[str, Any]]


@dataclass(slots=True)
class JobPast:
    """What is known of one job. ``ranks``: of the last world that told what its steps were made
    of, each with ``rank``, ``node`` and ``seconds``."""

    curve: LossCurve = field(default_factory=LossCurve)
    ranks: Ranks = field(default_factory=list)
    lines: int = 0
    size: int = 0
    """Of the lines, in bytes."""
    noted: float = float("-inf")

    def line(self, status: Status, now: float) -> str:
        """What is to be kept of that; empty: nothing is new."""
        said: dict[str, Any] = {}
        if (point := _point(status.get("step"), status.get("loss"), status.get("lost_steps"))) and (
            self.curve.take(*point)
        ):
            said |= dict(zip(_KEYS, point, strict=True))
        if new := [each for each in _values(status.get("values")) if self.curve.show(*each)]:
            said["values"] = {name: [step, value] for name, step, value in new}
        ranks = _told(status.get("ranks"))
        if ranks and now - self.noted >= PARTS_SECONDS:
            self.ranks, self.noted = ranks, now
            said["ranks"] = ranks
        if not said:
            return ""
        line = json.dumps(said, default=str) + "\n"
        self.lines, self.size = self.lines + 1, self.size + len(line)
        return line

    @property
    def is_long(self) -> bool:
        """Whether it is to be written anew."""
        return self.lines > _MOST_LINES or self.size > _MOST_BYTES

    def whole(self) -> str:
        """All of it, with as few lines as that takes."""
        lines = [json.dumps({"step": s, "loss": v, "lost": 0}) for s, v in self.curve.points]
        rest = {"lost": self.curve.lost, "ranks": self.ranks, "curves": self.curve.told()}
        lines.append(json.dumps(rest, default=str))
        text = "\n".join(lines) + "\n"
        self.lines, self.size = len(lines), len(text)
        return text

    @classmethod
    def read(cls, path: Path) -> JobPast:
        """Of a file; what is damaged or missing is left out."""
        past = cls()
        try:
            text = path.read_text(errors="replace")
        except OSError:
            return past
        for line in text.splitlines():
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(said, dict):
                past.size += len(line) + 1
                past._take(said)
        return past

    def _take(self, said: dict[str, Any]) -> None:
        self.lines += 1
        lost = said.get("lost")
        if (point := _point(said.get("step"), said.get("loss"), lost)) is not None:
            self.curve.take(*point)
        elif isinstance(lost, int):
            self.curve.lost = lost
        for each in _kept(said.get("values"), said.get("curves")):
            self.curve.show(*each)
        if isinstance(ranks := said.get("ranks"), list):
            self.ranks = [each for each in ranks if isinstance(each, dict)]


def _point(step: object, loss: object, lost: object) -> tuple[int, float, int] | None:
    if isinstance(step, int) and isinstance(loss, int | float) and isinstance(lost, int):
        return step, float(loss), lost
    return None


def _values(told: object) -> list[tuple[str, int, float]]:
    """What ``status`` says of each name, in that order."""
    named = told.items() if isinstance(told, Mapping) else ()
    pairs = [(n, [v.get("step"), v.get("value")]) for n, v in named if isinstance(v, Mapping)]
    return [each for name, pair in pairs if (each := _value(name, pair)) is not None]


def _kept(values: object, curves: object) -> Iterator[tuple[str, int, float]]:
    """What a line tells: of each name a point, or all of them."""
    found = list(values.items()) if isinstance(values, dict) else []
    for name, points in curves.items() if isinstance(curves, dict) else ():
        found += [(name, point) for point in points] if isinstance(points, list) else []
    return (each for name, pair in found if (each := _value(name, pair)) is not None)


def _value(name: object, pair: object) -> tuple[str, int, float] | None:
    if not isinstance(name, str) or not isinstance(pair, list) or len(pair) != 2:
        return None
    point = _point(pair[0], pair[1], 0)
    return (name, *point[:2]) if point is not None else None


def _told(ranks: object) -> Ranks:
    keys = ("rank", "node", "seconds")
    known = [each for each in ranks if isinstance(each, Mapping)] if isinstance(ranks, list) else []
    return [{key: each.get(key) for key in keys} for each in known if each.get("seconds")]


class Losses:
    """One node's. ``running``: what is known now of each job that has not ended; ``known``: of any
    job, None where it is forgotten."""

    def __init__(
        self,
        home: Path,
        running: Callable[[], Mapping[JobId, Status]],
        known: Callable[[JobId], Status | None],
        clock: Callable[[], float],
    ) -> None:
        self._home = home
        self._running, self._known, self._clock = running, known, clock
        self._open: dict[JobId, JobPast] = {}
        self._told = False

    async def rounds(self) -> None:
        """For ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Keep what is new."""
        found = dict(self._running())
        for job in self._open.keys() - found.keys():  # it has ended: its last step is told now
            if (last := self._known(job)) is not None:
                await self._keep(job, last)
            del self._open[job]
        for job, status in found.items():
            await self._keep(job, status)

    async def of(self, job: JobId) -> dict[str, Any]:
        """``losses`` by step, ``values`` by name and step, and ``ranks`` with what a step was made
        of."""
        past = self._open.get(job)
        if past is None:
            past = await asyncio.to_thread(JobPast.read, self._path(job))
        curve = past.curve.copy()
        status = self._known(job) or {}
        ranks = _told(status.get("ranks")) or past.ranks
        now = _point(status.get("step"), status.get("loss"), status.get("lost_steps"))
        if now is not None:
            curve.take(*now)
        for each in _values(status.get("values")):
            curve.show(*each)
        values = {n: [list(point) for point in points] for n, points in curve.told().items()}
        return {
            "losses": [list(point) for point in curve.points],
            "values": values,
            "ranks": ranks,
        }

    async def _keep(self, job: JobId, status: Status) -> None:
        if not any(status.get(key) for key in ("values", "ranks")) and status.get("loss") is None:
            return
        path = self._path(job)
        if job not in self._open:
            self._open[job] = await asyncio.to_thread(JobPast.read, path)
        past = self._open[job]
        line = past.line(status, self._clock())
        if not line:
            return
        whole = past.whole() if past.is_long else ""
        try:
            await asyncio.to_thread(_write, self._home, path, line, whole)
        except OSError as error:
            if not self._told:
                log.warning("losses are not kept", path=str(path), reason=error.strerror)
            self._told = True

    def _path(self, job: JobId) -> Path:
        return self._home / FOLDER / job / FILE


def _write(home: Path, path: Path, line: str, whole: str) -> None:
    make_inside(home, path.parent, 0o700)
    if whole:
        write_whole(path, whole.encode())
        return
    with open_private(path, "ab") as file:
        file.write(line.encode())
