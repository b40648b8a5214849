"""What a node has of what a job needs: its interpreter, modules, variables, model and data."""

from __future__ import annotations

import errno
import json
import os
import sys
import unicodedata
from math import inf
from pathlib import Path
from typing import Literal, get_args

import pytest

from elasticd.preflight.needs import JobNeeds, NamedPath, NeedsMet, PathFacts
from elasticd.shell.control import ownneeds
from elasticd.shell.control.ownneeds import OwnNeeds, path_facts


def read(home: Path, needs: JobNeeds) -> NeedsMet:
    return OwnNeeds(home, os.environ).read(needs)


Form = Literal["NFC", "NFD"]


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_interpreter_says_what_it_finds(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("raise SystemExit('it was imported')")
    modules = ("beside", "elasticd", "nowhere")
    needs = JobNeeds("lm", modules=modules, env={"PYTHONPATH": str(tmp_path)})
    facts = read(tmp_path, needs)
    assert facts.python == sys.version.split()[0] and facts.mlx and not facts.error
    assert facts.missing == ("nowhere",) and facts.memory_bytes and facts.free_bytes


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo no >&2; exit 3", "ended with status 3: no"),
        ("kill -9 $$", "was ended by SIGKILL"),
        ("echo hello", "can't be asked"),
        ("echo 7", "is no Python"),
    ],
)
def test_an_interpreter_that_is_none(tmp_path: Path, script: str, error: str) -> None:
    facts = read(tmp_path, JobNeeds("lm", python=program(tmp_path / "python", script)))
    assert facts.python == "" and error in facts.error


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    facts = read(tmp_path, JobNeeds("lm", python=str(tmp_path / "python")))
    assert facts.python == "" and "can't be started: No such file" in facts.error


def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownneeds, "PYTHON_SECONDS", 0.2)
    python = program(tmp_path / "python", "sleep 1000 & wait")
    facts = read(tmp_path, JobNeeds("lm", python=python))
    assert "hangs: it has not ended in 0.2 s" in facts.error


def test_variables_that_the_daemon_has_to_have(tmp_path: Path) -> None:
    needs = JobNeeds("lm", passed=("ELASTICD_TEST_TOKEN",))
    assert "ELASTICD_TEST_TOKEN" in read(tmp_path, needs).lacks
    (tmp_path / "secrets.env").write_text("ELASTICD_TEST_TOKEN=a\n")
    (tmp_path / "secrets.env").chmod(0o600)
    assert read(tmp_path, needs).lacks == ""


def test_a_models_folder_says_how_large_it_is(tmp_path: Path) -> None:
    model = tmp_path / "model"
    needs = JobNeeds("lm", model=str(model))
    assert "No such file" in read(tmp_path, needs).model_error
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"num_hidden_layers": 12}))
    (model / "model-00001.safetensors").write_bytes(b"x" * 100)
    (model / "other.safetensors").write_bytes(b"x" * 100)
    facts = read(tmp_path, needs)
    assert (facts.model_error, facts.model_bytes, facts.model_layers) == ("", 100, 12)


def test_a_model_of_the_hub_has_to_be_in_the_cache(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    needs = JobNeeds("lm", model="hub:who/what@main", env={"HF_HUB_CACHE": str(tmp_path)})
    facts = read(tmp_path, needs)
    assert facts.model_error == "it isn't in this node's cache of the hub" and facts.python


def test_what_the_system_keeps_from_a_service_is_told_with_the_cure(tmp_path: Path) -> None:
    """Of a path, of a model's folder, and of what its interpreter finds in the hub's cache."""
    round_ = tmp_path / "round"
    round_.symlink_to(round_)
    own = OwnNeeds(tmp_path, os.environ, kept=lambda error: f"cure of {error}")
    paths = (NamedPath("a", str(round_)), NamedPath("b", str(tmp_path)))
    facts = own.read(JobNeeds("lm", paths=paths, model=str(round_)))
    assert f"Errno {errno.ELOOP}" in facts.paths[0].cure and facts.paths[1].cure == ""
    assert f"Errno {errno.ELOOP}" in facts.model_cure and str(round_) in facts.model_error
    said = {"python": "3.12.4", "error": "/x: not permitted", "errno": errno.EPERM}
    python = program(tmp_path / "python", f"echo '{json.dumps(said)}'")
    facts = own.read(JobNeeds("lm", python=python, model="hub:who/what"))
    assert facts.model_error == "/x: not permitted"
    assert facts.model_cure == f"cure of [Errno {errno.EPERM}] /x: not permitted"


def test_a_cache_of_the_hub_that_may_not_be_read_is_no_empty_one(tmp_path: Path) -> None:
    hub = "import errno, os\ndef snapshot_download(*_, **__):\n    "
    hub += "raise OSError(errno.EPERM, os.strerror(errno.EPERM), '/cache')\n"
    (tmp_path / "huggingface_hub.py").write_text(hub)
    own = OwnNeeds(tmp_path, os.environ, kept=lambda error: f"cure of {error}")
    env = {"PYTHONPATH": str(tmp_path)}
    facts = own.read(JobNeeds("lm", model="hub:who/what", env=env))
    assert facts.model_error == "/cache: Operation not permitted"
    assert f"Errno {errno.EPERM}" in facts.model_cure


def test_paths_are_alike_if_names_sizes_and_ends_are(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "a.bin").write_bytes(bytes(20_000))
        (folder / "b.bin").write_bytes(b"b")
    (two / ".DS_Store").write_bytes(b"of a Mac")
    facts = path_facts(one, inf)
    assert (facts.kind, facts.files, facts.bytes) == ("folder", 2, 20_001)
    assert path_facts(two, inf) == facts and set(facts.by_file) == {"b.bin", "sub/a.bin"}
    (two / "sub" / "a.bin").write_bytes(bytes(19_999) + b"x")
    other = path_facts(two, inf)
    assert other.digest != facts.digest
    assert {name for name, _ in other.by_file.items() ^ facts.by_file.items()} == {"sub/a.bin"}
    (two / "sub" / "a.bin").write_bytes(bytes(20_000))
    (two / "b.bin").rename(two / "c.bin")
    assert path_facts(two, inf).digest != facts.digest
    assert path_facts(one / "b.bin", inf).kind == "file"
    assert path_facts(one / "none", inf) == path_facts(one / "b.bin" / "x", inf) == PathFacts()
    assert path_facts(Path("/dev/null"), inf) == PathFacts("other")


def test_a_path_that_is_missing_may_be_on_a_disk_that_macos_mounts_late(tmp_path: Path) -> None:
    path = tmp_path / "no"
    own = OwnNeeds(tmp_path, os.environ, late=lambda path: f"{path.name} is late")
    (facts,) = own.read(JobNeeds("lm", paths=(NamedPath("a", str(path)),))).paths
    assert facts == PathFacts(cure="no is late") and path_facts(path, inf) == PathFacts()


def test_paths_are_alike_however_a_name_is_written(tmp_path: Path) -> None:
    """Neither the names nor their order depend on whether "é" is one letter or two."""
    form: Form
    for form in get_args(Form):
        for name in ("f.txt", "é.txt", "über/é.txt", "v/x.txt"):
            file = tmp_path / form / unicodedata.normalize(form, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
    one, other = (path_facts(tmp_path / form, inf) for form in get_args(Form))
    assert one == other and one.files == 4 and "über/é.txt" in one.by_file


def test_what_takes_too_long_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert "within 20 s" in path_facts(tmp_path, -1.0).error


def test_paths_come_in_the_order_of_the_needs(tmp_path: Path) -> None:
    paths = (NamedPath("a", str(tmp_path / "no")), NamedPath("b", str(tmp_path)))
    facts = read(tmp_path, JobNeeds("lm", paths=paths))
    assert [each.kind for each in facts.paths] == ["", "folder"]
