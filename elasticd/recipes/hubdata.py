"""Data by a name of the hub's, from this node's cache: JSON lines as they are, or made of what else
``datasets`` reads. The network is not asked."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from elasticd.data.tokens import cache_folder
from elasticd.errors import UsageError
from elasticd.settings.recipe import DATA_FILES, HUB

_FOLDER = "rows"
_MOST_FOLDERS = 8
"""So many data sets are kept as JSON lines; the ones that were not used for longest go."""
_SPLITS = {"train": ("train",), "valid": ("valid", "validation"), "test": ("test",)}
"""Of a data set, by the file's name: mlx-lm's name of it, then that which most data sets have."""


def located(data: str) -> str:
    """The folder of JSON lines, if that is a name of the hub's.

    Raises:
        UsageError: it isn't in this node's cache, or can't be read there.
    """
    if not data.startswith(HUB):
        return data
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
    folder = Path(found)
    return found if (folder / "train.jsonl").is_file() else str(_as_lines(name, folder))


def _as_lines(name: str, folder: Path) -> Path:
    """JSON lines of another kind of data set, made once on this node."""
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise UsageError(
            f"the data {name} are no JSON lines, and datasets, which reads them, is missing on this"
            f" node ({error}): pip install 'elasticd[data]'"
        ) from None
    key = hashlib.sha256(f"{folder}\0{datasets.__version__}".encode()).hexdigest()[:32]
    home = cache_folder().parent / _FOLDER
    made = home / key
    if not (made / "train.jsonl").is_file():
        partial = home / f"{key}.partial-{secrets.token_hex(4)}"
        try:
            partial.mkdir(parents=True)
            _write(name, datasets.load_dataset(str(folder)), partial)
            with contextlib.suppress(OSError):  # another process was sooner
                partial.rename(made)
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
    return made


def _write(name: str, found: Any, folder: Path) -> None:
    for file in DATA_FILES:
        split = next((each for each in _SPLITS[file] if each in found), None)
        if split is None:
            if file == "train":
                raise UsageError(f"the data {name} have no split train, only {', '.join(found)}")
            continue
        with (folder / f"{file}.jsonl").open("w", encoding="utf-8") as lines:
            for row in found[split]:
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def _make_room(home: Path, own: Path) -> None:
    others = [path for path in home.iterdir() if path != own and path.is_dir()]
    with contextlib.suppress(OSError):  # another process does the same
        others.sort(key=lambda path: path.stat().st_mtime)
        for path in others[: max(0, len(others) - _MOST_FOLDERS + 1)]:
            shutil.rmtree(path, ignore_errors=True)
