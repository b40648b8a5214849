"""When what was printed: how long each log was at which time, noted now and then.

``logs/<job>/times`` has a line ``TIME LENGTH NAME`` each time that a log has grown, and one with
the length -1 when it has been rotated: what an older line speaks of is in an older part. So it is
if the length has become less.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

FILE_NAME = "times"
MAX_BYTES = 256 * 1024
"""Beyond that lines go of what is gone, and every other one of the rest."""
MOST_MARKS = 300
"""Are told of a log: so fine is the order in which those of several nodes are shown."""
_ROTATED = -1


@dataclass(frozen=True, slots=True)
class _Note:
    time: float
    length: int
    name: str

    def line(self) -> str:
        return f"{self.time:.3f} {self.length} {self.name}\n"


@dataclass(slots=True)
class LogTimes:
    """The notes that a daemon makes of the logs of its children."""

    _lengths: dict[Path, int] = field(default_factory=dict)

    def rotated(self, log: Path, now: float, cut: bool = False) -> None:
        """A log has been rotated. A disk that refuses that line costs all notes of the job, and so
        does a beginning that was ``cut`` off: they would speak of what lies behind it."""
        try:
            if cut:
                log.with_name(FILE_NAME).unlink(missing_ok=True)
            with log.with_name(FILE_NAME).open("a", encoding="utf-8") as file:
                file.write(_Note(now, _ROTATED, log.name).line())
        except OSError:
            with contextlib.suppress(OSError):
                log.with_name(FILE_NAME).unlink(missing_ok=True)
        self._lengths.pop(log, None)
        self.note(log, now)

    def note(self, log: Path, now: float) -> None:
        """Note how long a log is, if that has changed since the last look. A disk that refuses
        costs precision only."""
        with contextlib.suppress(OSError):
            length = log.stat().st_size
            if self._lengths.get(log) == length:
                return
            self._lengths[log] = length
            path = log.with_name(FILE_NAME)
            with path.open("a", encoding="utf-8") as file:
                file.write(_Note(now, length, log.name).line())
                large = file.tell() > MAX_BYTES
            if large:
                _thin(path)

    def keep(self, logs: Iterable[Path]) -> None:
        """Nobody prints into others any more."""
        self._lengths = {log: self._lengths[log] for log in logs if log in self._lengths}


def marks(
    folder: Path, parts: Sequence[Path], most: int = MOST_MARKS
) -> tuple[tuple[float, int], ...]:
    """How many bytes of ``parts``, one behind the other, there were at which times, upwards: the
    newest, and at most so many."""
    begins = dict(zip([path.name for path in parts], _begins(parts), strict=True))
    found: list[tuple[float, int]] = []
    for note, part in _with_parts(list(_read(folder / FILE_NAME))):
        place = begins.get(part)
        if place is not None and note.length >= 0 and isfinite(note.time):
            found.append((note.time, place[0] + min(note.length, place[1])))
    found.sort()
    upwards = [
        (time, offset)
        for (time, offset), before in zip(
            found, itertools.accumulate([0, *(at for _, at in found)], max), strict=False
        )
        if offset > before
    ]
    step = -(-len(upwards) // most) or 1
    return tuple(upwards[::-1][::step][::-1])


def _with_parts(notes: Sequence[_Note]) -> Iterator[tuple[_Note, str]]:
    """The newest first, each with the name of the part of which it speaks by now."""
    rotations: dict[str, int] = {}
    later: dict[str, int] = {}
    for note in reversed(notes):
        rotations.setdefault(note.name, 0)
        rotations[note.name] += note.length > later.get(note.name, note.length)
        later[note.name] = note.length
        age = rotations[note.name]
        yield note, f"{note.name}.{age}" if age else note.name


def _begins(parts: Sequence[Path]) -> list[tuple[int, int]]:
    """Of each part the offset where it begins, and its size."""
    sizes = [path.stat().st_size for path in parts]
    return list(zip(itertools.accumulate([0, *sizes]), sizes, strict=False))


def offset_at(folder: Path, parts: Sequence[Path], time: float) -> int:
    """How many bytes of ``parts``, one behind the other, were printed before ``time`` for sure."""
    notes = list(_read(folder / FILE_NAME))
    before = [at for at, note in enumerate(notes) if note.time <= time]
    if not before:
        return 0
    last = notes[before[-1]]
    later = [note.length for note in notes[before[-1] :] if note.name == last.name]
    rotations = sum(one > next_ for one, next_ in itertools.pairwise(later))
    wanted = f"{last.name}.{rotations}" if rotations else last.name
    offset = 0
    for path in parts:
        if path.name == wanted:
            return offset + min(max(0, last.length), path.stat().st_size)
        if path.name.startswith(last.name):
            # A newer part, if what is wanted has gone for its age.
            newer = int(path.name.rpartition(".")[2]) if path.name != last.name else 0
            if newer < rotations:
                return offset
        elif path.name > last.name:
            return offset
        offset += path.stat().st_size
    return offset


def _read(path: Path) -> Iterator[_Note]:
    """What can be read: a crash may have cut the last line."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            time, length, name = line.split(" ", 2)
            yield _Note(float(time), int(length), name)


def _thin(path: Path) -> None:
    """Of what is there keep every other note, and all beside a rotation."""
    notes = _of_what_is_there(path)
    kept = set(range(1, len(notes), 2))
    before: dict[str, int] = {}
    for at, note in enumerate(notes):
        known = before.get(note.name)
        if known is not None and (notes[known].length > note.length or notes[known].length < 0):
            kept |= {known, at}
        before[note.name] = at
    partial = path.with_name(f"{FILE_NAME}.partial")
    text = "".join(notes[at].line() for at in sorted(kept))
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _of_what_is_there(path: Path) -> list[_Note]:
    """Without those of logs that are gone, and without those of the oldest parts of a log that
    are."""
    there, begun = set(os.listdir(path.parent)), set[str]()
    found: list[_Note] = []
    for note, part in reversed(list(_with_parts(list(_read(path))))):
        if part in there:
            begun.add(note.name)
        if note.name in begun:
            found.append(note)
    return found
