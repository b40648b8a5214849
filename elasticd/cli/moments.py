"""Moments as people name them: how long ago, or a local time."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

from elasticd.errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def age(seconds: float) -> str:
    """How long something took or is ago, in the largest unit of which it is at least two."""
    fitting = [name for name, size in _UNITS.items() if seconds >= 2 * size]
    unit = fitting[-1] if fitting else "s"
    return f"{seconds / _UNITS[unit]:.0f} {unit}"


def since(text: str | None, now: float | None = None) -> float | None:
    """The Unix time that ``text`` names; a time of day is the last such.

    Raises:
        UsageError: it names none.
    """
    if text is None:
        return None
    now = time.time() if now is None else now
    if ago := re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([smhd])", text, re.ASCII):
        return now - float(ago[1]) * _UNITS[ago[2]]
    if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text, re.ASCII):
        return float(text)
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text, re.ASCII):
            clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M").time()
            today = datetime.fromtimestamp(now)
            # By the calendar: a day may have 23 or 25 hours, and an hour come twice or not at all.
            days, times = (today, today - timedelta(days=1)), (clock, clock.replace(fold=1))
            found = (datetime.combine(day, clock).timestamp() for day in days for clock in times)
            return max(moment for moment in found if moment <= now)
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--since: {text!r} is no time; say 90s, 10m, 2h, 3d, 14:30 or '2026-01-31 14:30'"
        ) from None
