"""``[notify]`` of elasticd.toml: whom this node tells when something has happened."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from elasticd.settings.rules import Wrong, list_of, rule, secret, text

DESKTOP = "desktop"
HIDDEN = "…"
"""Is shown in place of what may be a secret."""
_MOST_WORDS = 64

Hook = str | tuple[str, ...]
"""Empty: none. A command with its arguments, the URL of a webhook, or :data:`DESKTOP`."""


def _hook(value: object) -> Hook:
    if isinstance(value, list | tuple):
        words = list_of(text(), _MOST_WORDS)(value)
        assert isinstance(words, tuple)
        if words and not words[0].startswith("/"):
            raise Wrong("a program is not said with its whole path")
        return words
    said = text()(value)
    assert isinstance(said, str)
    if said not in ("", DESKTOP) and not _is_url(said):
        raise Wrong("no URL")
    return said


def _is_url(said: str) -> bool:
    if not said.isascii() or not said.isprintable() or " " in said:
        return False
    try:
        parts = urlsplit(said)
        named = bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
        return named and parts.scheme in ("http", "https")
    except ValueError:
        return False


def _told(what: str) -> dict[str, Any]:
    hint = (
        'a command as an array that begins with its whole path ("/…"), the URL of a webhook (http'
        " or https, without user:password@: a token goes into its path or a command), or"
        f' "{DESKTOP}" (its value is not shown: it may be a secret)'
    )
    about = (
        f'Is run, or told, when {what}: ["/path/to/command"], "https://…" or "{DESKTOP}" (macOS).'
    )
    return rule(secret(_hook, hint), about)


@dataclass(frozen=True)
class NotifyRules:
    """``[notify]``: what is done on each event. Its values may be secrets, and are never shown."""

    job_finished: Hook = field(default="", metadata=_told("a job has finished"))
    job_failed: Hook = field(default="", metadata=_told("a job has failed"))
    parked: Hook = field(default="", metadata=_told("a job waits for nodes"))
    node_lost: Hook = field(default="", metadata=_told("a node is lost"))

    @property
    def told(self) -> tuple[str, ...]:
        """The events on which something is done."""
        return tuple(item.name for item in fields(self) if getattr(self, item.name))
