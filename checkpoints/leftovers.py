"""What a crash leaves in the folder of a job's checkpoints."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from elasticd.checkpoints import layout
from elasticd.checkpoints.disk import TEMPORARY
from elasticd.checkpoints.folder import changed_at, entries


def checkpoints_in(folder: Path, *, partial: bool) -> list[tuple[int, Path]]:
    """(step, folder) of a job's final or partial checkpoints, by step."""
    parsed = [(layout.parse_folder(path.name), path) for path in entries(folder)]
    return sorted((p[0], path) for p, path in parsed if p is not None and p[2] == partial)


def leftovers(folder: Path, spared: Collection[Path]) -> list[Path]:
    """Temporary names, and partial checkpoints that a final one of the same step or a later one has
    overtaken; none of ``spared``, and nothing in them."""
    finals = checkpoints_in(folder, partial=False)
    partials = checkpoints_in(folder, partial=True)
    ends = [(step, changed_at(path / layout.MANIFEST_NAME)) for step, path in finals]

    def is_over(step: int, path: Path) -> bool:
        changed = changed_at(path)
        return any(end >= step and since >= changed for end, since in ends)

    old = [path for step, path in partials if path not in spared and is_over(step, path)]
    kept = [path for _, path in (*finals, *partials) if path not in (*spared, *old)]
    temporary = [
        path for place in (folder, *kept) for path in entries(place)
        if path.name.endswith(TEMPORARY)
    ]  # fmt: skip
    return temporary + old
