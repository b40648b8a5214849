"""What a check or a probe comes to: the same words wherever something is tried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ProbeVerdict = Literal["pass", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """``value``: what was seen or measured. ``cure``: what to do, unless it passed."""

    verdict: ProbeVerdict
    value: str
    cure: str = ""


def passed(value: str) -> ProbeFinding:
    return ProbeFinding("pass", value)


def warned(value: str, cure: str) -> ProbeFinding:
    return ProbeFinding("warn", value, cure)


def failed(value: str, cure: str) -> ProbeFinding:
    return ProbeFinding("fail", value, cure)
