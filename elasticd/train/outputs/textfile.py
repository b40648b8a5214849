"""What ``run.open(…)`` returns."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from elasticd.errors import UsageError
from elasticd.outputs import DEEPEST, index_of, is_own

_LONGEST = 200
_LONGEST_INDEX = 255
"""A file's name, on Linux and on macOS."""


def checked_name(name: Any) -> str:
    """The name of a file below the output folder, which can be copied to every node.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(name, str):
        raise UsageError(f"run.open() takes a name in words, not {type(name).__name__}")
    parts = name.split("/")
    if any(map(is_own, parts)):
        raise UsageError(
            f"run.open({name!r}): the library has files of such names itself (.elasticd,"
            " .partial-…), and copies none of them; choose another"
        )
    if "" in parts or "\0" in name or {".", ".."} & set(parts) or not _is_text(name):
        raise UsageError(
            f"run.open({name!r}): the name of a file in run.output_dir is needed, as"
            " 'metrics.csv' or 'logs/metrics.csv'"
        )
    if len(name.encode()) > _LONGEST:
        raise UsageError(f"run.open({name[:20]!r}…): the name is longer than {_LONGEST} bytes")
    if len(index_of(name).encode()) > _LONGEST_INDEX or len(parts) > DEEPEST + 1:
        raise UsageError(f"run.open({name[:20]!r}…): the name has too many % or /")
    return name


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class RunFile(io.TextIOBase):
    """A text file to which every rank writes; main's lines count.

    What the loop's body writes is in the file when the body has ended.
    """

    def __init__(self, name: str, take: Callable[[bytes], None]) -> None:
        self.name, self._take = name, take

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if self.closed:
            raise ValueError("write to a closed file")
        if not isinstance(text, str):
            raise TypeError(f"write() takes str, not {type(text).__name__}")
        self._take(text.encode())
        return len(text)
