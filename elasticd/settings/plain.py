"""``mode = "plain"``: a script that makes its own ``mx.distributed`` group, run unchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticd.settings.rules import Wrong, integer, list_of, positive_number, rule, show, text
from elasticd.settings.toml import Document

PLAIN = "plain"
RESTARTS = "ELASTICD_RESTARTS"
"""A variable that only the scripts of such jobs have: how often they were begun before."""
TICK_SECONDS = 0.5
"""The ranks tell one another so often how their scripts are."""
_MEANINGLESS: Mapping[str, tuple[str, ...]] = {
    "batch": (), "train": (), "recovery": (), "recipe": (), "track": (),
    "checkpoint": (
        "every_steps", "keep", "keep_every_steps", "keep_hours", "keep_best", "best", "snapshot",
    ),
    "world": ("reduction", "require_exact"),
}  # fmt: skip
"""Tables and keys that say nothing of such a job; none: the whole table."""


def _pattern(value: object) -> str:
    """Of files below the script's working folder."""
    found = str(text()(value))
    parts = found.split("/")
    if found.startswith("~") or {"", ".", ".."} & set(parts) or not found.isprintable():
        raise Wrong(
            f'must name files below the working folder, as "ckpt/*.safetensors", not {show(value)}'
        )
    if any("**" in part and part != "**" for part in parts) or parts[-1] == "**":
        raise Wrong(f"** stands for folders, and alone between two /; not {show(value)}")
    return found


@dataclass(frozen=True)
class PlainSettings:
    hang_seconds: float = field(default=300.0, metadata=rule(positive_number(1e9)))
    """A rank that prints nothing and takes no CPU time for so long hangs."""
    restarts: int = field(default=8, metadata=rule(integer(0, 2**31 - 1)))
    """So often in a row the script may fail by itself; the next time the job has failed."""
    steady_seconds: float = field(default=600.0, metadata=rule(positive_number(1e9)))
    """When it has run for so long, its failures are counted anew."""
    copy_seconds: float = field(default=30.0, metadata=rule(positive_number(1e9)))
    """The output folder of rank 0 is copied to other nodes so often."""
    keep: tuple[str, ...] = field(default=(), metadata=rule(list_of(_pattern, 20)))
    """Files of rank 0's working folder that are kept with its outputs, and are put back."""
    keep_last: int = field(default=4, metadata=rule(integer(1, 1000)))
    """Of each of these patterns so many files, the newest."""

    def to_dict(self) -> dict[str, Any]:
        """Daemons of the version before know no ``keep``: they are told of one only."""
        found = dataclasses.asdict(self)
        return found if self.keep else {k: v for k, v in found.items() if not k.startswith("keep")}


def is_plain(document: Document) -> bool:
    """Whether a job.toml is of such a job."""
    job = document.data.get("job")
    return isinstance(job, dict) and job.get("mode") == PLAIN


def check(document: Document) -> None:
    """What somebody has written of such a job.

    Raises:
        ConfigError: it says something that means nothing there.
    """
    for table, keys in _MEANINGLESS.items():
        if table in document.data and not keys:
            raise document.error(
                (table,), 'a job of mode = "plain" has no such table: its script does its own steps'
            )
        for key in document.table((table,)):
            if key in keys:
                raise document.error((table, key), 'means nothing in a job of mode = "plain"')


def written(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of the whole ``settings`` of such a job what its job.toml may say: the rest, which
    :func:`complete` puts in, is nobody's business."""
    return {
        table: {key: value for key, value in keys.items() if key not in _MEANINGLESS.get(table, ())}
        for table, keys in settings.items()
        if _MEANINGLESS.get(table) != ()
    }


def complete(document: Document, settings: PlainSettings) -> None:
    """Put in what such a job has instead: each round of news between its ranks is a step of one
    sample that trains nothing, and the state is checkpointed when its output is to be copied."""
    ticks = max(1, round(settings.copy_seconds / TICK_SECONDS))
    fixed: dict[str, dict[str, Any]] = {
        "batch": {"global": 1, "micro": 1},
        "train": {"steps": 2**53},
        "recovery": {"verify_every": 0},
        "checkpoint": {"every_steps": ticks, "keep": 1},
        "world": {"reduction": "fast"},
    }
    for table, values in fixed.items():
        document.data[table] = {**document.table((table,)), **values}
