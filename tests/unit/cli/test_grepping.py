"""``logs --grep``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.cli import grepping
from elasticd.cli.grepping import matching

from .test_commands import Ctl, Daemon

JOB = "byte-lm-1-k3f9"


def texts(pieces: list[dict[str, Any]], pattern: str) -> str:
    return "".join(str(piece["text"]) for piece in matching(pieces, pattern))


@given(st.lists(st.text("ab\r\n", max_size=6), max_size=8))
def test_lines_are_whole_wherever_pieces_end(parts: list[str]) -> None:
    pieces = [{"node": "x", "text": part} for part in parts]
    whole = "".join(parts).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    lines = [line for line in (whole[:-1] if whole[-1] == "" else whole) if "a" in line]
    assert texts(pieces, "a") == "".join(f"{line}\n" for line in lines)


def test_lines_of_several_nodes_are_not_mixed() -> None:
    pieces = [{"node": n, "text": t} for n, t in (("x", "lo"), ("y", "loss 2\n"), ("x", "ss 1\n"))]
    assert texts(pieces, r"loss \d") == "loss 2\nloss 1\n"


def test_of_a_progress_bar_only_the_states_that_match_are_shown() -> None:
    pieces = [{"node": "x", "text": text} for text in ("1 %\r2 %\rloss 1\r", "3 %\r", "\ndone\n")]
    assert texts(pieces, "loss") == "loss 1\n"


def test_a_long_line_is_searched_and_shown_as_a_whole() -> None:
    line = "a" * 300_000 + "needle" + "b" * 300_000
    pieces = [{"node": "x", "text": line[at : at + 100_003]} for at in range(0, len(line), 100_003)]
    assert texts([*pieces, {"node": "x", "text": "\nother\n"}], "needle") == f"{line}\n"
    assert texts([*pieces, {"node": "x", "text": "\nother\n"}], "^aa+needle") == f"{line}\n"


def test_a_line_without_an_end_is_not_held_for_ever() -> None:
    endless = ({"node": "x", "text": "a" * (1 << 20)} for _ in range(20))
    found = matching(endless, "a")
    assert len(next(found)["text"]) == grepping.MAX_SEARCHED_LINE + 1


def test_the_command(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    said = [
        {"rank": 0, "node": "node-0", "text": "loss 1\nother\nloss"},
        {"rank": 1, "node": "node-1", "left_out": "5 bytes"},
        {"rank": 0, "node": "node-0", "text": " 2\n"},
        {"rank": 1, "node": "node-1", "unread": "it is away"},
        {"end": True},
    ]
    daemon(home, {"logs": said})
    code, out, err = ctl("logs", JOB, "--grep", "^loss", "--home", home)
    assert (code, out) == (0, "[0] loss 1\n[0] loss 2\n")
    assert "5 bytes" in err and "it is away" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [(("--grep", "("), "is no regular expression"), (("--grep", "a", "--raw"), "can't be given")],
)
def test_wrong_use(ctl: Ctl, home: Path, words: tuple[str, ...], why: str) -> None:
    code, out, err = ctl("logs", JOB, *words, "--home", home)
    assert (code, out) == (2, "") and why in err and err.count("\n") == 1
