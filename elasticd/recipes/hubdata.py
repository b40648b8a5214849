"""Data by a name of the hub's, from this node's cache: JSON lines as they are, or made of what else
``datasets`` reads, and of the splits and columns that ``hf_dataset`` names. The network is not
asked."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from elasticd.checkpoints.medium import order_file
from elasticd.data.tokens import cache_folder
from elasticd.errors import UsageError
from elasticd.recipes.rows import tools_of
from elasticd.settings.hfdataset import HUB, HubRows
from elasticd.settings.recipe import DATA_FILES, MlxLm

_CALLED: dict[str, Any] = {
    "prompt_feature": "prompt",
    "completion_feature": "completion",
    "chat_feature": "messages",
    "text_feature": "text",
}
"""What the lines that are made here call their keys, by the recipe's key for that."""
_FOLDER = "rows"
_SEAL = "digests.json"
"""Beside the lines: of each of their files what is in it. A power cut may leave less of one."""
_LEFT_OUT = "left-out.txt"
"""Beside the lines, if they lack columns: a sentence about these."""
_LAID_OUT = "3"
"""Of the folder with the lines: 2 since it has the digests, 3 since columns may be left out."""
_FORMAT = "2"
"""Of the lines that are made of tables: 2 since rows of a prompt and a completion have tools."""
_MOST_FOLDERS = 8
"""So many data sets are kept as JSON lines; the ones that were not used for longest go."""
_SPLITS = {"train": ("train",), "valid": ("valid", "validation"), "test": ("test",)}
"""Of a data set, by the file's name: mlx-lm's name of it, then that which most data sets have."""


def given(config: MlxLm) -> MlxLm:
    """With the folder of JSON lines in which the data are, and what these call their keys.

    Raises:
        UsageError: they aren't in this node's cache, or can't be read there.
    """
    if not config.hf_dataset:
        return dataclasses.replace(config, data=located(config.data))
    folder = _of_tables(config, config.hf_dataset)
    return dataclasses.replace(config, data=str(folder), **_CALLED)


def located(data: str) -> str:
    """The folder of JSON lines, if that is a name of the hub's.

    Raises:
        UsageError: it isn't in this node's cache, or can't be read there.
    """
    if not data.startswith(HUB):
        return data
    name, folder = _snapshot(data)
    if (folder / "train.jsonl").is_file():
        return str(folder)

    def write(datasets: Any, partial: Path) -> None:
        _write(name, datasets.load_dataset(str(folder)), partial)

    return str(_as_lines(name, [str(folder)], write))


def _snapshot(data: str) -> tuple[str, Path]:
    """Of a name of the hub's: the name without its revision, and the folder in this node's cache.

    Raises:
        UsageError: it isn't there.
    """
    from huggingface_hub import constants, snapshot_download

    name, _, revision = data.removeprefix(HUB).partition("@")
    try:
        found = snapshot_download(
            name, repo_type="dataset", revision=revision or None, local_files_only=True
        )
    except (OSError, ValueError):
        wanted = f" --revision {revision}" if revision else ""
        raise UsageError(
            f"the data {name} are neither a folder nor in this node's cache of the hub"
            f" ({constants.HF_HUB_CACHE}): fetch them once on each node"
            f" (hf download --repo-type dataset {name}{wanted})"
        ) from None
    return name, Path(found)


def _as_lines(name: str, of: Sequence[str], write: Callable[[Any, Path], None]) -> Path:
    """JSON lines of another kind of data set, made once on this node. ``of``: what they are made
    of; ``write`` is given the library, and a folder to which it writes them."""
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise UsageError(
            f"the data {name} are no JSON lines, and datasets, which reads them, is missing on this"
            f" node ({error}): pip install 'elasticd[data]'"
        ) from None
    key = hashlib.sha256("\0".join([_LAID_OUT, *of, datasets.__version__]).encode())
    home = cache_folder().parent / _FOLDER
    made = home / key.hexdigest()[:32]
    if not _is_whole(made):
        if made.exists():
            print(f"elasticd: {made} is damaged; it is made anew", file=sys.stderr)
        partial = home / f"{made.name}.partial-{secrets.token_hex(4)}"
        try:
            partial.mkdir(parents=True)
            write(datasets, partial)
            _seal(partial)
            _put(partial, made)
            os.utime(made)
        except UsageError:
            raise
        except Exception as error:  # datasets raises what it likes
            text = next(iter(str(error).splitlines()), "")
            raise UsageError(
                f"the data {name} can't be read: {type(error).__name__}: {text}"
            ) from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    with contextlib.suppress(OSError):  # another process needs the room
        os.utime(made)
    _make_room(home, made)
    with contextlib.suppress(OSError):  # most have none
        print(f"elasticd: {(made / _LEFT_OUT).read_text(encoding='utf-8')}", file=sys.stderr)
    return made


def _seal(folder: Path) -> None:
    """Have the lines on their way to the medium before the folder's name, and say what they are."""
    said = {}
    for path in sorted(folder.iterdir()):
        said[path.name] = _content_of(path)
        _order(path)
    (folder / _SEAL).write_text(json.dumps(said), encoding="utf-8")
    _order(folder / _SEAL)


def _order(path: Path) -> None:
    with path.open("rb") as file:
        order_file(file.fileno())


def _is_whole(folder: Path) -> bool:
    """Whether all that was made is still there as it was."""
    try:
        said: dict[str, str] = json.loads((folder / _SEAL).read_text(encoding="utf-8"))
        whole = all(_content_of(folder / name) == digest for name, digest in said.items())
        return whole and bool(said)
    except (OSError, ValueError, AttributeError):
        return False


def _content_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _put(partial: Path, made: Path) -> None:
    """Give the folder its name, unless another process was sooner; what is damaged goes."""
    if not _is_whole(made):
        aside = partial.with_name(f"{partial.name}-damaged")
        with contextlib.suppress(FileNotFoundError):
            made.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(OSError):  # another process was sooner
        partial.rename(made)


def _write(name: str, found: Any, folder: Path) -> None:
    lacking = dict[str, str]()
    for file in DATA_FILES:
        split = next((each for each in _SPLITS[file] if each in found), None)
        if split is None:
            if file == "train":
                raise UsageError(f"the data {name} have no split train, only {', '.join(found)}")
            continue
        rows, decoded = _without_media(found[split])
        lacking |= decoded
        with (folder / f"{file}.jsonl").open("w", encoding="utf-8") as lines:
            for row in rows:
                lines.write(_line(row, lacking))
    if lacking:
        columns = ", ".join(f"{column} ({kind})" for column, kind in sorted(lacking.items()))
        (folder / _LEFT_OUT).write_text(
            f"of the data {name} columns are left out that are no JSON: {columns}", encoding="utf-8"
        )


def _without_media(rows: Any) -> tuple[Any, dict[str, str]]:
    """The rows without columns of pictures, sound and the like, which ``datasets`` would decode;
    and the types of these, by column."""
    features = dict(getattr(rows, "features", None) or {})
    media = {column: kind for column, each in features.items() if (kind := _media_in(each))}
    return rows.remove_columns([*media]) if media else rows, media


def _media_in(feature: Any) -> str:
    """The first type of a column's type, or inside of it, that is decoded."""
    if isinstance(feature, dict):
        inner = list(feature.values())
    elif isinstance(feature, (list, tuple)):
        inner = list(feature)
    elif getattr(feature, "decode", None) is True and type(feature).__name__ != "Json":
        return type(feature).__name__
    else:
        inner = [feature.feature] if hasattr(feature, "feature") else []
    return next(filter(None, map(_media_in, inner)), "")


def _line(row: dict[str, Any], lacking: dict[str, str]) -> str:
    """Of JSON, without the columns of ``lacking``. Those that JSON can't hold are put there."""
    kept = {column: value for column, value in row.items() if column not in lacking}
    try:
        return _json(kept) + "\n"
    except (TypeError, ValueError):
        found = {column: type(value).__name__ for column, value in kept.items() if _odd(value)}
        if not found:
            raise
        lacking |= found
        return _line(row, lacking)


def _odd(value: Any) -> bool:
    try:
        return not _json(value)
    except (TypeError, ValueError):
        return True


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _of_tables(config: MlxLm, tables: Sequence[HubRows]) -> Path:
    """The rows of all tables, one after another, with keys as :data:`_CALLED` has them."""
    sources: list[tuple[HubRows, Path]] = []
    of = [_FORMAT, json.dumps([getattr(config, key) for key in _CALLED])]
    for table in tables:
        revision = table.config.get("revision")
        named = f"{table.path}@{revision}" if revision and "@" not in table.path else table.path
        folder = _snapshot(named)[1] if table.path.startswith(HUB) else Path(table.path)
        if not folder.is_dir():
            raise UsageError(f"the data folder {folder} is not on this node")
        sources.append((table, folder))
        of += [json.dumps(dataclasses.asdict(table), sort_keys=True), _look_of(folder)]

    def write(datasets: Any, partial: Path) -> None:
        for file in DATA_FILES:
            rows = [
                row
                for table, folder in sources
                if (split := table.splits[file]) is not None
                for row in _rows_of(config, table, datasets, folder, split)
            ]
            lacking = dict[str, str]()
            text = "".join(_line(row, lacking) for row in rows)
            for key, kind in sorted(lacking.items()):
                raise UsageError(
                    f"the data {_names(tables)} can't be read: what is to be the {key} of a row is"
                    f" of type {kind}, which is no JSON"
                )
            if rows:
                (partial / f"{file}.jsonl").write_text(text, encoding="utf-8")
            elif file == "train":
                raise UsageError(
                    f"the data {_names(tables)} have no row in {tables[0].train_split}"
                )

    return _as_lines(_names(tables), of, write)


def _names(tables: Sequence[HubRows]) -> str:
    return ", ".join(table.path.removeprefix(HUB) for table in tables)


def _look_of(folder: Path) -> str:
    """What shows that files were changed: a snapshot of the hub's never is, another folder may."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    stats = [(str(path), path.stat()) for path in files]
    return json.dumps([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


def _rows_of(
    config: MlxLm, table: HubRows, datasets: Any, folder: Path, split: str
) -> Iterator[dict[str, Any]]:
    """Of one split. As mlx-lm tells formats: prompt and completion, or a chat, or text."""
    more = {key: value for key, value in table.config.items() if key != "revision"}
    found = datasets.load_dataset(str(folder), split=split, **more)
    names = {key: getattr(table, key) or getattr(config, key) for key in _CALLED}
    prompt, completion, chat, text = (names[key] for key in _CALLED)
    for row in _without_media(found)[0]:
        if prompt in row and completion in row:
            yield {"prompt": row[prompt], "completion": row[completion], **tools_of(row)}
        elif chat in row:
            yield {"messages": row[chat], **tools_of(row)}
        elif text in row:
            yield {"text": row[text]}
        else:
            raise UsageError(
                f"the data {table.path.removeprefix(HUB)} have the columns {', '.join(row)}: say"
                " which are prompt_feature and completion_feature, chat_feature or text_feature"
            )


def _make_room(home: Path, own: Path) -> None:
    others = [path for path in home.iterdir() if path != own and path.is_dir()]
    with contextlib.suppress(OSError):  # another process does the same
        others.sort(key=lambda path: path.stat().st_mtime)
        for path in others[: max(0, len(others) - _MOST_FOLDERS + 1)]:
            shutil.rmtree(path, ignore_errors=True)
