"""HOME/secrets.env: what jobs may ask a node for by name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord
from elasticd.errors import OperationError
from elasticd.settings.job import JobSpec
from elasticd.shell.children import launches
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.children.ownvariables import FILE_NAME, own_variables
from elasticd.types import CACHE_VARIABLE, JobId

SPEC = JobSpec.from_dict({
    "job": {"name": "a", "entrypoint": "train.py"},
    "batch": {"global": 1, "micro": 1},
    "train": {"steps": 1},
})  # fmt: skip


def write(home: Path, text: str, mode: int = 0o600) -> None:
    (home / FILE_NAME).write_bytes(text.encode())
    (home / FILE_NAME).chmod(mode)


def launched(home: Path, passed: tuple[str, ...]) -> dict[str, str]:
    record = JobRecord(JobId("a-1-abcd"), 1, SPEC.to_dict(), "", "running", passed=passed)
    effect = cast(e.StartTrainer, SimpleNamespace(job=record.id, spare=False))
    own: Any = {"A": "of the daemon", "PATH": "/bin"}
    return dict(launches.trainer(effect, record, ChildFiles(home), "nonce", own).environment)


def test_lines_are_taken_as_they_are(tmp_path: Path) -> None:
    assert own_variables(tmp_path) == {}
    write(tmp_path, '# mine\n\nA=1\n B = "x" # y \r\nC==\nD=\n')
    assert own_variables(tmp_path) == {"A": "1", "B": '"x" # y', "C": "=", "D": ""}


@pytest.mark.parametrize("text", ["A=1\nexport S3CRET=x", "S3CRET", "=S3CRET", "A=S3CRET\0"])
def test_a_wrong_line_is_named_by_its_number_alone(text: str, tmp_path: Path) -> None:
    write(tmp_path, text)
    with pytest.raises(OperationError) as raised:
        own_variables(tmp_path)
    assert FILE_NAME in str(raised.value) and "S3CRET" not in str(raised.value)


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_what_others_could_read_is_refused(mode: int, tmp_path: Path) -> None:
    write(tmp_path, "A=1", mode)
    with pytest.raises(OperationError, match="chmod 600"):
        own_variables(tmp_path)


def test_a_job_has_what_it_names_and_no_more(tmp_path: Path) -> None:
    write(tmp_path, "A=of the file\nB=2\nPATH=/wrong\n")
    assert {"A", "B"}.isdisjoint(launched(tmp_path, ()))
    assert launched(tmp_path, ())[CACHE_VARIABLE] == str(tmp_path / "cache")
    found = launched(tmp_path, ("B",))
    assert found["B"] == "2" and "A" not in found and found["PATH"] == "/bin"
    assert launched(tmp_path, ("A",))["A"] == "of the file"
    (tmp_path / FILE_NAME).unlink()
    assert launched(tmp_path, ("A",))["A"] == "of the daemon"
    with pytest.raises(OperationError, match="no variable B"):
        launched(tmp_path, ("A", "B"))
