"""What leaves the program: printable text for people, one object a line for programs.

Every other module of the commands prints through this one (a test holds it), so that no name,
reason or log can steer the terminal that shows it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from elasticd.settings.rules import one_line

MAX_HELD_LINE = 64 * 1024
_LONGEST_LINE = 32 << 20
"""In bytes: no answer of a daemon has half of it. Memory is taken for what is written only."""

Piece = tuple[str, str]
"""Some text and its style, as rich names it."""
Line = list[Piece]


def clean(text: str) -> str:
    """``text`` in its lines, with everything that isn't printable escaped."""
    return "\n".join(one_line(line) for line in text.split("\n"))


def say(text: str = "", *, flush: bool = False) -> None:
    """Print for people."""
    print(clean(text), flush=flush)


def warn(text: str) -> None:
    """Print for people, on stderr. Where the terminal is gone nobody hears it."""
    with contextlib.suppress(OSError):
        print(clean(text), file=sys.stderr)


def asking_again(why: str) -> None:
    """A daemon has not answered, and the same is said again."""
    warn(f"{why}: asking again")


def print_json(value: Mapping[str, Any]) -> None:
    """Print :func:`json_line`, in one piece."""
    sys.stdout.write(json_line(value) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def whole_lines() -> Iterator[None]:
    """A line that a signal cuts off is written to its end with the next one. Without a buffer, as
    with PYTHONUNBUFFERED, its end is lost, and so is that of one that is longer than the buffer."""
    before = sys.stdout
    try:
        descriptor = before.fileno()
    except (OSError, ValueError):  # it is in memory
        yield
        return
    before.flush()
    sys.stdout = out = open(  # noqa: SIM115
        descriptor, "w", _LONGEST_LINE, before.encoding, before.errors, closefd=False
    )
    try:
        yield
    finally:
        sys.stdout = before
        with contextlib.suppress(OSError):  # it was said, or there is nobody to hear it
            out.close()


def json_line(value: Mapping[str, Any]) -> str:
    """One object on one line, all of it printable. JSON has no NaN; it becomes null."""
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    return text


def width() -> int | None:
    """How many columns a line may have; None: as many as it takes, as in a pipe.

    ``COLUMNS`` in the environment counts in a pipe too: watch(1), say, sets it for what it runs.
    """
    asked = os.environ.get("COLUMNS", "")
    if re.fullmatch(r"[1-9]\d{0,5}", asked):
        return int(asked)
    console = Console()
    return console.width if console.is_terminal else None


@contextlib.contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """What says how far something is: on a terminal one line of stderr that changes; else
    nothing."""
    console = Console(stderr=True)
    if quiet or console.is_dumb_terminal or not sys.stderr.isatty():
        yield lambda text: None
        return
    with console.status("beginning", spinner="line") as status:
        yield lambda text: status.update(Text(clean(text)))  # a string would be markup


def say_lines(lines: Iterable[Line]) -> None:
    """Print lines, in colour on a terminal. None is cut or wrapped here."""
    console = Console()
    for line in lines:
        pieces = [(clean(text), style) for text, style in line]
        if console.is_terminal:
            console.print(Text.assemble(*pieces), soft_wrap=True)
        else:
            print("".join(text for text, _ in pieces))


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


class LogPrinter:
    """Prints what ranks printed; ``labelled`` puts the rank before each line.

    A carriage return ends a line, tabs stay, all else that isn't printable is escaped. Pieces end
    anywhere, so a labelled line waits for its end, or for :data:`MAX_HELD_LINE`.
    """

    def __init__(self, *, labelled: bool) -> None:
        self._labelled = labelled
        self._held: dict[str, str] = {}
        self._returned: set[str] = set()

    def print(self, piece: Mapping[str, Any]) -> None:
        """Print one answer of a daemon's log stream."""
        rank = piece.get("rank")
        label = one_line(f"[{piece.get('node') if rank is None else rank}] ")
        text = self._in_lines(label, str(piece.get("text", "")))
        if self._labelled:
            *lines, rest = (self._held.pop(label, "") + text).split("\n")
            if len(rest) >= MAX_HELD_LINE:
                lines, rest = [*lines, rest], ""
            if rest:
                self._held[label] = rest
            text = "".join(f"{label}{line}\n" for line in lines)
        sys.stdout.write(text)
        sys.stdout.flush()

    def _in_lines(self, label: str, text: str) -> str:
        """Printable, with one kind of line end; one of two letters may come in two pieces."""
        if label in self._returned and text:
            self._returned.discard(label)
            text = text.removeprefix("\n")
        if text.endswith("\r"):
            self._returned.add(label)
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return "\n".join("\t".join(map(one_line, line.split("\t"))) for line in lines)

    def finish(self) -> None:
        """Print the lines that have no end."""
        for label, line in self._held.items():
            print(label + line)
        self._held.clear()


class RawPrinter:
    """Prints the bytes that ranks printed, and nothing else."""

    def print(self, piece: Mapping[str, Any]) -> None:
        """Print one answer of a daemon's log stream."""
        sys.stdout.flush()
        sys.stdout.buffer.write(piece.get("data") or b"")
        sys.stdout.buffer.flush()

    def finish(self) -> None:
        """Nothing is held back."""
