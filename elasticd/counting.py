"""Numbers of things, in words for people."""

from __future__ import annotations


def counted(number: object, one: str, many: str = "") -> str:
    """``1 node``, ``2 nodes``; ``many`` where that isn't ``one`` with an s, as with a verb:
    ``counted(n, "member is", "members are")``."""
    return f"{number} {one if number == 1 else many or one + 's'}"
