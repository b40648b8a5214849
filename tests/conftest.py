"""Helpers are imported from the checkout's root, however pytest is started."""

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.nursery import Nurseries

# On a busy machine an example takes as long as it takes.
settings.register_profile("elasticd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# make check looks at each once more, briefly; make test and make deep look at length.
settings.register_profile("quick", settings.get_profile("elasticd"), max_examples=15)
settings.load_profile("elasticd")

ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

# By itself Python looks for garbage at each 700 new objects; collecting the tests makes a million.
gc.set_threshold(10_000, 10, 50)

# Hundreds of processes start, and in each numpy would start threads for products of large matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell ignores SIGINT for what it starts in the background, and programs that tests start and
# interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def no_users_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What runs alone keeps its tokens in the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTICD_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def travel() -> Iterator[Callable[[str], None]]:
    """Puts this process into another time zone."""
    with pytest.MonkeyPatch.context() as patch:

        def go(where: str) -> None:
            patch.setenv("TZ", where)
            time.tzset()

        yield go
    time.tzset()


@pytest.fixture(scope="session")
def nurseries() -> Iterator["Nurseries"]:
    """Where daemons and commands are forked."""
    from tests.nursery import Nurseries

    with contextlib.closing(Nurseries()) as made:
        yield made


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: a fifth of the time a test waits for other processes."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """make deep looks for marks with grep; a test that it didn't find would never run."""
    for path, name in {(item.path, mark.name) for item in items for mark in item.iter_markers()}:
        if name in ("alone", "deep", "slow") and f"mark.{name}" not in path.read_text():
            raise pytest.UsageError(f"{path}: write pytest.mark.{name} there, for make deep")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """.ci/run tells at its end what was skipped."""
    from tests import nottried

    nottried.pytest_terminal_summary(terminalreporter)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is collected stays until the end: a search for garbage needn't look at it each time.

    These searches took a sixth of the processor time of tests that start no process.
    """
    gc.collect()
    gc.freeze()
