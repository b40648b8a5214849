"""Whose files of ``run.open`` are whole.

Each rank has its own, and now and then the library makes them alike. Where that could not be done,
since the disk of whoever is main refused it and no other rank was left at the end, another node's
has more. Main's lines count: so another's file stands in only if it has all that main's has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from elasticd.outputs import OWN_FOLDER, Listing, OutputFile, index_of
from elasticd.types import NodeId

_MOST_RUNS, _MOST_STEPS = 100, 1 << 40
"""Of steps without gaps, and their numbers; of a file with more nothing is said."""


_Steps = Sequence[tuple[int, int]]


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
    return any(_gaps(file, _upto(file, last)) for file in main.files if file.steps)


def whole_elsewhere(
    main: Listing, others: Mapping[NodeId, Listing], last: int | None
) -> dict[str, tuple[NodeId, OutputFile]]:
    """Files of main that lack steps which another node's have: per name whose has most of them.

    ``last``: the job's last step, if it has finished: behind that all are made alike. Else what
    main has not come to is not missed.
    """
    found: dict[str, tuple[NodeId, OutputFile]] = {}
    for file in main.files:
        if not file.steps:
            continue
        upto = _upto(file, last)
        best = own = _count(file.steps, upto)
        for node, listing in others.items():
            other = listing.by_name().get(file.name)
            if other is None or not other.managed or _both(file.steps, other.steps, upto) < own:
                continue
            if _count(other.steps, upto) > best:
                found[file.name], best = (node, other), _count(other.steps, upto)
    return found


def _gaps(file: OutputFile, upto: int) -> int:
    """How many steps it lacks, from -1 on."""
    return upto + 2 - _count(file.steps, upto)


def _upto(file: OutputFile, last: int | None) -> int:
    return file.steps[-1][1] if last is None else last


def _both(some: _Steps, others: _Steps, upto: int) -> int:
    """How many steps both have."""
    return sum(
        max(min(last, other_last, upto) - max(first, other_first) + 1, 0)
        for first, last in some
        for other_first, other_last in others
    )


def _count(steps: _Steps, upto: int) -> int:
    """How many steps there are, not counting later ones."""
    return sum(max(min(last, upto) - first + 1, 0) for first, last in steps)
