"""Numbers of things, and times, in words for people."""

from __future__ import annotations


def counted(number: object, one: str, many: str = "") -> str:
    """``1 node``, ``2 nodes``; ``many`` where that isn't ``one`` with an s, as with a verb:
    ``counted(n, "member is", "members are")``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def gibibytes(count: int) -> str:
    """So many bytes."""
    return f"{count / (1 << 30):.1f} GiB"


def lasting(seconds: float | None) -> str | None:
    """How long something took."""
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
