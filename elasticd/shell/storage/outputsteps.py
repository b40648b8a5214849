"""Whose files of ``run.open`` have which steps.

Each rank has its own, and now and then the library makes them alike. Where that could not be done,
since the disk of whoever is main refused it and no other rank was left at the end, or since who had
the lines has left the job, another node's has steps that main's lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from elasticd.outputs import OWN_FOLDER, Listing, OutputFile, index_of
from elasticd.types import NodeId

_MOST_RUNS, _MOST_STEPS = 100, 1 << 40
"""Of steps without gaps, and their numbers; of a file with more nothing is said."""


_Steps = Sequence[tuple[int, int]]
Found = Sequence[tuple[NodeId, OutputFile]]
"""Files of one name, with whose they are."""


def with_steps(folder: Path, listing: Listing) -> Listing:
    """With which steps each file of ``run.open`` has. Blocks."""
    if not any(file.managed for file in listing.files):
        return listing
    return replace(listing, files=tuple(_with_steps(folder, file) for file in listing.files))


def _with_steps(folder: Path, file: OutputFile) -> OutputFile:
    # A daemon needs numpy for this alone.
    from elasticd.stepindex import MAGIC, StepIndex

    if not file.managed:
        return file
    try:
        data = (folder / OWN_FOLDER / index_of(file.name)).read_bytes()
    except OSError:
        return file
    if not data.startswith(MAGIC):
        return file  # an earlier version's
    runs = StepIndex.parsed(data[len(MAGIC) :], file.bytes).runs()
    if len(runs) > _MOST_RUNS or (runs and runs[-1][1] > _MOST_STEPS):
        return file
    return replace(file, steps=tuple((first, last) for first, last in runs))


def may_lack(main: Listing, last: int | None) -> bool:
    """Whether another node may have steps that a file of main's lacks; ``last`` as below."""
    return any(_gaps(file, upto(file, last)) for file in main.files if file.steps)


def upto(file: OutputFile, last: int | None) -> int:
    """Which steps of a file count. ``last``: the job's last step, if it has finished: behind that
    all are made alike. Else what the file has not come to is not missed."""
    return file.steps[-1][1] if last is None else last


def together(have: Found, ends: int) -> Found:
    """Of several nodes' files those that together have all steps up to ``ends`` that there are. The
    first has most, and of equal ones it is the first; the others' lines count in their order where
    that one has none."""
    most = max(have, key=lambda each: _count(each[1].steps, ends))
    chosen, steps = [most], list(most[1].steps)
    for node, file in have:
        more = _joined(steps, file.steps)
        if _count(more, ends) > _count(steps, ends):
            chosen.append((node, file))
            steps = more
    return chosen


def _gaps(file: OutputFile, ends: int) -> int:
    """How many steps it lacks, from -1 on."""
    return ends + 2 - _count(file.steps, ends)


def _joined(some: _Steps, others: _Steps) -> list[tuple[int, int]]:
    """What either has."""
    found: list[tuple[int, int]] = []
    for first, last in sorted([*some, *others]):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def _count(steps: _Steps, ends: int) -> int:
    """How many steps there are, not counting later ones."""
    return sum(max(min(last, ends) - first + 1, 0) for first, last in steps)
