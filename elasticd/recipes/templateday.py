"""The day that chat templates write: that of the job's submission, on each node and at each start.

Templates ask for it by ``strftime_now``, and transformers answers by the machine's clock. A node in
another time zone, or one that joins after midnight, would train on other tokens than the rest.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from datetime import date, datetime
from functools import cache
from typing import Any

from elasticd.errors import UsageError
from elasticd.settings.recipe import DAY_VARIABLE
from elasticd.settings.rules import show

ASKED_BY = "strftime_now"
_PROBE = "{{ strftime_now('%Y-%m-%d') }}"


def day_for(text: str | bytes) -> date | None:
    """What :data:`DAY_VARIABLE` says, if the ``text`` of a template or of its file asks for a day;
    None: it doesn't, or it is to write today's, as nobody says one.

    Raises:
        UsageError: what it says is no day.
    """
    asks = ASKED_BY in text if isinstance(text, str) else ASKED_BY.encode() in text
    said = os.environ.get(DAY_VARIABLE)
    if not asks or not said:
        return None
    try:
        day = date.fromisoformat(said)
    except ValueError:
        message = f"{DAY_VARIABLE} must be a day, as 2026-11-30, not {show(said)}"
        raise UsageError(message) from None
    return day if _is_given(day) else None


@contextlib.contextmanager
def written(day: date | None, code: Any = None) -> Iterator[None]:
    """Templates that are rendered meanwhile write ``day``; None: today's. ``code``: transformers'
    of templates, whose clock is another one for so long. It has no other way to say a day."""
    if day is None:
        yield
        return
    code = code or _template_code()
    clock = code.datetime
    code.datetime = _stopped(day)
    try:
        yield
    finally:
        code.datetime = clock


def is_written(day: date, code: Any) -> bool:
    """Whether ``code`` takes its day from where :func:`written` sets it."""
    try:
        with written(day, code):
            rendered, _ = code.render_jinja_template(
                conversations=[[{"role": "user", "content": ""}]], chat_template=_PROBE
            )
    except Exception:  # another version may have none of it
        return False
    return bool(rendered == [day.isoformat()])


@cache
def _is_given(day: date) -> bool:
    """As :func:`is_written`; if it isn't so that is said, once."""
    if is_written(day, _template_code()):
        return True
    from importlib.metadata import version

    print(
        f"elasticd: the chat template writes the day ({ASKED_BY}), and transformers"
        f" {version('transformers')} can't be given the job's, {day}: each node writes today's. A"
        " node in another time zone, or one that joins on another day, then has other tokens and"
        f" is left out. Have a template without {ASKED_BY}, or an earlier transformers",
        file=sys.stderr,
    )
    return False


def _template_code() -> Any:
    from transformers.utils import chat_template_utils

    return chat_template_utils


def _stopped(day: date) -> type[datetime]:
    class Stopped(datetime):
        """A clock that shows the first moment of that day."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime(day.year, day.month, day.day, tzinfo=tz)

    return Stopped
