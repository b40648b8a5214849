"""What one rank of a plain job tells the others while worlds come and go."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.outputsigns import asked_ns, note_came
from elasticd.recipes import plain
from elasticd.recipes.keeping import Keeper, Keeping
from elasticd.recipes.kept import FOLDER
from elasticd.recipes.plain import _Company
from elasticd.recipes.script import Script
from elasticd.recovery import plain as p
from elasticd.settings.job import JobSpec
from elasticd.train.world import TrainerWorld
from elasticd.types import NodeId, Tag
from tests.unit.train.states.test_writer import world_of

SPEC: dict[str, dict[str, Any]] = {
    "job": {"name": "p", "entrypoint": "train.py", "mode": "plain"},
    "plain": {"keep": ["*.npz"]},
}
DEADLINE_SECONDS = 30.0


class SlowKeeper(Keeper):
    """It keeps nothing before ``go``, as where much is to be copied."""

    go = threading.Event()

    def look(self, *, ended: bool = False) -> bool:
        self.go.wait()
        return super().look(ended=ended)


def world(folder: Path, counter: int, *members: str) -> TrainerWorld:
    size = len(members)
    return replace(
        world_of(folder, size=size),
        generation=Tag(counter, NodeId("a"), "n"),
        members=tuple(map(NodeId, members)),
        addresses=("127.0.0.1",) * size,
    )


def rank(told: p.ScriptWord, number: int, state: p.ScriptState) -> p.ScriptWord:
    """What another one says in that world."""
    ring = None if state == "none" else (1, "a", "n")
    return replace(told, rank=number, state=state, ring=ring)


def test_who_comes_while_the_last_files_are_kept_does_not_begin_the_script_anew(
    tmp_path: Path,
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work/last.npz").write_text("weights")
    company = _Company(JobSpec.from_dict(SPEC))
    run: Any = SimpleNamespace(_world=world(tmp_path, 1, "a", "b"), output_dir=tmp_path / "out")
    company._run = run
    keeper = SlowKeeper(tmp_path / "work", tmp_path / "out", ["*.npz"], 1)
    try:
        company._enter()
        old = company._told
        history = p.ScriptHistory(1, old.world, old.members)
        company._told = replace(old, ring=old.world, state="running")
        company._script = script = Script([sys.executable, "-c", ""], tmp_path / "work", {})
        company._keeping = Keeping(keeper, print)
        until(lambda: script.status() == 0)
        assert not company._look()
        run._world = world(tmp_path, 2, "a", "b", "c")
        company._enter()
        there = replace(old, world=(2, "a", "n"), members=("a", "b", "c"))
        others = [rank(there, 1, "done"), rank(there, 2, "none")]
        order, _ = p.decide([company._told, *others], history, p.Limits(8, 600.0))
        assert order == p.NotYet()
        keeper.go.set()
        until(company._look)
        company._enter()
        assert (company._told.world, company._told.state) == ((2, "a", "n"), "done")
        order, _ = p.decide([company._told, *others], history, p.Limits(8, 600.0))
        assert order == p.Finish()
        assert list((tmp_path / "out" / FOLDER).rglob("*")), "they are kept"
    finally:
        keeper.go.set()
        company.end()


def company_in(folder: Path, rank: int) -> tuple[_Company, Callable[[int], None]]:
    """One beside a rank of two, and what has it enter a world."""
    company = _Company(JobSpec.from_dict(SPEC))
    company._run = run = SimpleNamespace(_world=None, output_dir=folder)  # type: ignore[assignment]

    def enter(counter: int) -> None:
        run._world = replace(world(folder, counter, "a", "b"), rank=rank)
        company._enter()

    return company, enter


def test_no_script_begins_before_rank_0s_files_are_with_the_other_ranks(tmp_path: Path) -> None:
    company, enter = company_in(tmp_path, 1)
    try:
        for counter in (1, 2):
            enter(counter)
            company._enter()
            there = company._told
            order, _ = p.decide(
                [rank(replace(there, port=5), 0, "none"), there],
                p.ScriptHistory(),
                p.Limits(8, 600.0),
            )
            assert order == p.NotYet()
            note_came(tmp_path, asked_ns(tmp_path))
            company._enter()
            order, _ = p.decide(
                [rank(replace(there, port=5), 0, "none"), company._told],
                p.ScriptHistory(),
                p.Limits(8, 600.0),
            )
            assert isinstance(order, p.Begin)
    finally:
        company.end()


def test_rank_0_asks_nobody_for_its_own_files(tmp_path: Path) -> None:
    company, enter = company_in(tmp_path, 0)
    try:
        enter(1)
        assert company._told.port and not asked_ns(tmp_path)
    finally:
        company.end()


def test_where_they_do_not_come_it_begins_without_them_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its bound is none in this test."""
    monkeypatch.setattr(plain, "_FILES_SECONDS", 0.0)
    company, enter = company_in(tmp_path, 1)
    try:
        enter(1)
        assert company._told.port
    finally:
        company.end()
    assert "rank 0's newest files are not here" in "".join(capfd.readouterr())


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while not done():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_a_python_that_is_not_there_is_named_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    python = str(tmp_path / "no" / "python")
    company = _Company(JobSpec.from_dict({**SPEC, "job": {**SPEC["job"], "python": python}}))
    entered = world(tmp_path, 1, "a")
    run: Any = SimpleNamespace(_world=entered, output_dir=tmp_path)
    seat: Any = SimpleNamespace(driver=SimpleNamespace(note=lambda told: None))
    company._run, company._seat = run, seat
    try:
        company._enter()
        company._begin(p.Begin(company._told.world, (0,), 0))
        assert (company._told.state, company._told.status) == ("failed", 127)
        named = (
            f'job.python = "{python}" can\'t be started on this node (No such file or directory)'
        )
        cure = "install a Python there, or name one that every node has"
        assert company._told.text == f"{named}: {cure}"
    finally:
        company.end()
