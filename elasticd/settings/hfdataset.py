"""``hf_dataset``, mlx-lm's table: a data set by name, with its splits, and what its columns are
called. Or a list of such tables, whose rows come one after another."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from elasticd.settings.rules import (
    Wrong,
    file_or_folder,
    list_of,
    meant,
    rule,
    show,
    table_of,
    text,
)

T = TypeVar("T")
HUB = "hub:"
"""Begins the name of a model, or of data, where that is of the hub: then each node has it in its
cache."""
_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
_MOST_TABLES = 100
_CONFIG = ("name", "data_dir", "data_files", "revision")
"""What is handed to ``datasets``; the rest of its arguments is no job's business."""


def path_or_name(names: re.Pattern[str], what: str = "a path") -> Callable[[object], str]:
    """A path, or a name of the hub's, which ``names`` knows; ``what`` the value must name."""

    def check(value: object) -> str:
        name = file_or_folder(what)(value)
        if name.startswith(HUB) and not names.fullmatch(name.removeprefix(HUB)):
            raise Wrong(f"must be {HUB}OWNER/NAME or {HUB}OWNER/NAME@REVISION, not {show(name)}")
        return name

    return check


_path = path_or_name(_NAME, "a data set of the hub's, or a folder")


def _split(value: object) -> str:
    found = str(text()(value))
    if not found:
        raise Wrong('must name a split, as "train[:80%]"')
    return found


def _files(value: object) -> object:
    """Of one split, or by split."""
    if isinstance(value, str):
        return text()(value)
    if isinstance(value, Mapping):
        return table_of(text(), _files, 20)(value)
    return list(list_of(text(), 10_000)(value))  # type: ignore[call-overload]


def _config(value: object) -> object:
    if not isinstance(value, Mapping):
        raise Wrong(f"must be a table, not {show(value)}")
    for key in value:
        if key not in _CONFIG:
            raise Wrong(f"unknown key{meant(str(key), _CONFIG)}", str(key))
    return {
        key: _below(key, _files if key == "data_files" else text(), item)
        for key, item in value.items()
        if item is not None
    }


def _below(key: str, check: Callable[[object], T], value: object) -> T:
    try:
        return check(value)
    except Wrong as wrong:
        raise Wrong(str(wrong), key, *wrong.below) from None


@dataclass(frozen=True)
class HubRows:
    """One such table."""

    path: str = field(metadata=rule(_path))
    train_split: str = field(default="train[:80%]", metadata=rule(_split))
    valid_split: str = field(default="train[-10%:]", metadata=rule(_split))
    """mlx-lm's own values."""
    test_split: str | None = field(default=None, metadata=rule(_split))
    prompt_feature: str | None = field(default=None, metadata=rule(text()))
    completion_feature: str | None = field(default=None, metadata=rule(text()))
    chat_feature: str | None = field(default=None, metadata=rule(text()))
    text_feature: str | None = field(default=None, metadata=rule(text()))
    """None: as the recipe's key of that name says."""
    config: Mapping[str, Any] = field(default_factory=dict, hash=False, metadata=rule(_config))

    @property
    def splits(self) -> dict[str, str | None]:
        """By the file that is made of it."""
        return {"train": self.train_split, "valid": self.valid_split, "test": self.test_split}

    @property
    def folder(self) -> str | None:
        """In the job's folder; None: it is elsewhere."""
        inside = not (PurePosixPath(self.path).is_absolute() or self.path.startswith(HUB))
        return self.path if inside else None

    def marked(self, folder: Path) -> HubRows:
        """With its path marked as a name of the hub's if it is no folder, of a job's folder.

        Raises:
            Wrong: it is neither.
        """
        if self.folder is None or (folder / self.path).is_dir():
            return self
        if not _NAME.fullmatch(self.path):
            raise Wrong(f"there is no folder {show(self.path)} in the job's folder")
        return dataclasses.replace(self, path=HUB + self.path)


def hub_rows(value: object) -> tuple[HubRows, ...]:
    """The rule of the key."""
    if isinstance(value, Mapping):
        return (_table(value),)
    if not isinstance(value, list | tuple) or not value:
        raise Wrong(f"must be a table, or a list of tables, not {show(value)}")
    if len(value) > _MOST_TABLES:
        raise Wrong(f"must have at most {_MOST_TABLES} tables, not {len(value)}")
    return tuple(_below(f"[{at}]", _table, item) for at, item in enumerate(value))


def _table(value: object) -> HubRows:
    if not isinstance(value, Mapping):
        raise Wrong(f"must be a table, not {show(value)}")
    fields = {item.name: item for item in dataclasses.fields(HubRows)}
    for key in value:
        if key not in fields:
            raise Wrong(f"unknown key{meant(str(key), fields)}", str(key))
    if value.get("path") is None:
        raise Wrong("is missing", "path")
    made: dict[str, Any] = {
        key: _below(key, fields[key].metadata["rule"], item)
        for key, item in value.items()
        if item is not None
    }
    return HubRows(**made)
