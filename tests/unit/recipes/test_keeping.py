"""A plain job's own files go to the output folder and come back, whole and of one moment."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.recipes.keeping import Keeper, Keeping
from elasticd.recipes.kept import FILES, FOLDER, HOSTS, KeptFile, KeptFiles, Signature
from elasticd.recipes.script import Ring


class Node:
    def __init__(self, folder: Path, last: int = 3) -> None:
        self.work, self.output, self._last = folder / "work", folder / "output", last
        self.work.mkdir(parents=True)
        self.output.mkdir()

    def keeper(self) -> Keeper:
        return Keeper(self.work, self.output, ("ckpt/*.npz", "best/**/*.npz"), self._last)

    def writes(self, name: str, text: str, at: int = 0) -> None:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if at:
            os.utime(path, ns=(at, at))

    def has(self) -> dict[str, str]:
        found = (path for path in self.work.rglob("*") if path.is_file())
        return {str(path.relative_to(self.work)): path.read_text() for path in found}

    @property
    def blobs(self) -> list[Path]:
        return sorted((self.output / FOLDER / FILES).iterdir())


def copied(source: Node, folder: Path) -> Node:
    """Another node, to which the output folder has come."""
    node = Node(folder)
    shutil.copytree(source.output, node.output, dirs_exist_ok=True)
    return node


def test_files_come_back_on_another_node_with_their_times(tmp_path: Path) -> None:
    first = Node(tmp_path / "a")
    keeper = first.keeper()
    assert keeper.restore() == []
    first.writes("ckpt/1.npz", "one", at=5_000)
    first.writes("best/x/y.npz", "best", at=4_000)
    first.writes("ckpt/notes.txt", "not asked for")
    assert keeper.look() is False, "it may still be written"
    assert keeper.look() is True
    assert keeper.look() is False, "nothing is new"
    second = copied(first, tmp_path / "b")
    assert second.keeper().restore() == ["best/x/y.npz", "ckpt/1.npz"]
    assert second.has() == {"ckpt/1.npz": "one", "best/x/y.npz": "best"}
    assert (second.work / "ckpt/1.npz").stat().st_mtime_ns == 5_000


def test_a_file_that_is_being_written_is_kept_once_it_rests(tmp_path: Path) -> None:
    node = Node(tmp_path)
    keeper = node.keeper()
    for part in ("o", "on", "one"):
        node.writes("ckpt/1.npz", part)
        assert keeper.look() is False
    assert keeper.look() is True and [b.read_text() for b in node.blobs] == ["one"]
    node.writes("ckpt/1.npz", "once more")
    assert keeper.look(ended=True) is True, "who wrote it has ended"


def parts(node: Node) -> set[str]:
    """Of which step the files are that another node would put back."""
    found = KeptFiles(node.work, node.output / FOLDER).newest().files
    return {(node.output / FOLDER / FILES / kept.blob).read_text() for kept in found.values()}


def test_files_that_are_written_one_after_another_are_kept_together(tmp_path: Path) -> None:
    """Where they lie, as mx.save_safetensors does: at each look another one has just been."""
    node = Node(tmp_path)
    keeper, names = node.keeper(), [f"ckpt/{name}.npz" for name in ("model", "optimizer", "state")]
    for step in ("step 5", "step 10", "step 150"):
        before = parts(node)
        for name in names:
            node.writes(name, step)
            assert keeper.look() is False and parts(node) == before
        assert keeper.look() is True and parts(node) == {step}


def test_files_of_new_names_push_no_older_ones_out_before_they_rest(tmp_path: Path) -> None:
    node = Node(tmp_path, last=2)
    keeper = node.keeper()
    for name in ("1-model", "1-state"):
        node.writes(f"ckpt/{name}.npz", "1", at=1_000)
    assert (keeper.look(), keeper.look()) == (False, True)
    node.writes("ckpt/2-model.npz", "2")
    assert keeper.look() is False and parts(node) == {"1"}
    node.writes("ckpt/2-state.npz", "2")
    assert keeper.look() is False and parts(node) == {"1"}
    assert keeper.look() is True and parts(node) == {"2"}


def when_copied(patch: pytest.MonkeyPatch, name: str, happens: Callable[[], object]) -> None:
    """Have that happen, once, behind the copy of a file."""
    copy, left = KeptFiles.copy, [happens]

    def copies(store: KeptFiles, each: str, signature: Signature) -> KeptFile | None:
        kept = copy(store, each, signature)
        if each == name and left:
            left.pop()()
        return kept

    patch.setattr(KeptFiles, "copy", copies)


@pytest.mark.parametrize("meanwhile", ["copied", "uncopied", "uncopied, then gone"])
def test_a_checkpoint_that_is_begun_while_the_last_is_copied_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """And what was copied for nothing takes no room."""
    node = Node(tmp_path)
    keeper, names = node.keeper(), ["ckpt/model.npz", "ckpt/state.npz"]
    for name in names:
        node.writes(name, "step 1", at=1_000)
    assert (keeper.look(), keeper.look()) == (False, True)
    before = node.blobs
    for name in names:
        node.writes(name, "step 2", at=2_000)

    def begins() -> None:
        node.writes(names[meanwhile != "copied"], "step 3", at=3_000)
        if "gone" in meanwhile:
            (node.work / names[1]).unlink()

    when_copied(monkeypatch, names[0], begins)
    assert (keeper.look(), keeper.look()) == (False, False)
    assert parts(node) == {"step 1"} and node.blobs == before
    for name in names:
        node.writes(name, "step 3", at=3_000)
    assert (keeper.look(), keeper.look()) == (False, True) and parts(node) == {"step 3"}


def test_a_checkpoint_is_kept_though_a_new_one_comes_and_it_goes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script may save in less time than a copy takes."""
    node = Node(tmp_path, last=1)
    keeper = node.keeper()
    node.writes("ckpt/1.npz", "1", at=1_000)

    def saves() -> None:
        node.writes("ckpt/2.npz", "2", at=2_000)
        (node.work / "ckpt/1.npz").unlink()

    when_copied(monkeypatch, "ckpt/1.npz", saves)
    assert (keeper.look(), keeper.look()) == (False, True) and parts(node) == {"1"}


def test_a_log_that_never_rests_does_not_keep_the_others_waiting_for_ever(tmp_path: Path) -> None:
    node = Node(tmp_path)
    keeper = node.keeper()
    node.writes("ckpt/1.npz", "one")
    looks = 0
    for looks in range(1, 100):
        node.writes("ckpt/log.npz", "." * looks)
        if keeper.look():
            break
    assert 10 < looks < 99 and parts(node) == {"one"}
    node.writes("ckpt/2.npz", "two")
    for looks in (101, 102):
        node.writes("ckpt/log.npz", "." * looks)
        keeper.look()
    assert parts(node) == {"one", "two"}


def test_a_file_that_is_replaced_at_each_look_is_kept(tmp_path: Path) -> None:
    """By a whole one, as a rename does it; which is as long as the one before."""
    node = Node(tmp_path)
    keeper, name = node.keeper(), node.work / "ckpt/latest.npz"
    with contextlib.ExitStack() as held:  # a file that is open leaves its inode to no other
        for text, kept in (("one", False), ("two", True), ("three", False), ("seven", True)):
            node.writes("ckpt/tmp", text)
            (node.work / "ckpt/tmp").replace(name)
            held.enter_context(name.open("rb"))
            assert keeper.look() is kept
    assert sorted(b.read_text() for b in node.blobs) == ["seven", "two"]
    name.write_text("nine!")
    assert keeper.look() is False, "it is written where it is"


def test_the_newest_are_kept_and_no_others(tmp_path: Path) -> None:
    node = Node(tmp_path / "a")
    keeper = node.keeper()
    for step in range(1, 9):
        node.writes(f"ckpt/{step}.npz", str(step), at=step * 1000)
        keeper.look(ended=True)
    assert len(node.blobs) == 4, "those of the newest index, and of the one before"
    assert len(list((node.output / FOLDER).glob("*.json"))) == 2
    other = copied(node, tmp_path / "b")
    other.keeper().restore()
    assert sorted(other.has().values()) == ["6", "7", "8"]


@pytest.mark.parametrize("harm", ["gone", "damaged", "no index"])
def test_of_a_copy_that_came_half_the_moment_before_is_taken(tmp_path: Path, harm: str) -> None:
    node = Node(tmp_path / "a")
    keeper = node.keeper()
    for text in ("old", "new"):  # under one name
        node.writes("ckpt/latest.npz", text)
        keeper.look(ended=True)
    other = copied(node, tmp_path / "b")
    newest = max((other.output / FOLDER).glob("*.json"))
    row = json.loads(newest.read_text())["files"]["ckpt/latest.npz"]
    blob = other.output / FOLDER / FILES / row["blob"]
    if harm == "gone":
        blob.unlink()
    elif harm == "damaged":
        blob.write_text("neW")
    else:
        newest.write_text("{")
    assert other.keeper().restore() == ["ckpt/latest.npz"]
    assert other.has() == {"ckpt/latest.npz": "old"}


def test_an_index_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.writes("ckpt/1.npz", "one")
    node.keeper().look(ended=True)
    (index,) = (node.output / FOLDER).glob("*.json")
    text = index.read_text()
    for name, blob in (("../out.npz", ""), ("/tmp/out.npz", ""), ("ckpt/1.npz", "../../x")):
        files = json.loads(text)["files"]
        row = files.pop("ckpt/1.npz")
        index.write_text(json.dumps({"files": {name: {**row, "blob": blob or row["blob"]}}}))
        assert node.keeper().restore() == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    node = Node(tmp_path / "a")
    outside = tmp_path / "secret.npz"
    outside.write_text("secret")
    (node.work / "ckpt").mkdir()
    (node.work / "ckpt" / "1.npz").symlink_to(outside)
    (node.work / "best").symlink_to(tmp_path)
    assert node.keeper().look(ended=True) is False


def test_who_was_rank_0_before_counts_on_from_the_newest(tmp_path: Path) -> None:
    first = Node(tmp_path / "a")
    first.writes("ckpt/1.npz", "one")
    first.keeper().look(ended=True)
    second = copied(first, tmp_path / "b")
    second.keeper().restore()
    second.writes("ckpt/1.npz", "two")
    second.keeper().look(ended=True)
    shutil.copytree(second.output, first.output, dirs_exist_ok=True)
    first.keeper().restore()
    assert first.has() == {"ckpt/1.npz": "two"}


def test_what_a_script_leaves_at_its_end_is_kept(tmp_path: Path) -> None:
    node = Node(tmp_path)
    said: list[str] = []
    keeping = Keeping(node.keeper(), said.append)
    node.writes("ckpt/1.npz", "last")
    while not keeping.ended():
        pass
    keeping.close()
    assert [blob.read_text() for blob in node.blobs] == ["last"] and said == []


def test_a_disk_that_refuses_is_told_of_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.writes("ckpt/1.npz", "last")
    (node.output / FOLDER).write_text("in the way")
    said: list[str] = []
    keeping = Keeping(node.keeper(), said.append)
    while not keeping.ended():
        pass
    keeping.close()
    assert len(said) == 1 and "plain.keep" in said[0]


def test_the_ring_that_a_world_has_is_not_kept(tmp_path: Path) -> None:
    """Patterns match names that begin with a dot, too. What an earlier version has kept of it isn't
    put back."""
    first = Node(tmp_path / "a")
    keeper = Keeper(first.work, first.output, ("*.json", "**/*.json"), 3)
    first.writes("notes.json", "mine", at=5_000)
    Ring(0, ("10.0.0.1:5", "10.0.0.2:6")).variables(first.work)
    assert keeper.look(ended=True) is True
    second = copied(first, tmp_path / "b")
    assert keeper_of(second).restore() == ["notes.json"] and second.has() == {"notes.json": "mine"}
    (index,) = (second.output / FOLDER).glob("*.json")
    told = json.loads(index.read_text())
    assert told["files"].keys() == {"notes.json"}
    told["files"][HOSTS] = told["files"]["notes.json"]
    index.write_text(json.dumps(told))
    assert keeper_of(second).restore() == ["notes.json"] and second.has() == {"notes.json": "mine"}


def keeper_of(node: Node) -> Keeper:
    return Keeper(node.work, node.output, ("**/*.json",), 3)
