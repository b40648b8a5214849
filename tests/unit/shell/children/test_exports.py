"""What a peer may ask of a trainer."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.core.words.bulk import WANTS, WantState
from elasticd.core.words.children import ExportState
from elasticd.errors import ProtocolError
from elasticd.shell.children.exports import checked
from elasticd.types import Stamp

GOOD: dict[str, Any] = {"job": "j", "step": 3, "stamp": "s"}
WHOLE = ExportState(serial=0, step=3, stamp=Stamp("s"), since=None, part=0, parts=1)


def asked(frame: dict[str, Any]) -> ExportState:
    wanted = WANTS.decode({"what": "state", **frame})
    assert isinstance(wanted, WantState)
    return checked(wanted)


@pytest.mark.parametrize(
    "changes",
    [
        {"job": None}, {"step": "3"}, {"step": True}, {"stamp": 3}, {"since": ["s"]},
        {"part": 1}, {"part": -1}, {"parts": 0}, {"parts": 10**6}, {"parts": "2"}, {"part": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_would_end_a_trainer_does_not_reach_it(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        asked(GOOD | changes)


def test_a_whole_state_is_the_default() -> None:
    assert asked(GOOD) == WHOLE
    assert asked(GOOD | {"since": "r", "part": 1, "parts": 2}).part == 1
