"""What ``run.open(…)`` returns."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from elasticd.errors import UsageError
from elasticd.outputs import OWN_FOLDER

_LONGEST = 200


def checked_name(name: Any) -> str:
    """The name of a file below the output folder.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(name, str):
        raise UsageError(f"run.open() takes a name in words, not {type(name).__name__}")
    parts = name.split("/")
    if "" in parts or "\0" in name or {".", "..", OWN_FOLDER} & set(parts):
        raise UsageError(
            f"run.open({name!r}): the name of a file in run.output_dir is needed, as"
            " 'metrics.csv' or 'logs/metrics.csv'"
        )
    if len(name.encode(errors="replace")) > _LONGEST:
        raise UsageError(f"run.open({name[:20]!r}…): the name is longer than {_LONGEST} bytes")
    return name


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
