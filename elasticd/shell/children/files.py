"""What lies in the home for children: working folders, output, logs."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elasticd.errors import OperationError
from elasticd.settings.ownhome import make_inside
from elasticd.shell.children.logspan import LogSpan, tail_start
from elasticd.shell.children.logtimes import marks, offset_at
from elasticd.types import JobId

_SHOWN_LOG = "-trainer.log"
_SPARE_LOG = "-spare.log"
_DROPPED = "dropped"
_moving = threading.Lock()
"""Held while parts of logs move or go, and while they are read: offsets hold in between."""


@dataclass(frozen=True, slots=True)
class ChildFiles:
    """Paths below ``home``."""

    home: Path

    def work_folder(self, job: JobId) -> Path:
        """What was sent, as it was sent."""
        return self.home / "work" / job

    def clones_folder(self, job: JobId) -> Path:
        """Where each trainer has its own clone of that."""
        return self.home / "clones" / job

    def output_folder(self, job: JobId) -> Path:
        """What the job's script writes here; not there before a trainer is."""
        return self.home / "output" / job

    def output_copies(self) -> Path:
        """Where copies of main's output folders are, one folder for each job."""
        return self.home / "outputs"

    def of_job(self, job: JobId) -> tuple[Path, ...]:
        """All folders that a job has here, there or not."""
        return (
            self.work_folder(job),
            self.clones_folder(job),
            self.output_folder(job),
            self.output_copies() / job,
            self.logs_folder(job),
            self.home / "history" / job,
        )

    def recreated(self, job: JobId) -> tuple[Path, ...]:
        """Those of them that are no results of it."""
        return self.work_folder(job), self.clones_folder(job), self.logs_folder(job)

    def logs_folder(self, job: JobId) -> Path:
        """What its trainers printed."""
        return self.home / "logs" / job

    def cache_folder(self) -> Path:
        """Made if need be. Raises OperationError: it can't be."""
        return made(self.home / "cache", self.home)

    def trainer_log(self, job: JobId, spare: bool) -> Path:
        """A new trainer's. A spare repeats what the first trainer printed; it is shown once
        promoted."""
        suffix = _SPARE_LOG if spare else _SHOWN_LOG
        return self.logs_folder(job) / f"{time.time_ns() // 1_000_000:013d}{suffix}"

    def reducer_log(self) -> Path:
        return self.home / "logs" / "reducer.log"

    def shown_logs(self, job: JobId) -> list[Path]:
        """The files with what the job's ranks printed here, in the order in which it was printed.

        A log's rotated parts, numbered from the newest, come before it. Other names are not ours.
        """
        found: list[tuple[str, int, Path]] = []
        for path in self.logs_folder(job).glob(f"*{_SHOWN_LOG}*"):
            start, _, age = path.name.partition(_SHOWN_LOG)
            if re.fullmatch(r"(\.\d{1,9})?", age, re.ASCII) and path.is_file():
                found.append((start, -int(age[1:] or 0), path))
        return [path for _, _, path in sorted(found)]

    def dropped(self, job: JobId) -> int:
        """How many bytes of that were removed with old parts, so that offsets stay what they are
        when a part goes."""
        try:
            return int((self.logs_folder(job) / _DROPPED).read_bytes())
        except (OSError, ValueError):
            return 0

    @contextlib.contextmanager
    def dropping(self, job: JobId) -> Iterator[Callable[[int], None]]:
        """While parts move or go nobody reads; what this gives is told how many bytes go. A disk
        that refuses to count them costs a follower its place."""
        with _moving:
            yield partial(self._count, job)

    def trim(
        self, job: JobId, choose: Callable[[list[Path]], Iterable[Path]]
    ) -> tuple[list[Path], str]:
        """Remove the old parts that ``choose`` takes of all; none moves meanwhile.

        Returns: those that have gone, and why the others stay if the disk refuses: it may be
            another one than the home's.
        """
        gone: list[Path] = []
        with _moving:
            try:
                for path in choose(self.shown_logs(job)):
                    size = path.stat().st_size
                    path.unlink()
                    self._count(job, size)
                    gone.append(path)
            except OSError as error:
                return gone, str(error)
        return gone, ""

    def _count(self, job: JobId, size_bytes: int) -> None:
        path = self.logs_folder(job) / _DROPPED
        partial = path.with_name(f"{_DROPPED}.partial")
        with contextlib.suppress(OSError):
            if size_bytes:
                partial.write_bytes(b"%d" % (self.dropped(job) + size_bytes))
                partial.replace(path)

    def printed(self, job: JobId, offset: int, limit: int, counted: bool = False) -> bytes:
        """What the job's ranks printed here from ``offset`` on, at most ``limit`` bytes.

        ``counted``: offsets count what was removed, too; there is nothing at one of that.
        """
        with _moving:
            if counted:
                offset -= self.dropped(job)
            return _read(self.shown_logs(job), offset, limit) if offset >= 0 else b""

    def printed_before(self, job: JobId, time: float, counted: bool = False) -> int:
        """How many bytes of that were printed before ``time`` for sure."""
        with _moving:
            removed = self.dropped(job) if counted else 0
            return removed + offset_at(self.logs_folder(job), self.shown_logs(job), time)

    def span(self, job: JobId, since: float, tail: int | None, marked: bool = False) -> LogSpan:
        """Where that begins and ends which was printed after ``since``, or of it the last ``tail``
        lines. No more is read than those take. ``marked``: with how long it was when."""
        read, found = partial(self.printed, job, counted=True), None
        while found is None:
            with _moving:
                parts, removed = self.shown_logs(job), self.dropped(job)
                start = removed + offset_at(self.logs_folder(job), parts, since)
                end = removed + sum(path.stat().st_size for path in parts)
                known = marks(self.logs_folder(job), parts) if marked else ()
            found = (start, False) if tail is None else tail_start(read, start, end, tail)
        start, cut = found
        left_out = ""
        if cut:
            left_out = f"so long are its lines that only the last {end - start} bytes are shown"
        elif start == removed > 0:
            left_out = f"{removed} bytes of it are gone, since a log keeps its newest parts"
        when = tuple((time, removed + offset) for time, offset in known)
        return LogSpan(start, end, left_out, when)


def _read(paths: Iterable[Path], offset: int, limit: int) -> bytes:
    """At most ``limit`` bytes from ``offset`` on, as if the files were one."""
    data = b""
    for path in paths:
        size = path.stat().st_size
        if offset < size:
            with path.open("rb") as file:
                file.seek(offset)
                data += file.read(limit - len(data))
            if len(data) >= limit:
                break
        offset = max(0, offset - size)
    return data


def made(folder: Path, home: Path | None = None) -> Path:
    """That folder, made if need be. ``home``: the one that it is in, which is not made.

    Raises:
        OperationError: something else has its place, or the disk refuses it.
    """
    try:
        make_inside(home or Path(folder.anchor), folder)
    except (FileExistsError, NotADirectoryError):
        raise OperationError(
            f"{folder}: can't be made, since a file or a dead link has its place; remove that"
        ) from None
    except OSError as error:
        raise OperationError(f"{folder}: can't be made: {error.strerror}") from None
    return folder


def is_shown(path: Path) -> bool:
    """Whether it is a log of a trainer that is no spare."""
    return path.name.endswith(_SHOWN_LOG) and not path.name.endswith(_SPARE_LOG)


def show_log(path: Path) -> Path | None:
    """Give the log of a spare that is promoted the name of those that are shown; None: it has it
    already."""
    if not path.name.endswith(_SPARE_LOG) or not path.exists():
        return None
    return path.rename(_shown(path))


def now_at(path: Path) -> Path:
    """Where a log is that may have been shown just now."""
    if path.name.endswith(_SPARE_LOG) and _shown(path).exists():
        return _shown(path)
    return path


def _shown(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(_SPARE_LOG) + _SHOWN_LOG)
