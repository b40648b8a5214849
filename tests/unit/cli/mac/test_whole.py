"""The demo as a probe."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli.mac.whole import demo

TOLD: dict[str, Any] = {"equal": True, "seconds": 33.4, "error": None, "faults": [{}, {}, {}]}


def prints(told: dict[str, Any] | str) -> tuple[str, ...]:
    text = told if isinstance(told, str) else json.dumps(told)
    return (sys.executable, "-c", f"print({text!r})")


def test_a_demo_that_heals(tmp_path: Path) -> None:
    found = demo(tmp_path, prints(TOLD), lambda: 7)
    assert (found.verdict, found.value) == ("pass", "3 faults, equal bits, 33 s; swap is flat")


@pytest.mark.parametrize(
    ("told", "value", "cure"),
    [
        ({**TOLD, "error": "rank 1 never came back"}, "rank 1 never came back", "make demo"),
        ({**TOLD, "equal": False}, "other bits", "'grain' and 'adamw'"),
        ("Traceback", "status 0", "make demo"),
        ({}, "status 0", "make demo"),
    ],
)
def test_one_that_does_not_is_told(
    tmp_path: Path, told: dict[str, Any] | str, value: str, cure: str
) -> None:
    found = demo(tmp_path, prints(told), lambda: 0)
    assert found.verdict == "fail" and value in found.value and cure in found.cure


def test_a_machine_that_does_not_say_whether_it_swaps_is_well(tmp_path: Path) -> None:
    found = demo(tmp_path, prints(TOLD), lambda: None)
    assert found.verdict == "pass" and "does not say what is swapped out" in found.value


def test_a_machine_that_swaps_for_it_is_told(tmp_path: Path) -> None:
    swapped = iter([1 << 30, 3 << 30])
    found = demo(tmp_path, prints(TOLD), lambda: next(swapped))
    assert found.verdict == "warn" and "swap grew by 2048 MiB" in found.value and found.cure
