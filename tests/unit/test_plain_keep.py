"""``elasticd.plain.keep`` in a plain job's script; test_plain_files.py kills nodes of
real ones."""

from __future__ import annotations

import os
import re
import shutil
import threading
from pathlib import Path

import mlx.core as mx
import pytest

import elasticd
from elasticd.errors import OperationError, UsageError
from elasticd.recipes.keeping import Keeper
from elasticd.recipes.kept import CALLS, FILES, FOLDER, OUTPUTS, WORK, KeptFiles

Patch = pytest.MonkeyPatch


class Node:
    """A node with a job of mode plain, whose script runs as rank 0."""

    def __init__(self, folder: Path, patch: Patch) -> None:
        self.work, self.output = folder / "work", folder / "output"
        self.work.mkdir(parents=True)
        self.output.mkdir()
        patch.chdir(self.work)
        for name, value in ((WORK, self.work), (OUTPUTS, self.output), ("MLX_RANK", 0)):
            patch.setenv(name, str(value))

    def writes(self, name: str, text: str = "x") -> str:
        (self.work / name).parent.mkdir(parents=True, exist_ok=True)
        (self.work / name).write_text(text)
        return name

    @property
    def calls(self) -> Path:
        return self.output / FOLDER / CALLS

    def kept(self) -> dict[str, str]:
        """As another node would have it."""
        moment = KeptFiles(self.work, self.calls).newest()
        blobs = {name: self.calls / FILES / kept.blob for name, kept in moment.files.items()}
        return {name: blob.read_text() for name, blob in blobs.items()}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: Patch) -> Node:
    return Node(tmp_path / "a", monkeypatch)


def moved(node: Node, folder: Path, patch: Patch) -> Node:
    """Another node, to which the outputs have come, when its trainer has put back what was kept."""
    there = Node(folder, patch)
    shutil.copytree(node.output, there.output, dirs_exist_ok=True)
    keeper = Keeper(there.work, there.output, ("best/*",), 4)
    keeper.restore(KeptFiles(there.work, there.calls))
    return there


def test_a_file_is_there_on_another_node(node: Node, tmp_path: Path, monkeypatch: Patch) -> None:
    elasticd.plain.keep(node.writes("ckpt/100.npz", "one"))
    os.utime(node.work / "ckpt/100.npz", ns=(5_000, 5_000))
    elasticd.plain.keep(node.work / "ckpt" / "100.npz")
    there = moved(node, tmp_path / "b", monkeypatch)
    assert (there.work / "ckpt/100.npz").read_text() == "one"
    assert (there.work / "ckpt/100.npz").stat().st_mtime_ns == 5_000
    elasticd.plain.keep(there.writes("ckpt/200.npz", "two"))
    assert there.kept() == {"ckpt/100.npz": "one", "ckpt/200.npz": "two"}


def test_a_folder_is_one_thing(node: Node) -> None:
    node.writes("step-1/model.npz", "m1")
    node.writes("step-1/parts/optimizer.npz", "o1")
    (node.work / "step-1/link").symlink_to(node.work)
    elasticd.plain.keep("step-1/")
    assert node.kept() == {"step-1/model.npz": "m1", "step-1/parts/optimizer.npz": "o1"}
    (node.work / "step-1/model.npz").unlink()
    node.writes("step-1/better.npz", "b1")
    elasticd.plain.keep("step-1")
    assert set(node.kept()) == {"step-1/better.npz", "step-1/parts/optimizer.npz"}


def test_of_paths_that_differ_in_digits_the_newest_are_kept(node: Node) -> None:
    elasticd.plain.keep(node.writes("config.json"))
    for step in (8, 9, 10, 11):
        elasticd.plain.keep(node.writes(f"ckpt/{step}.npz", str(step)), last=2)
        elasticd.plain.keep(node.writes("ckpt/latest.npz", str(step)), last=2)
    assert node.kept() == {
        "config.json": "x", "ckpt/10.npz": "10", "ckpt/11.npz": "11", "ckpt/latest.npz": "11",
    }  # fmt: skip
    assert len(list((node.calls / FILES).iterdir())) <= 6, "and those of the moment before"


def test_what_the_script_has_removed_is_not_kept_on(node: Node) -> None:
    elasticd.plain.keep(node.writes("a.npz"))
    (node.work / "a.npz").unlink()
    elasticd.plain.keep(node.writes("b.npz"))
    assert set(node.kept()) == {"b.npz"}


def test_patterns_and_calls_leave_each_other_alone(
    node: Node, tmp_path: Path, monkeypatch: Patch
) -> None:
    elasticd.plain.keep(node.writes("mine/1.npz", "called"))
    node.writes("best/1.npz", "named")
    Keeper(node.work, node.output, ("best/*",), 4).look(ended=True)
    node.writes("best/2.npz", "also")
    elasticd.plain.keep(node.writes("mine/2.npz", "again"))
    Keeper(node.work, node.output, ("best/*",), 4).look(ended=True)
    there = moved(node, tmp_path / "b", monkeypatch)
    found = {path.parent.name + path.name[0] for path in there.work.rglob("*.npz")}
    assert found == {"mine1", "mine2", "best1", "best2"}


def test_a_file_that_both_keep_comes_back_as_it_was_last(
    node: Node, tmp_path: Path, monkeypatch: Patch
) -> None:
    node.writes("best/1.npz", "old")
    os.utime(node.work / "best/1.npz", ns=(1_000, 1_000))
    Keeper(node.work, node.output, ("best/*",), 4).look(ended=True)
    elasticd.plain.keep(node.writes("best/1.npz", "new"))
    there = moved(node, tmp_path / "b", monkeypatch)
    assert (there.work / "best/1.npz").read_text() == "new"


def test_a_file_of_the_output_folder_is_copied_anyway(node: Node) -> None:
    (node.output / "done").mkdir()
    (node.output / "done/1.npz").write_text("x")
    elasticd.plain.keep(node.output / "done")
    elasticd.plain.keep(node.output / "done/1.npz")
    assert not node.calls.exists()
    with pytest.raises(UsageError, match=r"2\.npz is no file and no folder"):
        elasticd.plain.keep(node.output / "2.npz")


def test_other_ranks_do_nothing(node: Node, monkeypatch: Patch) -> None:
    monkeypatch.setenv("MLX_RANK", "1")
    elasticd.plain.keep("ckpt/only-rank-0-has-it.npz")
    assert not node.calls.exists()
    with pytest.raises(UsageError, match="not below the working folder"):
        elasticd.plain.keep("../x.npz")


def test_alone_it_looks_at_what_it_was_given(tmp_path: Path, monkeypatch: Patch) -> None:
    for name in (WORK, OUTPUTS, "MLX_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.npz").write_text("x")
    elasticd.plain.keep("a.npz")
    elasticd.plain.keep(Path(__file__))
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    for wrong, why in (("b.npz", "is no file"), ("../x", "not below"), (".", "not below")):
        with pytest.raises(UsageError, match=why):
            elasticd.plain.keep(wrong)
    monkeypatch.setenv("MLX_RANK", "1")  # by mlx.launch
    with pytest.raises(UsageError, match="is no file"):
        elasticd.plain.keep("b.npz")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("none.npz", "is no file and no folder"),
        ("empty", "has no file"),
        ("link.npz", "is no file and no folder"),
        ("/", "not below the working folder"),
        (".", "not below the working folder"),
        ("away/x.npz", "not below the working folder"),
        ("odd", "is a name that other nodes may not have"),
    ],
)
def test_what_cannot_be_kept(node: Node, tmp_path: Path, path: str, why: str) -> None:
    (node.work / "empty").mkdir()
    (node.work / "link.npz").symlink_to(node.writes("real.npz"))
    (node.work / "away").symlink_to(tmp_path)
    (tmp_path / "x.npz").write_text("x")
    node.writes("odd/.partial-x")
    with pytest.raises(UsageError, match=why):
        elasticd.plain.keep(path)
    assert node.kept() == {}


def test_a_count_that_keeps_nothing(node: Node) -> None:
    with pytest.raises(UsageError, match="last= must be a whole number from 1, not 0"):
        elasticd.plain.keep(node.writes("a.npz"), last=0)


def test_a_file_that_is_being_written_is_an_error(node: Node, monkeypatch: Patch) -> None:
    elasticd.plain.keep(node.writes("ckpt/1.npz", "whole"))
    found = iter([(1, 1, 1), (1, 1, 1), (2, 2, 2)])
    with monkeypatch.context() as patch:
        patch.setattr(KeptFiles, "signature", lambda *_: next(found))
        with pytest.raises(OperationError, match="changed while it was copied"):
            elasticd.plain.keep("ckpt/1.npz")
    assert node.kept() == {"ckpt/1.npz": "whole"}


def test_threads_that_keep_at_once(node: Node) -> None:
    names = [node.writes(f"{letter}.npz", letter) for letter in "abcdefgh"]
    threads = [threading.Thread(target=elasticd.plain.keep, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(node.kept()) == set(names)


def test_the_example_of_the_docs(node: Node) -> None:
    text = (Path(__file__).parents[2] / "docs/plain.md").read_text()
    text = text[text.index("### Files in its working folder") :]
    example = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert example is not None
    (node.work / "ckpt").mkdir()
    exec(example[1], {"mx": mx, "weights": {"w": mx.ones(3)}})
    moment = KeptFiles(node.work, node.calls).newest()
    assert set(moment.files) == {"ckpt/00100.safetensors"}
