from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil

from elasticd.supervision.program import own_program


def test_it_is_the_file_that_runs() -> None:
    assert own_program() == os.path.realpath(psutil.Process().exe())


def test_of_a_framework_it_is_the_app(tmp_path: Path) -> None:
    inside = tmp_path / "Python.framework/Versions/3.13/Resources/Python.app/Contents/MacOS/Python"
    assert own_program(lambda: str(inside)) == str(inside.parents[2].resolve())


def test_where_the_system_does_not_say_it_is_what_python_says() -> None:
    def fails() -> str:
        raise psutil.AccessDenied

    for runs in (fails, lambda: ""):
        assert own_program(runs) == os.path.realpath(sys.executable)
