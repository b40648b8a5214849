"""Files of ``run.open`` have each step's lines once, whoever was main and whoever dies."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.nn as nn
import mlx.optimizers as optim
import pytest

import elasticd
from elasticd.errors import UsageError
from elasticd.outputs import OWN_FOLDER, index_of, list_files, older_index_of
from elasticd.stepindex import BASE
from elasticd.train.outputs.stepfile import StepFile
from elasticd.train.steps import logs
from elasticd.train.steps.logs import RunLogs
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, Killed, Seat, spec

STEPS = 8
LINES = ["step", *map(str, range(1, STEPS + 1))]


def script(
    high: bool, stops: int = 0, breaks: bool = False, head: str = ""
) -> Callable[[Any], Path]:
    """Its lines are of another length on each rank."""

    def run_it(seat: Any) -> Path:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = optim.Adam(1e-2)
        run = elasticd.Run(
            model=model, optimizer=optimizer, loss=models.loss, data=models.samples()
        )
        log = run.open("logs/metrics.csv")
        print("step", head or seat.name * 3, file=log)
        if high:
            for step in run:
                if seat.cohort.dies_after.get(seat.name) == step.number:
                    raise Killed
                print(step.number, seat.name * 2 * len(seat.name), file=log, flush=True)
                if step.number == stops:
                    if breaks:
                        break
                    run.stop()
        else:
            loss_and_grad: Any = nn.value_and_grad(model, models.loss)
            for step in run.steps():
                log.write(f"{step.number} ")
                for batch in step.micro_batches():
                    step.accumulate(*loss_and_grad(model, batch))
                step.apply()
                log.write(seat.name * 2 + "\n")
        log.write("done\n")
        log.close()
        return run.output_dir / "logs" / "metrics.csv"

    return run_it


def cohort(tmp_path: Path, body: Any, seed: int, **changes: Any) -> Cohort:
    job = spec(train__steps=STEPS, checkpoint__every_steps=3, **changes)
    made = Cohort(job, body, random.Random(seed))
    made.outputs = tmp_path
    return made


def words(path: Path) -> list[str]:
    """The first word of each line."""
    return [line.split()[0] for line in path.read_text().splitlines()]


def files(made: Cohort, names: str) -> dict[str, Path]:
    results = made.run(list(names))
    for result in results.values():
        if isinstance(result.error, Exception):
            raise result.error
    return {name: result.value for name, result in results.items() if result.error is None}


@pytest.mark.parametrize("high", [True, False])
@pytest.mark.parametrize("names", ["a", "abc"])
def test_every_step_is_there_once(tmp_path: Path, high: bool, names: str) -> None:
    for path in files(cohort(tmp_path, script(high), 1), names).values():
        assert words(path) == [*LINES, "done"]


def test_at_checkpoints_every_file_is_as_mains(tmp_path: Path) -> None:
    """Of what main wrote before it died all have its last checkpoint's."""
    made = cohort(tmp_path, script(True), 9)
    made.dies_after = {"a": 5}
    for path in files(made, "abc").values():
        lines = path.read_text().splitlines()
        assert lines[:4] == ["step aaa", *(f"{step} aa" for step in (1, 2, 3))]
        assert lines[4:-1] == [f"{step} bb" for step in range(4, STEPS + 1)]


@pytest.mark.parametrize("reduction", ["exact", "fast"])
def test_at_the_end_every_file_is_as_mains(tmp_path: Path, reduction: str) -> None:
    found = files(cohort(tmp_path, script(True), 2, world__reduction=reduction), "abc")
    for path in found.values():
        lines = path.read_text().splitlines()
        assert lines == ["step aaa", *(f"{step} aa" for step in range(1, STEPS + 1)), "done"]


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 24))]
)
def test_it_does_not_matter_who_dies(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    made = cohort(tmp_path, script(high=seed % 2 == 0), seed)
    made.kills = {name: dice.randrange(5, 120) for name in "ab"}
    made.respawn, made.moves = True, dice.random() < 0.5
    made.delivers, made.keeps_updates = dice.random() < 0.5, dice.random() < 0.5
    found = files(made, "abc")
    assert len(found) >= 2
    for path in found.values():
        assert words(path) == [*LINES, "done"]


@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_job_that_is_stopped_has_its_last_lines(tmp_path: Path, seed: int, breaks: bool) -> None:
    made = cohort(tmp_path, script(True, stops=5, breaks=breaks), seed)
    made.kills, made.respawn = {"b": random.Random(seed).randrange(40, 90)}, seed % 2 == 0
    for path in files(made, "abc").values():
        assert words(path) == [*LINES[:6], "done"]


def test_one_step_behind(tmp_path: Path) -> None:
    made = cohort(tmp_path, script(True), 3)
    made.dies_behind = {"a": 4}
    for path in files(made, "abc").values():
        assert words(path) == [*LINES, "done"]


def test_a_run_that_begins_anew_begins_its_file_anew(tmp_path: Path) -> None:
    for head in ("first", "second"):
        (path,) = files(cohort(tmp_path, script(True, head=head), 1), "a").values()
        assert words(path) == [*LINES, "done"]
        assert path.read_text().splitlines()[0] == f"step {head}"


def test_who_comes_at_the_very_end_has_all_of_it(tmp_path: Path) -> None:
    made = cohort(tmp_path, script(True), 7)
    made.dies_after = {"a": STEPS}
    made.respawn = made.moves = True
    found = files(made, "ab")
    assert found.keys() == {"a'", "b"}
    for path in found.values():
        assert words(path) == [*LINES, "done"]


def test_a_process_that_goes_back_takes_its_lines_back(tmp_path: Path) -> None:
    made = cohort(tmp_path, lambda seat: None, 8)
    standing: Any = SimpleNamespace(seat=Seat(made, "a"), step=1, set_up=False, loss=None)
    logs = RunLogs(standing)
    file = logs.open("log")
    for back in (6, 3):
        while standing.step < back:
            standing.set_up = True
            logs.level(None)
            file.write(f"{standing.step}\n")
            standing.step += 1
            logs.body_ends()
        standing.step = 3
    logs.level(None)
    assert words(tmp_path / "a" / "log") == ["1", "2"]


def test_each_has_lines_that_the_others_lack(tmp_path: Path) -> None:
    """Its node was away then; nodes that are not there may leave none who has all of them."""
    away = {"a": (1, 4), "b": (2, 6), "c": (2, 5)}

    def body(seat: Any) -> Path:
        run = elasticd.Run(
            model=nn.Linear(4, 3),
            optimizer=optim.Adam(1e-2),
            loss=models.loss,
            data=models.samples(),
        )
        log = run.open("log")
        (held,) = run._runner.logs._logs.values()
        for step in run:
            held.opened = step.number not in away[seat.name]
            if held.opened:
                print(step.number, seat.name, file=log)
        return run.output_dir / "log"

    for path in files(cohort(tmp_path, body, 11), "abc").values():
        lines = path.read_text().splitlines()
        assert lines == ["1 b", "2 a", "3 a", "4 b", "5 a", "6 a", "7 a", "8 a"]


@pytest.mark.parametrize("one", ["a", "c"])
def test_only_one_rank_opens_a_file(tmp_path: Path, one: str) -> None:
    def body(seat: Any) -> None:
        model = nn.Linear(4, 3)
        run = elasticd.Run(
            model=model, optimizer=optim.Adam(1e-2), loss=models.loss, data=models.samples()
        )
        log = run.open("log") if seat.name == one else None
        for step in run:
            if log is not None:
                print(step.number, file=log)

    made = cohort(tmp_path, body, 4)
    made.run(list("abc"))
    assert words(tmp_path / one / "log") == LINES[1:]
    assert words(tmp_path / "b" / "log") == LINES[1:]


@pytest.mark.parametrize("names", ["a", "bac"])
def test_a_disk_that_refuses_for_a_while_loses_nothing(
    tmp_path: Path, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(fd: int, data: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    def body(seat: Any) -> Path:
        run = elasticd.Run(
            model=nn.Linear(4, 3),
            optimizer=optim.Adam(1e-2),
            loss=models.loss,
            data=models.samples(),
        )
        log = run.open("log")
        (held,) = run._runner.logs._logs.values()
        for step in run:
            if seat.name == "a":
                held.file.pwrite = refuse if 2 <= step.number < 7 else None
            print(step.number, seat.name, file=log)
        return run.output_dir / "log"

    found = files(cohort(tmp_path, body, 10), names)
    for path in found.values():
        assert words(path) == LINES[1:]
    assert capsys.readouterr().err.count("log can't be written") == 1


@pytest.mark.parametrize(
    "name",
    [
        "/etc/x", "../x", "a/../x", "", ".", "a//b", "x/", ".elasticd/x", "a\0b", "x" * 300, 7,
        ".Elasticd/x", "a/.partial-log.csv", ".PARTIAL-x", "%" * 200, "a/" * 60 + "x", "\ud800",
    ],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: Any) -> None:
    def body(seat: Any) -> str:
        run = elasticd.Run(model=nn.Linear(4, 3), data=models.samples())
        with pytest.raises(UsageError) as refused:
            run.open(name)
        return str(refused.value)

    (result,) = cohort(tmp_path, body, 5).run(["a"]).values()
    assert result.error is None and "\n" not in result.value and "run.open(" in result.value
    assert [*tmp_path.rglob("*")] == []


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    def body(seat: Any) -> None:
        run = elasticd.Run(model=nn.Linear(4, 3), data=models.samples())
        (run.output_dir / "log").mkdir()
        with pytest.raises(UsageError, match="directory"):
            run.open("log")

    (result,) = cohort(tmp_path, body, 6).run(["a"]).values()
    assert result.error is None


@pytest.mark.parametrize(("one", "two"), [("log", "Log"), ("\u00e9", "e\u0301"), ("Log/a", "log")])
def test_names_that_are_one_on_some_disk_are_refused(tmp_path: Path, one: str, two: str) -> None:
    def body(seat: Any) -> str:
        run = elasticd.Run(model=nn.Linear(4, 3), data=models.samples())
        run.open(one)
        run.open(one)
        with pytest.raises(UsageError) as refused:
            run.open(two)
        return str(refused.value)

    (result,) = cohort(tmp_path, body, 5).run(["a"]).values()
    assert result.error is None and repr(one) in result.value and repr(two) in result.value


def test_ranks_that_call_a_file_in_two_ways_keep_their_own(tmp_path: Path) -> None:
    def body(seat: Any) -> None:
        run = elasticd.Run(
            model=nn.Linear(4, 3), optimizer=optim.Adam(1e-2), loss=models.loss,
            data=models.samples(),
        )  # fmt: skip
        log = run.open("log" if seat.name == "a" else "Log")
        for step in run:
            print(step.number, file=log)

    cohort(tmp_path, body, 4).run(list("ab"))
    for name, other in (("a", "log"), ("b", "Log")):
        assert words(tmp_path / name / other) == LINES[1:]
        assert [path.name for path in (tmp_path / name).glob("[lL]og")] == [other]


def opened(folder: Path, name: str) -> StepFile:
    return StepFile(folder / name, logs._index(folder / OWN_FOLDER, name), 9)


def written(folder: Path, name: str, index: str) -> None:
    file = StepFile(folder / name, folder / OWN_FOLDER / index, BASE)
    for step in range(3):
        file.append(step, b"%d\n" % step)


@pytest.mark.parametrize("name", ["log", "logs/metrics.csv", "a%b", "100%/x"])
def test_an_index_of_an_earlier_version_is_found(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    older = older_index_of(name)
    written(tmp_path, name, older)
    assert list_files(tmp_path).files[0].managed
    before = opened(tmp_path, name).runs()
    if "%%%" in older:
        assert before == [[BASE, BASE]] and older in capsys.readouterr().err
        assert (tmp_path / name).read_bytes() == b"0\n1\n2\n"
    else:
        assert before == [[BASE, 2]] and os.listdir(tmp_path / OWN_FOLDER) == [index_of(name)]
    assert list_files(tmp_path).files[0].managed


def test_each_file_has_an_index_of_its_own(tmp_path: Path) -> None:
    names = ["a/%b", "a%/b", "a%2Fb", "a/b", "a%25b", "a%b"]
    assert len({index_of(name) for name in names}) == len(names)
    for name in names[:2]:
        written(tmp_path, name, index_of(name))
    for name in names[:2]:
        assert opened(tmp_path, name).runs() == [[BASE, 2]]


@pytest.mark.parametrize("names", ["a", "abc"])
def test_a_file_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    """What fills it is kept; more is refused by name."""
    monkeypatch.setattr(logs, "MOST_BYTES", 1 << 20)

    def body(size: int) -> Callable[[Any], Path]:
        def run_it(seat: Any) -> Path:
            model = nn.Linear(4, 3)
            run = elasticd.Run(
                model=model, optimizer=optim.SGD(0.1), loss=models.loss, data=models.samples()
            )
            log = run.open("metrics.csv")
            for _step in run:
                log.write("x" * (size - 1) + "\n")
            return run.output_dir / "metrics.csv"

        return run_it

    for path in files(cohort(tmp_path, body((1 << 20) // STEPS), 1), names).values():
        assert path.stat().st_size == 1 << 20
    with pytest.raises(UsageError, match=r"run.open\('metrics.csv'\): .* more than 1 MiB.*another"):
        files(cohort(tmp_path / "2", body((1 << 20) // STEPS + 1), 1), "a")
