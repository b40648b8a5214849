"""Commands in messages, for people who paste them into a shell."""

from __future__ import annotations

from pathlib import Path
from shlex import quote


def word(text: str | Path) -> str:
    """What the shell takes for that one word: a Mac's own home has a space in its path."""
    return quote(str(text))


def pasted(command: str, *words: str | Path) -> str:
    """A command, and words behind it that the shell is to take as they are."""
    return " ".join([command, *map(word, words)])


def of_home(command: str, home: Path) -> str:
    """A command of ``elasticctl`` for that home."""
    return pasted(f"elasticctl {command} --home", home)


def quoted(command: str, *words: str | Path) -> str:
    """As :func:`pasted`, for a sentence: in quotes, unless it has some itself."""
    text = pasted(command, *words)
    return text if "'" in text else f"'{text}'"
