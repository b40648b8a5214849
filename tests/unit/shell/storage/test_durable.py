from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.errors import DiskError
from elasticd.shell.storage import durable
from elasticd.shell.storage.durable import (
    PARTIAL_SUFFIX,
    unwritable,
    write_durable,
    write_whole,
)
from tests.noroom import no_room


def test_replaces_the_whole_content_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_durable(path, b"old and long")
    write_durable(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_leftover_of_a_crashed_writer_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.with_name(path.name + PARTIAL_SUFFIX).write_bytes(b"x" * 1000)
    write_durable(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_failed_write_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "inside").write_bytes(b"old")
    with pytest.raises(OSError, match="irectory"):
        write_durable(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
    assert (path / "inside").read_bytes() == b"old"


@pytest.mark.parametrize("write", [write_durable, write_whole])
def test_what_the_disk_refuses_is_named(
    tmp_path: Path, write: Callable[[Path, bytes], None]
) -> None:
    path = tmp_path / "state"
    with no_room(2), pytest.raises(OSError, match=f"File too large: '{path}'"):
        write(path, b"new")
    assert [*tmp_path.iterdir()] == [], "what is left would take the last bytes"


@pytest.mark.parametrize(
    ("code", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)]
)
def test_a_full_disk_is_told_from_a_broken_one(code: int, full: bool) -> None:
    error = OSError(code, os.strerror(code))
    told = DiskError("said by the journal")
    told.__cause__ = error
    assert durable.no_room(error) is durable.no_room(told) is full
    assert not durable.no_room(DiskError("it was closed"))


def test_a_folder_that_refuses_is_told_from_descriptors_that_have_run_out(tmp_path: Path) -> None:
    """The daemon ends where its disk refuses, and goes on where a restore has taken all it has."""
    assert unwritable(tmp_path) is None
    assert unwritable(tmp_path / "none") is not None
    code = (
        "import resource, sys; from pathlib import Path;"
        "from elasticd.shell.storage.durable import unwritable;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3));"
        "found = unwritable(Path(sys.argv[1]));"
        "sys.exit(7 if found is None else 1)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == 7
