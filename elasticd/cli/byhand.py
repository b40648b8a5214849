"""What may be removed from a home by hand, where the disk is full and no daemon runs to do it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from elasticd.cli.output import shown_bytes
from elasticd.cli.reset import records_of
from elasticd.core.words.records import JobRecord
from elasticd.pasting import of_home, quoted
from elasticd.preflight.nodes import CheckResult
from elasticd.settings.localhomes import cluster_of
from elasticd.shell.children.server import ROSTER_NAME
from elasticd.shell.storage.homefolders import FOLDERS
from elasticd.shell.storage.journal import put_aside
from elasticd.shell.storage.records import JOURNAL_NAME
from elasticd.shell.storage.usage import OF_JOBS, size_bytes
from elasticd.supervision.roster import ChildRoster

REMADE = ("cache", "clones")
"""Folders of which all is made again."""
OF_ENDED = ("work", "logs")
"""Kinds of files of which a daemon removes those of ended jobs by itself, in time."""
_LEAST_BYTES = 1 << 17
"""What is smaller lets no daemon start, which removes the rest when it is told to."""
_MOST = 5
"""So many are named, the largest."""

Sized = list[tuple[int, Path]]


def by_hand(found: CheckResult, homes: Sequence[Path], start: str) -> CheckResult:
    """What was found of the disk with these homes, in none of which a daemon runs, with what takes
    its room and may go. ``start``: the command that starts the daemon."""
    largest = _largest(home / name for home in homes for name in FOLDERS)
    value = found.value + (f"; of the home {_listed(largest)}" if largest else "")
    freed = _largest(home / name for home in homes for name in REMADE)
    unneeded = _largest(path for home in homes for path in _unneeded(home) if _same(home, path))
    ways = []
    if freed:
        ways.append(f"{_removes(freed)}, and it is made again")
    if unneeded:
        what = "work and logs of ended jobs, journals put aside"
        ways.append(f"if nobody needs them, {_removes(unneeded)}: {what}")
    first = "No daemon runs here that could remove anything. "
    rosters = [home / ROSTER_NAME for home in homes]
    if ways and (left := [path for path in rosters if ChildRoster(path).living()]):
        first += f"End the processes first that are named at {left[0]}. "
    if ways:
        first += f"By hand: {'; '.join(ways)}"
    else:
        reset = quoted(of_home("reset --checkpoints", cluster_of(homes[0])))
        first += (
            "Free space outside of its home. Where nothing else is on that disk, let go of all"
            f" checkpoints here, and of what is known of the jobs: {reset}"
        )
    never = f"{first}. Never remove checkpoints or the journal by hand"
    more = "then 'elasticctl forget JOB' and 'elasticctl checkpoints prune JOB' remove more"
    return replace(found, value=value, cure=f"{never}. Start the daemon: {quoted(start)}; {more}")


def _unneeded(home: Path) -> Iterable[Path]:
    journal = home / JOURNAL_NAME
    with contextlib.suppress(OSError):
        jobs = [each for each in records_of(journal) if isinstance(each, JobRecord)]
        if jobs:  # else a reset with --keep-jobs takes those of a journal that was put aside
            yield from put_aside(journal)
        for job in jobs:
            if job.ended:
                yield from (home / OF_JOBS[kind] / job.id for kind in OF_ENDED)


def _same(home: Path, path: Path) -> bool:
    """Whether it lies on the disk of its home: a folder may be a link to another one."""
    try:
        return home.stat().st_dev == path.stat().st_dev
    except OSError:
        return False


def _largest(paths: Iterable[Path]) -> Sized:
    sized = [(size_bytes(path), path) for path in paths]
    return sorted((each for each in sized if each[0] >= _LEAST_BYTES), reverse=True)[:_MOST]


def _listed(found: Sized) -> str:
    return ", ".join(f"{path} has {shown_bytes(size)}" for size, path in found)


def _removes(found: Sized) -> str:
    command = quoted("rm -r", *(path for _, path in found))
    return f"{command} frees {shown_bytes(sum(size for size, _ in found))}"
