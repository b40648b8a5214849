"""Data that every node makes by itself: which of it is told to others, and how it is named."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from elasticd.recipes.rows import RowOrder, RowSource
from elasticd.train.steps.contents import FORM, digests_by_sample
from elasticd.train.steps.data import source_of
from elasticd.train.steps.likeness import sample_digest
from elasticd.train.steps.sampling import Batches

KINDS = ["list", "tuple", "pairs", "dicts", "numpy", "mlx", "table"]


def data_of(kind: str, values: list[float]) -> Any:
    match kind:
        case "list" | "tuple":
            return (list if kind == "list" else tuple)(np.float32(v) for v in values)
        case "pairs":
            return [(np.full(3, v, np.float32), n) for n, v in enumerate(values)]
        case "dicts":
            return [{"text": f"{v}", "tokens": [1, int(v)]} for v in values]
        case "table":
            datasets = pytest.importorskip("datasets", reason="needs elasticd[data]")
            return datasets.Dataset.from_dict({"x": values, "t": [f"{v}" for v in values]})
    array: Any = np.array([[v, 1.0] for v in values], np.float32)
    return mx.array(array) if kind == "mlx" else array


def differing(one: Any, other: Any) -> list[str]:
    mine, theirs = (source_of(data, Batches(2, 1), 0).digests() for data in (one, other))
    assert mine and mine.keys() == theirs.keys()
    return [name for name in mine if mine[name] != theirs[name]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_that_differs_is_named(kind: str) -> None:
    values = [float(n) for n in range(40)]
    assert differing(data_of(kind, values), data_of(kind, values)) == []
    other = [*values[:17], 99.0, *values[18:]]
    assert differing(data_of(kind, values), data_of(kind, other)) == ["sample 17"]


@pytest.mark.parametrize("kind", KINDS)
def test_of_many_samples_some_are_told_together(kind: str) -> None:
    values = [float(n) for n in range(1500)]
    other = [*values[:1000], 0.5, *values[1001:]]
    assert differing(data_of(kind, values), data_of(kind, other)) == ["samples 999 to 1001"]
    assert len(digests_by_sample(data_of(kind, values))) == 500


def test_tables_are_told_as_they_are_stored() -> None:
    """Not what a script's own function makes of each row, which may be slow, or draw numbers."""
    made = data_of("table", [1.0, 2.0])

    def never(rows: Any) -> Any:
        raise AssertionError(rows)

    assert differing(made, made.with_transform(never)) == []
    assert differing(made, made.select([1, 0])) == ["sample 0", "sample 1"]


def test_a_big_table_is_not_read() -> None:
    datasets = pytest.importorskip("datasets", reason="needs elasticd[data]")
    made = datasets.Dataset.from_dict({"image": [b"x" * (1 << 20)] * 65})
    assert digests_by_sample(made) == {} and len(digests_by_sample(made.select(range(2)))) == 2


class OwnClass:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> float:
        raise AssertionError("it may be slow")


class OwnList(list[int]):
    """It may make something else of its samples."""


BIG = {
    "a class": OwnClass(),
    "a list's heir": OwnList([1]),
    "numpy": np.zeros((1, (64 << 20) + 1), np.uint8),
    "mlx": mx.zeros((1, (64 << 20) + 1), mx.uint8),
    "objects": np.array([{}], object),
    "two arrays": [np.zeros(40 << 20, np.uint8)] * 2,
    "bytes": [b"x" * (65 << 20)],
    "many": list(range(16_385)),
    "many texts": np.array(["a"] * 16_385),
    "an array of many texts": [np.array(["a"] * 16_385)],
    "one of many": [[1] * 16_384],
    "a dict of many": [{n: 1 for n in range(8192)}],
}


@pytest.mark.parametrize("data", BIG.values(), ids=BIG)
def test_what_is_big_or_of_a_class_of_ones_own_is_not_told(data: Any) -> None:
    assert digests_by_sample(data) == {}


def test_where_a_file_lies_may_differ_by_node(tmp_path: Path) -> None:
    """The folder that a script runs in does."""
    one, other = ([(f"{tmp_path}/{node}/{name}.png", 1) for name in "ab"] for node in "xy")
    assert differing(one, other) == []
    assert differing(one, [one[0], (f"{tmp_path}/x/c.png", 1)]) == ["sample 1"]
    assert differing(["a/b"], ["c/b"]) == ["sample 0"]


def test_arrays_tell_their_bytes_row_by_row_however_they_lie_in_memory() -> None:
    """As in the release before: nodes compare a sample now and then by that."""
    rows = mx.arange(6).reshape(2, 3).astype(mx.bfloat16)
    assert sample_digest(rows) == "9e67dfdb9ce6fb2c342a8df809bbc504"
    assert sample_digest(rows.T) == "b6acf9ca163264e69bbaf9a4cb6d0801"
    assert sample_digest(rows[:, ::2]) == "ed3a841129684bd104cc8853d4ca52c1"
    parts: Any = [{"x": rows + n, "y": (n, [rows.T * n])} for n in range(3)]
    computed = [{"x": mx.array(p["x"]), "y": (p["y"][0], [mx.array(p["y"][1][0])])} for p in parts]
    mx.eval(computed)
    assert digests_by_sample(parts) == digests_by_sample(computed)


PATHS = [
    "{}/data/b.png",
    "file://{}/data/b.png",
    '["{0}/a.png", "{0}/data/b.png"]',
    "<img src='{}/data/b.png'>\n",
    "/usr/bin/env\n--data={}/data/b.png",
    "PATH={0}/bin:{0}/lib",
    "{}",
    "in {} or so",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [list, np.array, "S", "T", "within"])
@pytest.mark.parametrize("names", ["1 and 2", "plain"])
def test_a_trainers_own_folder_is_no_difference(
    path: str, kind: Any, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a clone of its own, and arrays of NumPy's are as wide as the longest path."""

    def told(number: int, *more: str) -> Any:
        clone = tmp_path / ("a node" if "and" in names else "node") / str(number)
        clone.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(clone)
        texts = [path.format(clone), "a", *more]
        match kind:
            case "S":
                data: Any = np.array([text.encode() for text in texts])
            case "T":
                if not hasattr(np.dtypes, "StringDType"):
                    pytest.skip("NumPy 1 has no such arrays")
                data = np.array(texts, np.dtypes.StringDType())
            case "within":
                data = [{"path": np.array([text])} for text in texts]
            case _:
                data = kind(texts)
        return source_of(data, Batches(2, 1), 0).digests()

    assert told(1, "b") == told(1000, "b") != told(1000, "c")


def test_texts_that_speak_of_a_folder_are_alike_wherever_it_is() -> None:
    """Whether it is a node's own home, or another's, nobody else can know."""
    assert differing(["ls /root/x"], ["ls /home/u/x"]) == []
    for one, other in [("/root/x", "/root/y"), ("https://a/b/c", "https://a/d/c"), ("a/b", "c/b"),
                       ("and/or", "or"), ("~/a/b", "b"), ("/a\nb/c", "/b\nd/c")]:  # fmt: skip
        assert differing([one], [other]) == ["sample 0"]


OF_A_FORM: list[Any] = [
    ["read /etc/hosts and say what it is", "a\nb", "/home/u/a.png", "a/b", ""],
    np.array(["/home/u/a b/c.txt", "x"]),
    np.array([b"see /var/log/x", b"y"]),
    [{"text": "see /a/b/c", "tokens": [1, True, None], "more": (2.5, b"x", {"a", "b"})}],
    [(np.full(3, 0.5, np.float32), np.int64(7)), (mx.array([1.5, 2.5]), mx.array(3, mx.uint8))],
    mx.arange(6).reshape(3, 2),
    np.arange(12, dtype=np.int16).reshape(3, 4),
    list(range(1500)),
    OwnClass(),
]


def test_whoever_changes_what_is_told_of_samples_raises_the_forms_number(tmp_path: Path) -> None:
    """Else nodes of two builds differ while a cluster is upgraded, and jobs fail or lose a node."""
    valid = tmp_path / "valid.jsonl"
    valid.write_text("".join(f'{{"text": "row {n}"}}\n' for n in range(300)))
    train = tmp_path / "train.jsonl"
    train.write_text('{"text": "row"}\n')
    rows = RowSource((), RowOrder((1,), 1, 0), train, [valid, tmp_path / "test.jsonl"])
    told = [digests_by_sample(data) for data in OF_A_FORM]
    told.append({name: text for name, text in rows.digests_by_file().items() if "sample" in name})
    whole = hashlib.blake2b(repr(told).encode(), digest_size=16).hexdigest()
    assert (FORM, whole) == (1, "5b479181ca7becf5068262d8bbcaeec9")


def test_what_nodes_compare_now_and_then_is_the_same_in_every_build() -> None:
    """There is no form of it."""
    made = [sample_digest(data) for data in OF_A_FORM]
    whole = hashlib.blake2b(repr(made).encode(), digest_size=16).hexdigest()
    assert whole == "d4e7a4ec69f6f3672cd0437d69a4bf2f"
