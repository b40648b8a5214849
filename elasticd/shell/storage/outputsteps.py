"""Whose files of ``run.open`` are whole.

Each rank has its own, and now and then the library makes them alike. Where that could not be done,
since the disk of whoever is main refused it and no other rank was left at the end, another node's
has more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from elasticd.outputs import OWN_FOLDER, Listing, OutputFile, index_of
from elasticd.types import NodeId

_MOST_RUNS = 100
"""Of steps without gaps; of a file with more nothing is said."""


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
    return replace(file, steps=tuple((a, b) for a, b in runs) if len(runs) <= _MOST_RUNS else ())


def whole_elsewhere(
    main: Listing, others: Mapping[NodeId, Listing], last: int | None
) -> dict[str, tuple[NodeId, OutputFile]]:
    """Files of main that lack steps which another node's have: per name whose has most of them.

    ``last``: the job's last step, if it has ended; else what main has not come to is not missed.
    """
    found: dict[str, tuple[NodeId, OutputFile]] = {}
    for file in main.files:
        if not file.steps:
            continue
        upto = file.steps[-1][1] if last is None else last
        best = _count(file.steps, upto)
        for node, listing in others.items():
            other = listing.by_name().get(file.name)
            if other is not None and other.managed and _count(other.steps, upto) > best:
                found[file.name], best = (node, other), _count(other.steps, upto)
    return found


def _count(steps: Sequence[tuple[int, int]], upto: int) -> int:
    """How many steps there are, not counting later ones."""
    return sum(max(min(last, upto) - first + 1, 0) for first, last in steps)
