"""Services that are told a job's figures, in the place of their packages."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.errors import UsageError
from elasticd.settings.track import TrackSettings
from elasticd.train.outputs import services
from elasticd.train.outputs.services import Destination, Teller
from elasticd.train.steps.tracking import Tracking
from tests.unit.core.leading.bench import spec_of


class FakeRun:
    """As the packages' run: what it was told, and when it ended."""

    def __init__(self) -> None:
        self.told: list[tuple[int, dict[str, float]]] = []
        self.finished = False
        self.blocked = threading.Event()
        self.blocked.set()
        self.fails = False

    def log(self, values: dict[str, float], step: int) -> None:
        assert self.blocked.wait(30)
        if self.fails:
            raise ConnectionError("no route")
        self.told.append((step, values))

    def finish(self) -> None:
        self.finished = True


class Service:
    """Counts the runs that were begun there."""

    def __init__(self) -> None:
        self.runs: list[FakeRun] = []
        self.next = FakeRun()

    def begin(self) -> FakeRun:
        self.runs.append(self.next)
        self.next = FakeRun()
        return self.runs[-1]


def test_a_step_is_told_once_and_in_order() -> None:
    service = Service()
    teller = Teller("wandb", service.begin)
    for step in (1, 2, 3, 2, 3, 4):  # it went back to an earlier state
        teller.tell(step, {"loss": float(step)})
    teller.close()
    (run,) = service.runs
    assert [step for step, _ in run.told] == [1, 2, 3, 4] and run.finished


def test_a_rank_that_is_main_no_more_ends_its_run() -> None:
    """And begins it again if it is main again."""
    service = Service()
    teller = Teller("wandb", service.begin)
    teller.tell(1, {"loss": 1.0})
    teller.leave()
    teller.leave()
    teller.tell(7, {"loss": 0.5})
    teller.close()
    assert [[step for step, _ in run.told] for run in service.runs] == [[1], [7]]
    assert all(run.finished for run in service.runs)


def test_nobody_is_begun_where_nothing_is_told() -> None:
    service = Service()
    teller = Teller("wandb", service.begin)
    teller.leave()
    teller.close()
    assert not service.runs


def test_what_fails_is_said_once_and_ends_no_job(capsys: pytest.CaptureFixture[str]) -> None:
    service = Service()
    service.next.fails = True
    teller = Teller("trackio", service.begin)
    for step in range(1, 4):
        teller.tell(step, {"loss": 1.0})
    teller.close()
    teller.tell(5, {"loss": 1.0})
    said = capsys.readouterr().err
    assert said.count("trackio of [track] is told nothing more: ConnectionError: no route") == 1


def test_a_slow_service_keeps_no_step_waiting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(services, "MOST_WAITING", 2)
    service = Service()
    run = service.next
    run.blocked.clear()
    teller = Teller("wandb", service.begin)
    for step in range(1, 9):
        teller.tell(step, {"loss": 1.0})
    assert capsys.readouterr().err.count("wandb of [track] is too slow: steps from ") == 1
    teller.close(0.01)
    assert "has not taken everything after 0.01 s; the rest is lost" in capsys.readouterr().err
    run.blocked.set()


FAKE = """
import pathlib
class Settings:
    def __init__(self, **told): self.told = told
class Run:
    def __init__(self, told): self.told = told
    def log(self, values, step): lines.append(("log", step, values))
    def finish(self): lines.append(("finish",))
lines = []
def init(**told):
    lines.append(("init", {k: v for k, v in told.items() if k != "settings"}))
    return Run(told)
"""


@pytest.fixture(params=["wandb", "trackio"])
def package(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A package of that name, whose calls can be read."""
    name: str = request.param
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / f"{name}.py").write_text(FAKE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    real = sys.modules.pop(name, None)
    yield name
    del sys.modules[name]
    if real is not None:
        sys.modules[name] = real


def unused(name: str) -> Callable[[bytes], None]:
    raise AssertionError(name)


@pytest.mark.parametrize("outputs", ["job-1-abcd", "output"])
def test_main_tells_a_run_that_has_the_jobs_id(package: str, tmp_path: Path, outputs: str) -> None:
    """A script alone begins a new one each time."""
    track = replace(TrackSettings(), **{package: "things"})  # type: ignore[arg-type]
    spec = replace(spec_of(), track=track)
    spec = replace(spec, job=replace(spec.job, name="job"))
    main, other = (Tracking(spec, unused, tmp_path / outputs) for _ in range(2))
    for each in (main, other):
        each.begin()
        each.body_ends(1, 2.0, {"accuracy": 0.5}, 2, is_main=each is main)
        each.end()
    module: Any = sys.modules[package]
    (_, told), logged, finished = module.lines
    assert told["project"] == "things" and finished == ("finish",)
    assert logged == ("log", 1, {"loss": 2.0, "accuracy": 0.5, "elasticd/world_size": 2.0})
    is_job = outputs != "output"
    assert told["name"] == (outputs if is_job else "job")
    assert (told.get("resume") == "allow") == is_job
    if package == "wandb":
        assert told.get("id") == (outputs if is_job else None)
        assert told["dir"] == str(tmp_path / outputs / "wandb")


def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "find_spec", lambda name: None)
    spec = replace(spec_of(), track=TrackSettings(wandb="things"))
    with pytest.raises(UsageError, match="pip install wandb"):
        Tracking(spec, unused, tmp_path).begin()


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_the_package_itself(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip(name, reason=f"needs the package {name}")
    run = Destination("things", "job-1-abcd", True, tmp_path / "out")
    for steps in ((1, 2), (2, 3)):  # two mains, one after the other
        teller = Teller(name, lambda: services.PACKAGES[name](run))
        for step in steps:
            teller.tell(step, {"loss": 1.0 / step})
        teller.close()
    folder = tmp_path / ("out" if name == "wandb" else "trackio")
    assert [path for path in folder.rglob("*") if path.is_file()]
