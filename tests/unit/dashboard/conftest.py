from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.unit.client.fake_daemon import FakeDaemon
from tests.unit.dashboard.asking import end_threads


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    yield
    end_threads()


@pytest.fixture
def daemon() -> Iterator[Callable[[Path, Any], FakeDaemon]]:
    """``daemon(home, answers)`` is a fake daemon that serves until the test ends."""
    with ExitStack() as running:
        yield lambda home, answers: running.enter_context(FakeDaemon(home, answers))
