"""Commands in messages, for people who paste them into a shell."""

from __future__ import annotations

from pathlib import Path
from shlex import quote


def of_home(command: str, home: Path) -> str:
    """A command of ``elasticctl`` for that home."""
    return f"elasticctl {command} --home {quote(str(home))}"


def quoted(command: str) -> str:
    """A command as it stands in a sentence: in quotes, unless it has some itself."""
    return command if "'" in command else f"'{command}'"
