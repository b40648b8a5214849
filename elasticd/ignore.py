"""Patterns of files that aren't shipped, in the notation of .gitignore.

One pattern a line; ``#`` begins a comment. ``*`` and ``?`` don't cross ``/``, ``**`` does,
``[a-z]`` is one of a set. A pattern with a ``/`` at its beginning or inside is anchored at the
job's folder, any other matches at every depth. A ``/`` at the end matches folders only. ``!``
brings back what an earlier line ignored, unless a whole folder above it is ignored. The last line
that matches decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

DEFAULT_PATTERNS = (
    ".git", "__pycache__", ".venv", "*.pyc", "node_modules",
    # What a Mac writes: Finder; beside each file where the disk (exFAT, SMB) has no attributes; and
    # the same in archives.
    ".DS_Store", "._*", "__MACOSX",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Line:
    pattern: re.Pattern[str]
    ignored: bool
    folders_only: bool


class Ignore:
    """Decides by path, relative to the job's folder, what isn't shipped."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = [
            parsed for line in (*DEFAULT_PATTERNS, *lines) if (parsed := _parse(line)) is not None
        ]

    def __call__(self, path: str, *, folder: bool) -> bool:
        """Whether ``path`` is ignored; its parents are the caller's to ask about."""
        for line in reversed(self._lines):
            if (folder or not line.folders_only) and line.pattern.fullmatch(path):
                return line.ignored
        return False


def _parse(line: str) -> _Line | None:
    glob = line.strip()
    if not glob or glob.startswith("#"):
        return None
    ignored = not glob.startswith("!")
    glob = glob.removeprefix("!")
    folders_only = glob.endswith("/")
    glob = glob.rstrip("/")
    if not glob:
        return None
    anchored = "/" in glob
    glob = glob.removeprefix("/")
    prefix = "" if anchored else "(?:.*/)?"
    return _Line(re.compile(prefix + _regex(glob), re.DOTALL), ignored, folders_only)


_TOKENS = re.compile(
    r"(?P<anywhere>(?:^|(?<=/))\*\*/)|(?P<all>\*\*)|(?P<some>\*)|(?P<one>\?)"
    r"|\[(?P<negate>[!^]?)(?P<set>\]?[^\]]*)\]|\\(?P<escaped>.)",
    re.DOTALL,
)


def _regex(glob: str) -> str:
    parts: list[str] = []
    end = 0
    for token in _TOKENS.finditer(glob):
        parts.append(re.escape(glob[end : token.start()]))
        end = token.end()
        match token.lastgroup:
            case "anywhere":
                parts.append("(?:.*/)?")
            case "all":
                parts.append(".*")
            case "some":
                parts.append("[^/]*")
            case "one":
                parts.append("[^/]")
            case "set":
                parts.append(_set(token["negate"], token["set"]))
            case _:
                parts.append(re.escape(token["escaped"]))
    return "".join(parts) + re.escape(glob[end:])


def _set(negate: str, members: str) -> str:
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", members)
    pattern = f"(?!/)[{'^' if negate else ''}{escaped}]"
    try:
        re.compile(pattern)
    except re.error:
        return re.escape(f"[{negate}{members}]")
    return pattern
