"""MLX's limits on memory, and what a trainer tells of what it uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import mlx.core as mx
import psutil
import pytest

from elasticd.core.taking_part.retelling import progress_for_leader
from elasticd.core.words.trainers import FROM_TRAINER, TrainerProgress
from elasticd.train.steps import relief
from elasticd.train.steps.progress import WorkReport
from elasticd.train.steps.relief import Limit, TrainerRelief, begin, trainers_at_work
from elasticd.types import Point
from tests.unit.core.leading.bench import A, Bench
from tests.unit.train.steps.test_recompute import Net

GIB = 1 << 30


class Wired:
    """MLX's own on Metal: it returns the limit of before (set_wired_limit of its reference)."""

    def __init__(self) -> None:
        self.bytes = 0

    def set(self, limit_bytes: int) -> int:
        before, self.bytes = self.bytes, limit_bytes
        return before


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wired]:
    found, usual = Wired(), mx.set_cache_limit(12345678)
    mx.set_cache_limit(usual)
    monkeypatch.setattr(relief, "_WIRED", Limit(found.set, 0))
    yield found
    mx.set_cache_limit(usual)


@pytest.mark.parametrize(("trainers", "share"), [(1, 48 * GIB), (3, 16 * GIB), (0, 48 * GIB)])
def test_a_trainer_at_work_keeps_its_share_resident(
    wired: Wired, trainers: int, share: int
) -> None:
    begin(True, 64 * GIB, lambda: trainers, working_set_bytes=48 * GIB)
    assert wired.bytes == 0
    level = TrainerRelief(Net())
    for given_up in (0, 0, 1, 2, 0):
        level.apply(given_up)
        assert wired.bytes == (0 if given_up else share)


@pytest.mark.parametrize(("trainers", "share"), [(0, 48 * GIB), (1, 0), (3, 0)])
def test_what_is_tried_beside_trainers_keeps_nothing_resident(
    wired: Wired, trainers: int, share: int
) -> None:
    begin(True, 64 * GIB, lambda: trainers, working_set_bytes=48 * GIB, aside=True)
    TrainerRelief(Net()).apply(0)
    assert wired.bytes == share
    cache = mx.set_cache_limit(0)
    assert cache == 32 * GIB // (trainers + 1)


def test_only_a_trainer_of_a_daemon_takes_a_trainers_share() -> None:
    train = Path(relief.__file__).parents[1]
    sources = {path.relative_to(train).as_posix(): path.read_text() for path in train.rglob("*.py")}
    assert [name for name, text in sources.items() if "relief.begin()" in text] == ["link/host.py"]
    assert sum("relief.begin(aside=True)" in text for text in sources.values()) == 2


def test_what_the_script_keeps_resident_itself_counts(wired: Wired) -> None:
    begin(True, 64 * GIB, lambda: 1, working_set_bytes=48 * GIB)
    wired.set(7 * GIB)
    TrainerRelief(Net()).apply(0)
    assert wired.bytes == 7 * GIB


@dataclass(frozen=True)
class Process:
    """As psutil shows one; None: another account's, which a Mac doesn't show."""

    pid: int
    parent: int
    words: list[str] | None = field(default_factory=lambda: ["python", "-m", "elasticd.train"])

    def ppid(self) -> int:
        return self.parent

    def cmdline(self) -> list[str]:
        if self.words is None:
            raise psutil.AccessDenied(self.pid)
        return self.words


class Unreadable(Process):
    """Of such a one psutil itself fails (its issue 2854), or macOS says no reason."""

    def cmdline(self) -> list[str]:
        raise SystemError("returned a result with an exception set")


DAEMON, OTHER = 100, 200


@pytest.mark.parametrize(
    ("processes", "at_work"),
    [
        ([Process(1, DAEMON)], 1),
        ([Process(101, DAEMON), Process(102, DAEMON), Process(103, DAEMON)], 1),  # with two spares
        ([Process(101, DAEMON), Process(102, DAEMON), Process(201, OTHER)], 2),  # of two daemons
        ([Process(101, DAEMON), Process(102, 101)], 1),  # a trainer has forked
        ([Process(101, 1), Process(102, DAEMON)], 1),  # its daemon was restarted
        ([Process(101, DAEMON), Process(102, 7, ["vi", "elasticd.train.py"])], 1),
        ([Process(101, DAEMON), Process(201, OTHER, None)], 1),
        ([Unreadable(7, 1), Process(101, DAEMON), Unreadable(8, 1)], 1),
    ],
)
def test_spares_take_no_share_of_the_memory(processes: list[Process], at_work: int) -> None:
    assert trainers_at_work(lambda: processes) == at_work


def test_without_metal_nothing_is_kept_resident(wired: Wired) -> None:
    begin(False, 64 * GIB, lambda: 1, working_set_bytes=48 * GIB)
    TrainerRelief(Net()).apply(0)
    assert wired.bytes == 0


def test_a_trainer_tells_what_mlx_uses() -> None:
    kept = mx.ones((1 << 20,), mx.uint8)
    mx.eval(kept)
    told = WorkReport().figures()
    assert told.memory_bytes > 0
    assert told.peak_bytes >= told.active_bytes >= kept.nbytes
    assert told.cached_bytes >= 0


def test_the_leader_shows_what_each_rank_uses() -> None:
    bench = Bench()
    world = bench.adopt()
    use = {"active_bytes": 1, "cached_bytes": 2, "peak_bytes": 3}
    figures = replace(WorkReport().figures(), active_bytes=1, cached_bytes=2, peak_bytes=3)
    said = figures.told(world.generation, Point(world.lineage, 0, world.stamp), None, begun=False)
    read = FROM_TRAINER.decode(FROM_TRAINER.encode(said))
    assert isinstance(read, TrainerProgress)
    bench.driver.hear(A, progress_for_leader(world.job, read))
    shown = [{name: rank[name] for name in use} for rank in bench.driver.summary()["ranks"]]
    assert shown == [use, dict.fromkeys(use, 0), dict.fromkeys(use, 0)]


def test_more_than_a_dimension_can_have_is_asked_for_in_rows() -> None:
    """As a shortage on Metal has to be: its longest buffer has tens of gigabytes."""
    size = (36 << 30) + 1
    assert relief.unmade(size).nbytes >= size
    relief.allocate(5 << 20)
