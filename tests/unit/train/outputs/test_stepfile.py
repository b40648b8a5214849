"""A file whose text is told apart by the step that wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.stepindex import BASE, MAGIC, StepIndex, merged
from elasticd.train.outputs.records import packed
from elasticd.train.outputs.stepfile import Since, StepFile


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
        steps.write_bytes(steps.read_bytes()[:-1] + (b"" if cut == "steps" else b"\x8a"))
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
    told, base = mine.told(), Since(mine.marked.bytes, mine.marked_code)
    assert theirs.told() != told and theirs.marked == mine.marked
    assert base.bytes == 8 and base.code == 5
    content = mine.read(base)
    assert content.endswith(b"mine\n") and len(content) == 6
    theirs.replace(base, content, 1)
    theirs.mark()
    assert theirs.told() == told and theirs.code() == mine.code()
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


def test_a_disk_that_is_full_when_another_text_comes_keeps_what_is_alike(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    mine, theirs = filled(tmp_path / "one" / "log", 3), filled(tmp_path / "other" / "log", 9)
    content, code = theirs.read(Since()), theirs.code()[0]

    def refuse(fd: int, data: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    mine.pwrite = refuse
    with pytest.raises(OSError, match="space"):
        mine.replace(Since(), content, code)
    mine.pwrite = None
    mine.replace(Since(), content, code)
    again = opened(tmp_path / "one" / "log", 9)
    assert again.told() == theirs.told() and again.runs() == [[-1, 9]]


def test_steps_that_write_nothing_take_no_room(path: Path) -> None:
    file = opened(path)
    for step in range(0, 50_000):
        file.append(step, b"%d\n" % step if step % 1000 == 0 else b"")
    assert path.with_name(".steps").stat().st_size < 400
    again = opened(path, 31_500)
    assert again.runs() == [[BASE, 31_500]]
    assert path.read_bytes().endswith(b"30000\n31000\n")
    again.append(31_501, b"31501\n")
    assert opened(path, 40_000).told() == again.told()


def test_an_index_of_an_earlier_version_is_taken_over(path: Path) -> None:
    path.write_bytes(b"0\n1\n2\n")
    index = path.with_name(".steps")
    index.write_bytes(packed([(BASE, 0), (0, 2), (1, 4), (2, 6)], b""))
    file = opened(path, 1)
    assert index.read_bytes().startswith(MAGIC) and path.read_bytes() == b"0\n1\n"
    file.append(2, b"two\n")
    assert opened(path, 9).runs() == [[BASE, 2]] and path.read_bytes() == b"0\n1\ntwo\n"


def test_files_with_gaps_make_one(tmp_path: Path) -> None:
    files = []
    for name, steps in {"a": (0, 1, 4, 5), "b": (0, 2, 3, 5, 6)}.items():
        file = opened(tmp_path / name / "log")
        for step in steps:
            file.append(step, f"{step} {name}\n".encode())
        code, content = file.code()[0], file.read(Since())
        found = StepIndex.parsed(content[:code], len(content) - code)
        files.append((list(found.records()), content[code:]))
        assert file.runs() == {"a": [[-1, 1], [4, 5]], "b": [[-1, 0], [2, 3], [5, 6]]}[name]
    records, text = merged(files)
    file.have(StepIndex.of(records), 0, text)
    assert file.runs() == [[-1, 6]]
    text = (tmp_path / "b" / "log").read_bytes()
    assert text == b"0 a\n1 a\n2 b\n3 b\n4 a\n5 a\n6 b\n"
    assert opened(tmp_path / "b" / "log", 9).told() == file.told()
