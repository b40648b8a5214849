"""Run a script of the gallery in one process, with ranks that are threads and die at any call.

Far quicker than real daemons, and enough to find state that a successor isn't given. There are no
processes, signals or files of its own: what a script does with those shows on real daemons only.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import elasticd
from elasticd.settings.job import load
from elasticd.train.run import Run
from elasticd.train.steps import randomness
from tests.gallery.cards import Card
from tests.unit.train.cohort import Cohort, Killed

NOT_HERE = frozenset(
    {
        "signal_handlers", "multiprocess_loader", "log_file_at_top", "generator_in_module",
        "hub_stream",
    }
)  # fmt: skip
"""They want the main thread, to be imported, or a folder or a library's cache for each rank."""


class Watched(Run):
    """What the scripts take for ``elasticd.Run``; it notes the digest where their loop ends."""

    noted: ClassVar[dict[int, str]] = {}
    """By thread, since each rank is one."""

    def _steps(self, clip_norm: float | None, *, as_they_are: bool) -> Generator[Any]:
        with contextlib.suppress(GeneratorExit):  # the script may leave its loop
            yield from super()._steps(clip_norm, as_they_are=as_they_are)
        self.noted[threading.get_ident()] = self.digest()


@contextlib.contextmanager
def _as_a_job(folder: Path, args: list[str]) -> Iterator[None]:
    """What a trainer's process is to its script."""
    before = os.getcwd(), sys.argv, list(sys.path), dict(os.environ)
    os.chdir(folder)
    sys.argv = [str(folder / "train.py"), *args]
    sys.path.insert(0, str(folder))
    vars(elasticd)["Run"] = Watched
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        del vars(elasticd)["Run"]
        os.chdir(before[0])
        sys.argv, sys.path[:] = before[1], before[2]
        os.environ.clear()
        os.environ.update(before[3])


def digests(card: Card, folder: Path, ranks: str, kills: dict[str, int], seed: str) -> list[str]:
    """The final digest of each rank that lived to the end.

    ``kills``: at which of its calls a rank dies. The first to die has a successor.

    Raises:
        BaseException: what a rank's script ended with.
    """
    spec = load(card.lay_out(folder))
    text = (folder / "train.py").read_text()
    code = compile(text, str(folder / "train.py"), "exec", dont_inherit=True)

    def script(seat: Any) -> str:
        randomness.seed_script(spec.train.seed)
        exec(code, {"__name__": "__main__", "__file__": str(folder / "train.py")})
        return Watched.noted.pop(threading.get_ident())

    dice = random.Random(seed)
    cohort = Cohort(spec, script, dice)
    cohort.kills, cohort.respawn = kills, bool(kills)
    cohort.outputs, cohort.moves = folder / "output", dice.random() < 0.5
    # How a successor comes by its state, and whoever is a step behind by the step.
    cohort.delivers, cohort.keeps_updates = dice.random() < 0.5, dice.random() < 0.5
    with _as_a_job(folder, list(spec.job.args)):
        os.environ.update(spec.job.env)
        results = cohort.run(list(ranks)).values()
    errors = [result.error for result in results if result.error is not None]
    # Ranks that wait for one that failed fail, too, by an assertion: they come last.
    errors = [error for error in errors if not isinstance(error, Killed)]
    for error in sorted(errors, key=lambda error: isinstance(error, AssertionError)):
        raise error
    return [result.value for result in results if result.error is None]
