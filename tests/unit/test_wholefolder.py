"""A folder that appears whole or not at all."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.wholefolder import whole_folder
from tests.integration.otheraccount import need_root
from tests.nobody import NOBODY


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o027])
@pytest.mark.parametrize("made", [None, 0o700, 0o750])
def test_who_may_look_into_it_is_up_to_its_owner(
    tmp_path: Path, umask: int, made: int | None
) -> None:
    folder = tmp_path / "out"
    if made is not None:
        folder.mkdir()
        folder.chmod(made)
    before = os.umask(umask)
    try:
        with whole_folder(folder) as beside:
            (beside / "a").touch()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == (0o777 & ~umask if made is None else made)
    assert list(tmp_path.iterdir()) == [folder] and (folder / "a").exists()


@pytest.mark.parametrize("laid", ["meanwhile", "by another account"])
def test_who_lays_a_folder_there_opens_nothing(tmp_path: Path, laid: str) -> None:
    folder = tmp_path / "out"

    def lay() -> None:
        folder.mkdir()
        folder.chmod(0o777)

    if laid != "meanwhile":
        need_root()
        lay()
        os.chown(folder, NOBODY, -1)
    before = os.umask(0o077)
    try:
        with whole_folder(folder):
            if laid == "meanwhile":
                lay()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700 and folder.stat().st_uid == os.geteuid()


def test_nothing_is_left_of_one_that_failed(tmp_path: Path) -> None:
    with pytest.raises(KeyError), whole_folder(tmp_path / "out") as beside:
        (beside / "a").touch()
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_one_has_left_goes_with_the_next(tmp_path: Path) -> None:
    """Not what is still being written, nor what has another name."""
    names = [".out.0123abcd", ".out.89abcdef", ".out.notes", ".other.0123abcd"]
    for name in names:
        (tmp_path / name / "closed").mkdir(parents=True)
        (tmp_path / name / "closed" / "a").touch()
        (tmp_path / name / "closed").chmod(0o555)
    (tmp_path / ".out.01234567").touch()
    writing = os.open(tmp_path / names[1], os.O_RDONLY)
    fcntl.flock(writing, fcntl.LOCK_EX)
    with whole_folder(tmp_path / "out"):
        pass
    os.close(writing)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"out", *names[1:], ".out.01234567"}


@pytest.mark.process
def test_one_that_is_being_written_stays_and_goes_when_its_process_was_killed(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    code = (
        "import sys; from pathlib import Path; from elasticd.wholefolder import whole_folder\n"
        f"with whole_folder(Path({str(out)!r})) as beside: print(beside, flush=True), input()"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        beside = Path(process.stdout.readline().strip())
        with pytest.raises(KeyError), whole_folder(out):
            assert beside.is_dir()
            raise KeyError
        assert beside.is_dir()
        process.kill()
    with whole_folder(out):
        assert not beside.exists()
