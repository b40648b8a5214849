"""Tokens of a file's rows, made once on each node for this job and later ones.

``elasticd.data.cached`` keeps a line of whole numbers a row: how many parts the sample has; of each
part how many tokens it has in all, the first that is trained, and how many are kept; then these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import blake3
import numpy as np
from numpy.typing import NDArray

from elasticd.data.tokens import Tokens, cached
from elasticd.errors import OperationError
from elasticd.recipes.templateday import day_for
from elasticd.settings.recipe import MlxLm

_HEAD = 3
_WEIGHTS = frozenset({".safetensors", ".gguf", ".npz", ".bin", ".pt", ".pth", ".onnx", ".h5"})
_FORMAT = 3


class TokenPart(NamedTuple):
    """A row, or one of two answers of it: its tokens, the first that is trained, and how many there
    were before they were cut off."""

    tokens: NDArray[np.int32]
    offset: int
    full: int


@dataclass(frozen=True)
class FileRows:
    """Of a file of JSON lines: each with its line."""

    path: Path
    raw: bytes
    lines: Sequence[int]
    rows: Sequence[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.rows[row]

    def name(self, row: int) -> str:
        return f"{self.path}:{self.lines[row]}"

    def digests_by_file(self) -> Mapping[str, str]:
        """Wherever the file lies, and whatever it is called."""
        return {"rows": blake3.blake3(self.raw).hexdigest()}


Make = Callable[[int], Sequence[TokenPart]]
"""Of the row with that number."""


def parts_of(rows: FileRows, make: Make, key: str) -> Callable[[int], Sequence[TokenPart]]:
    """What ``make`` makes of each row, from the node's cache if ``key`` is not empty: it names all
    that ``make`` depends on but for the rows. A disk that refuses costs only the time.

    Raises: what ``make`` raises.
    """
    if not key:
        return make
    try:
        kept = cached(_Numbered(rows), lambda row: _packed(make(row)), key=f"{_FORMAT} {key}")
    except OperationError as error:
        print(f"elasticd: tokens are made anew each time: {error}", file=sys.stderr)
        return make
    return lambda row: _unpacked(kept[row])


def identity(config: MlxLm) -> str:
    """What tokens depend on but for the rows: the tokenizer's files, what it is read by, what the
    job says of rows, and the day if its template writes the job's. For a model that is
    :func:`located`.

    Raises:
        OSError: a file can't be read.
        UsageError: the job's day is none.
    """
    from importlib.metadata import PackageNotFoundError, version

    digest, folder = blake3.blake3(), Path(config.model)
    day: date | None = None
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if "/." in f"/{name}":
            continue  # what a Mac or the hub notes there, and tokenizers don't read
        if path.is_file() and path.suffix not in _WEIGHTS:
            content = path.read_bytes()
            digest.update(f"\0{name}\0".encode() + blake3.blake3(content).digest())
            day = day_for(content) or day
    for package in ("mlx-lm", "transformers", "tokenizers", "jinja2", "elasticd"):
        try:
            digest.update(f"\0{package} {version(package)}".encode())
        except PackageNotFoundError:
            digest.update(f"\0{package}".encode())
    names = ("mask_prompt", "prompt_feature", "completion_feature", "chat_feature", "text_feature",
             "chosen_feature", "rejected_feature", "max_seq_length")  # fmt: skip
    said = [f"{name}={getattr(config, name, None)!r}" for name in names]
    said += [f"day={day}"] if day else []
    return f"{type(config).__name__} {digest.hexdigest(16)} {' '.join(said)}"


class _Numbered:
    """Rows as their numbers, found by their content."""

    def __init__(self, rows: FileRows) -> None:
        self._rows = rows
        self.name, self.digests_by_file = rows.name, rows.digests_by_file

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> int:
        return row


def _packed(parts: Sequence[TokenPart]) -> Tokens:
    head = [len(parts)]
    for part in parts:
        head += [part.full, part.offset, len(part.tokens)]
    return np.concatenate([np.array(head, np.int32), *(part.tokens for part in parts)])


def _unpacked(line: Tokens) -> list[TokenPart]:
    count, found = int(line[0]), []
    at = 1 + _HEAD * count
    for full, offset, size in line[1:at].reshape(count, _HEAD).tolist():
        found.append(TokenPart(line[at : at + size], offset, full))
        at += size
    return found
