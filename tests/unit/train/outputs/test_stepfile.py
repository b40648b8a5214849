"""A file whose text is told apart by the step that wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.train.outputs.stepfile import BASE, Extent, StepFile, merged


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.csv"


def opened(path: Path, step: int = BASE) -> StepFile:
    return StepFile(path, path.with_name(".steps"), step)


def filled(path: Path, steps: int) -> StepFile:
    file = opened(path)
    for step in range(steps + 1):
        file.append(step, b"%d\n" % step)
    return file


def test_text_is_cut_where_the_state_is(path: Path) -> None:
    file = filled(path, 5)
    file.cut(3)
    assert path.read_bytes() == b"0\n1\n2\n3\n"
    file.append(4, b"four\n")
    assert path.read_bytes() == b"0\n1\n2\n3\nfour\n"


def test_a_new_process_goes_on_where_the_state_is(path: Path) -> None:
    filled(path, 5)
    file = opened(path, 2)
    file.append(3, b"three\n")
    assert path.read_bytes() == b"0\n1\n2\nthree\n"
    assert opened(path, 9).told() == file.told()


def test_a_run_that_begins_anew_has_what_was_there_before_it(path: Path) -> None:
    path.write_bytes(b"somebody else's\n")
    filled(path, 3)
    opened(path)
    assert path.read_bytes() == b"somebody else's\n"


def test_what_no_step_wrote_goes_with_the_process(path: Path) -> None:
    file = filled(path, 2)
    file.append_behind(b"done\n")
    assert path.read_bytes() == b"0\n1\n2\ndone\n"
    opened(path, 2)
    assert path.read_bytes() == b"0\n1\n2\n"


@pytest.mark.parametrize("cut", ["file", "steps", "record"])
def test_what_a_power_cut_leaves_is_used_as_far_as_it_goes(path: Path, cut: str) -> None:
    filled(path, 3)
    steps = path.with_name(".steps")
    if cut == "file":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        steps.write_bytes(steps.read_bytes()[: -16 if cut == "steps" else -5])
    opened(path, 3)
    assert path.read_bytes() == b"0\n1\n2\n"


def test_two_files_become_alike(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.mkdir()
    mine, theirs = filled(one / "log", 3), filled(other / "log", 3)
    for file in (mine, theirs):
        file.mark()
    mine.append(4, b"mine\n")
    theirs.append(4, b"the other's\n")
    theirs.append_behind(b"behind\n")
    told, base = mine.told(), mine.marked
    assert theirs.told() != told and theirs.marked == base
    theirs.replace(base, mine.read(base))
    assert theirs.told() == told
    assert (other / "log").read_bytes() == (one / "log").read_bytes() + b"behind\n"
    theirs.append(5, b"5\n")
    theirs.cut(3)
    assert theirs.marked.bytes == 8


def test_a_full_disk_takes_nothing_by_halves(path: Path) -> None:
    file = filled(path, 2)

    def refuse(fd: int, data: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    file.pwrite = refuse
    with pytest.raises(OSError, match="space"):
        file.append(3, b"3\n")
    file.pwrite = None
    file.append(4, b"3\n4\n")
    assert path.read_bytes() == b"0\n1\n2\n3\n4\n"


def test_files_with_gaps_make_one(tmp_path: Path) -> None:
    nothing = Extent(0, 0, "")
    contents = []
    for name, steps in {"a": (0, 1, 4, 5), "b": (0, 2, 3, 5, 6)}.items():
        file = opened(tmp_path / name / "log")
        for step in steps:
            file.append(step, f"{step} {name}\n".encode())
        contents.append(file.read(nothing))
        assert file.runs() == {"a": [[-1, 1], [4, 5]], "b": [[-1, 0], [2, 3], [5, 6]]}[name]
    file.replace(nothing, merged(contents))
    assert file.runs() == [[-1, 6]]
    text = (tmp_path / "b" / "log").read_text()
    assert text == "0 a\n1 a\n2 b\n3 b\n4 a\n5 a\n6 b\n"
    assert opened(tmp_path / "b" / "log", 9).told() == file.told()
