"""Which program this process is to the system, which lets programs in or keeps them out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import psutil


def _runs() -> str:
    return psutil.Process().exe()


def own_program(runs: Callable[[], str] = _runs) -> str:
    """As macOS knows it: the link in a virtual environment leads to a stub of the framework's, and
    that starts another program, inside of Python.app."""
    try:
        path = Path(runs() or sys.executable).resolve()
    except (psutil.Error, OSError):
        path = Path(sys.executable).resolve()
    apps = [each for each in path.parents if each.suffix == ".app"]
    return str(apps[0] if apps else path)
