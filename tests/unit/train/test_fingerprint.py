"""Whether MLX fuses kernels on the CPU, which members of a job must have alike."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest

from elasticd.train.fingerprint import has_compiler


@pytest.mark.parametrize("found", [0, 1, FileNotFoundError(), subprocess.TimeoutExpired("g++", 9)])
def test_a_compiler_that_is_there_and_fails_is_none(found: int | Exception) -> None:
    """As the one of a Mac without Apple's command line tools."""
    asked: list[Sequence[str]] = []

    def run(command: Sequence[str], timeout_seconds: float) -> tuple[int, str]:
        asked.append(command)
        if isinstance(found, Exception):
            raise found
        return found, "xcode-select: note: No developer tools were found"

    assert has_compiler(run) is (found == 0)
    assert has_compiler(run) is (found == 0)
    assert asked == [("g++", "--version")], "it is asked once in a process"
