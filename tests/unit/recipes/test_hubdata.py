"""Data by name: from a node's cache of the hub, a stand-in here, and never over the network."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elasticd.data.tokens import cache_folder
from elasticd.errors import UsageError
from elasticd.recipes import hubdata
from elasticd.recipes.rows import read_rows
from elasticd.settings.hfdataset import hub_rows
from elasticd.settings.recipe import MlxLm
from elasticd.types import CACHE_VARIABLE
from tests import tinylm

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROWS = [{"prompt": f"p{n}é", "completion": "c"} for n in range(5)]


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As huggingface_hub lays it out; what is made of it goes to another folder."""
    pytest.importorskip("huggingface_hub", reason="needs elasticd[lm]")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    repo = tmp_path / "hub" / "datasets--org--rows"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    (repo / "snapshots" / COMMIT).mkdir(parents=True)
    return repo / "snapshots" / COMMIT


def test_json_lines_are_read_where_they_lie(snapshot: Path) -> None:
    tinylm.write_rows(snapshot / "train.jsonl", ROWS)
    assert hubdata.located("hub:org/rows") == str(snapshot)
    assert hubdata.located(f"hub:org/rows@{COMMIT}") == str(snapshot)
    assert hubdata.located("/some/folder") == "/some/folder"


@pytest.mark.parametrize("name", ["org/other", "org/rows@v2"])
def test_what_is_not_there_is_named_with_the_cure(name: str, snapshot: Path) -> None:
    with pytest.raises(UsageError) as raised:
        hubdata.located(f"hub:{name}")
    plain, _, revision = name.partition("@")
    cure = f"(hf download --repo-type dataset {plain}{' --revision v2' * bool(revision)})"
    assert str(raised.value).endswith(cure)


class Datasets:
    """Stands in for the package: what it reads of a folder, and how often it was asked."""

    __version__ = "5.2.0"

    def __init__(self, found: Any) -> None:
        self.found, self.asked = found, list[str]()

    def load_dataset(self, folder: str) -> Any:
        self.asked.append(folder)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def test_other_kinds_are_made_json_lines_once(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Datasets({"train": ROWS, "validation": ROWS[:2]})
    monkeypatch.setitem(sys.modules, "datasets", package)
    for _ in range(2):
        folder = Path(hubdata.located("hub:org/rows"))
        found = {path.name: path.read_text().splitlines() for path in folder.glob("*.jsonl")}
        assert [json.loads(line) for line in found["train.jsonl"]] == ROWS
        assert len(found["valid.jsonl"]) == 2 and set(found) == {"train.jsonl", "valid.jsonl"}
    assert package.asked == [str(snapshot)]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flip(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"p3", b"p4"))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train.jsonl", truncate),
        ("train.jsonl", flip),
        ("train.jsonl", partial(Path.write_text, data="")),
        ("valid.jsonl", Path.unlink),
        ("digests.json", Path.unlink),
        ("digests.json", truncate),
        ("digests.json", partial(Path.write_text, data="")),
        ("digests.json", partial(Path.write_text, data="{}")),
        ("digests.json", partial(Path.write_text, data="[]")),
    ],
)
def test_what_a_power_cut_has_left_is_made_anew(
    name: str,
    damage: Callable[[Path], Any],
    snapshot: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    package = Datasets({"train": ROWS, "validation": ROWS[:2]})
    monkeypatch.setitem(sys.modules, "datasets", package)
    folder = hubdata.located("hub:org/rows")
    assert capsys.readouterr().err == ""
    damage(Path(folder) / name)
    for _ in range(2):
        assert hubdata.located("hub:org/rows") == folder
        assert lines_of(folder, "train") == ROWS and lines_of(folder, "valid") == ROWS[:2]
    assert len(package.asked) == 2, "once, and once anew"
    assert capsys.readouterr().err == f"elasticd: {folder} is damaged; it is made anew\n"
    assert list(Path(folder).parent.iterdir()) == [Path(folder)]


def test_lines_reach_the_medium_before_their_folders_name(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", Datasets({"train": ROWS, "validation": ROWS}))
    ordered = list[tuple[int, int, bool]]()
    home = cache_folder().parent / "rows"

    def order(fd: int) -> None:
        stat = os.fstat(fd)
        named = [path for path in home.iterdir() if ".partial-" not in path.name]
        ordered.append((stat.st_ino, stat.st_size, bool(named)))

    monkeypatch.setattr(hubdata, "order_file", order)
    folder = Path(hubdata.located("hub:org/rows"))
    stats = [(folder / name).stat() for name in ("train.jsonl", "valid.jsonl", "digests.json")]
    assert ordered == [(stat.st_ino, stat.st_size, False) for stat in stats]


class Slow(Datasets):
    """While it reads another process makes the same."""

    def load_dataset(self, folder: str) -> Any:
        found = super().load_dataset(folder)
        if len(self.asked) % 2:
            self.sooner = Path(hubdata.located("hub:org/rows"))
            self.inode = (self.sooner / "train.jsonl").stat().st_ino
        return found


def test_what_another_process_has_made_meanwhile_stays(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first, and where a damaged one was there."""
    package = Slow({"train": ROWS})
    monkeypatch.setitem(sys.modules, "datasets", package)
    for _ in range(2):
        folder = Path(hubdata.located("hub:org/rows"))
        assert folder == package.sooner
        assert (folder / "train.jsonl").stat().st_ino == package.inode
        assert list(folder.parent.iterdir()) == [folder]
        truncate(folder / "train.jsonl")
    assert len(package.asked) == 4


def test_the_real_package_reads_them(snapshot: Path) -> None:
    pytest.importorskip("datasets", reason="needs elasticd[data]")
    tinylm.write_rows(snapshot / "part-0.json", ROWS)
    folder = Path(hubdata.located("hub:org/rows"))
    lines = (folder / "train.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == ROWS


ODD = [{**row, "created": datetime(2026, 1, 1), "raw": b"x", "n": None} for row in ROWS]


def test_columns_that_are_no_json_are_left_out_and_named(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"train": [{**ROWS[0], "created": None, "raw": None, "n": None}, *ODD[1:]]}
    monkeypatch.setitem(sys.modules, "datasets", Datasets(found))
    for _ in range(2):  # also of lines that were made earlier
        folder = hubdata.located("hub:org/rows")
        assert capsys.readouterr().err == (
            "elasticd: of the data org/rows columns are left out that are no JSON: created"
            " (datetime), raw (bytes)\n"
        )
    assert lines_of(folder, "train")[1:] == [{**row, "n": None} for row in ROWS[1:]]


def test_the_real_package_decodes_no_picture(
    snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """These are broken, so that reading them would fail."""
    package = pytest.importorskip("datasets", reason="needs elasticd[data]")
    picture = package.Image()
    features = {name: package.Value("string") for name in ("prompt", "completion")}
    more = {"when": package.Value("timestamp[s]"), "face": picture}
    nested = {"pages": package.List({"page": picture})}
    broken = {"bytes": b"none", "path": None}
    rows = [
        {**row, "when": datetime(2026, 1, 1), "face": broken, "pages": [{"page": broken}]}
        for row in ROWS
    ]
    table = package.Dataset.from_list(rows, package.Features({**features, **more, **nested}))
    table.to_parquet(str(snapshot / "train.parquet"))
    assert lines_of(hubdata.located("hub:org/rows"), "train") == ROWS
    said = capsys.readouterr().err
    assert "no JSON: face (Image), pages (Image), when (datetime)\n" in said
    given = {"path": "hub:org/rows", "train_split": "train[:2]", "valid_split": "train[2:]"}
    assert lines_of(hubdata.given(recipe(tables=[given])).data, "train") == ROWS[:2]


def test_what_is_to_be_trained_must_be_json(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", Splits({COMMIT: ODD}))
    table = {"path": "hub:org/rows", "train_split": "train[:]", "completion_feature": "created"}
    with pytest.raises(UsageError, match="the completion of a row is of type datetime, which is"):
        hubdata.given(recipe(tables=[table]))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({"all": ROWS}, "the data org/rows have no split train, only all"),
        (ValueError("no files\nhere"), "the data org/rows can't be read: ValueError: no files"),
        ({"train": [{"x": "\ud83d"}]}, "the data org/rows can't be read: UnicodeEncodeError: "),
    ],
)
def test_what_can_not_be_read_is_said_and_leaves_nothing(
    found: Any, why: str, snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", Datasets(found))
    with pytest.raises(UsageError) as raised:
        hubdata.located("hub:org/rows")
    assert str(raised.value).startswith(why) and "\n" not in str(raised.value)
    assert [*(tmp_path / "cache" / "rows").iterdir()] == []


def test_without_the_package_the_cure_is_said(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"datasets, which reads them, is missing.*elasticd\[data"):
        hubdata.located("hub:org/rows")


def test_the_oldest_go(snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", Datasets({"train": ROWS}))
    home = tmp_path / "cache" / "rows"
    for number in range(12):
        (home / f"older-{number}").mkdir(parents=True)
    folder = Path(hubdata.located("hub:org/rows"))
    assert folder.is_dir() and len(list(home.iterdir())) == 8


QUESTIONS = [{"q": f"q{n}", "a": "yes", "id": n} for n in range(10)]
CHATS = [{"turns": [{"role": "user", "content": "hi"}], "tools": None} for _ in range(2)]


class Splits(Datasets):
    """Reads what its folder's name says, and knows one kind of split: ``train[A:B]``."""

    def load_dataset(self, folder: str, split: str = "", **more: Any) -> Any:
        self.asked.append(f"{Path(folder).name} {split} {more}")
        begin, end = split.removeprefix("train[").removesuffix("]").split(":")
        return self.found[Path(folder).name][int(begin or 0) : int(end) if end else None]


def recipe(**keys: Any) -> MlxLm:
    tables = hub_rows([{"valid_split": "train[0:0]", **table} for table in keys.pop("tables")])
    return MlxLm(model="model", hf_dataset=tables, **keys)


def lines_of(folder: str, name: str) -> list[Any]:
    return [json.loads(line) for line in (Path(folder) / f"{name}.jsonl").read_text().splitlines()]


def test_splits_and_columns_are_those_of_the_tables(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    rows = tmp_path / "rows"
    rows.mkdir()
    package = Splits({COMMIT: QUESTIONS, "rows": QUESTIONS[:3]})
    monkeypatch.setitem(sys.modules, "datasets", package)
    one = {
        "path": "hub:org/rows", "prompt_feature": "q", "completion_feature": "a",
        "train_split": "train[:4]", "valid_split": "train[8:]", "test_split": "train[6:7]",
        "config": {"name": "en", "revision": COMMIT},
    }  # fmt: skip
    two = {"path": str(rows), "train_split": "train[1:]", "prompt_feature": "a"}
    config = recipe(tables=[one, two], completion_feature="q", text_feature="id")
    found = hubdata.given(config)
    swapped = [{"prompt": "yes", "completion": f"q{n}"} for n in (1, 2)]
    straight = [{"prompt": f"q{n}", "completion": "yes"} for n in range(10)]
    assert lines_of(found.data, "train") == straight[:4] + swapped
    assert lines_of(found.data, "valid") == straight[8:]
    assert lines_of(found.data, "test") == straight[6:7]
    assert (found.prompt_feature, found.completion_feature) == ("prompt", "completion")
    assert package.asked[0] == f"{COMMIT} train[:4] {{'name': 'en'}}"
    asked = len(package.asked)
    assert hubdata.given(config) == found and len(package.asked) == asked, "made once"
    (rows / "part.json").write_text("{}")
    assert hubdata.given(config).data != found.data, "its files were changed"
    assert hubdata.given(dataclasses.replace(config, completion_feature="id")).data != found.data


def test_chats_and_columns_that_nobody_knows(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", Splits({COMMIT: CHATS}))
    table = {"path": "hub:org/rows", "train_split": "train[:]"}
    found = hubdata.given(recipe(tables=[{**table, "chat_feature": "turns"}]))
    assert lines_of(found.data, "train") == [{"messages": CHATS[0]["turns"]}] * 2
    assert not (Path(found.data) / "valid.jsonl").exists()
    with pytest.raises(UsageError, match="org/rows have the columns turns, tools: say which are"):
        hubdata.given(recipe(tables=[table]))
    empty = recipe(tables=[{**table, "chat_feature": "turns", "train_split": "train[2:]"}])
    with pytest.raises(UsageError, match=r"org/rows have no row in train\[2:\]"):
        hubdata.given(empty)
    with pytest.raises(UsageError, match="the data folder /nowhere is not on this node"):
        hubdata.given(recipe(tables=[{"path": "/nowhere"}]))


@pytest.mark.parametrize("names", [{"chat_feature": "turns"}, {"prompt_feature": "q"}])
def test_tools_go_with_rows_of_either_kind(
    names: dict[str, str], snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    rows = [{**CHATS[0], "q": "where", "completion": "there", "tools": tools}]
    monkeypatch.setitem(sys.modules, "datasets", Splits({COMMIT: rows}))
    table = {"path": "hub:org/rows", "train_split": "train[:]", **names}
    (row,) = lines_of(hubdata.given(recipe(tables=[table])).data, "train")
    assert row["tools"] == tools


def test_tables_may_be_of_several_formats(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    """As mlx-lm takes them: each has what makes tokens of its rows."""
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "you"}]
    tables: dict[str, list[dict[str, Any]]] = {
        "chats": [{"messages": talk}],
        "pairs": ROWS[:2],
        "texts": [{"text": "some words"}],
    }
    apart: list[Any] = []
    for name, rows in tables.items():
        (tmp_path / name).mkdir()
        file = tinylm.write_rows(tmp_path / f"{name}.jsonl", rows)
        apart += read_rows(file, tokenizer, MlxLm(model="model")).samples
    monkeypatch.setitem(sys.modules, "datasets", Splits(tables))
    wanted = [{"path": str(tmp_path / name), "train_split": "train[:]"} for name in tables]
    config = hubdata.given(recipe(tables=wanted))
    path = Path(config.data) / "train.jsonl"
    found = read_rows(path, tokenizer, config).samples
    assert len(found) == len(apart) == 4
    for ((tokens, offset),), ((own, begin),) in zip(found, apart, strict=True):
        assert (tokens.tolist(), offset) == (own.tolist(), begin)
    with pytest.raises(UsageError, match=r'jsonl:4: .*rows of "text" have no prompt'):
        read_rows(path, tokenizer, dataclasses.replace(config, mask_prompt=True))


def test_the_real_package_reads_splits(snapshot: Path) -> None:
    pytest.importorskip("datasets", reason="needs elasticd[data]")
    tinylm.write_rows(snapshot / "part-0.json", QUESTIONS)
    config = MlxLm(
        model="model",
        hf_dataset=hub_rows(
            {"path": "hub:org/rows", "prompt_feature": "q", "completion_feature": "a"}
        ),
    )
    found = hubdata.given(config)
    made = [{"prompt": row["q"], "completion": "yes"} for row in QUESTIONS]
    assert lines_of(found.data, "train") == made[:8] and lines_of(found.data, "valid") == made[9:]
