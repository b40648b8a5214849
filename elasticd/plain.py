"""For scripts with a group of their own, in jobs with ``mode = "plain"``: ``elasticd.plain``."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from elasticd.checkpoints.medium import sync_file
from elasticd.errors import OperationError, UsageError
from elasticd.outputs import travels
from elasticd.outputsigns import want_copies
from elasticd.recipes.kept import CALLS, FOLDER, OUTPUTS, WORK, KeptFiles, Moment
from elasticd.shell.storage.durable import sync_folder

_MOST_FILES = 2000
"""Of a folder: all their names stand in one index."""
_copying = threading.Lock()
_stores: dict[Path, KeptFiles] = {}
"""They know what they have written, and needn't read it again."""


def keep(path: str | os.PathLike[str], *, last: int = 4) -> None:
    """Keep a file that rank 0 has written, or a folder of them: it is on the disk when this
    returns, is copied to other nodes from then on, and is put back where the script begins anew on
    another node. Nobody waits for these copies: docs/plain.md says what is promised.

    Call it on every rank, or on rank 0 alone: the others do nothing, and have no need of the file.
    Outside of a job it does nothing but look at what it was given.

    Args:
        path: below the working folder. One below ``ELASTICD_OUTPUT_DIR`` is copied as it lies
            there.
        last: of the paths that differ in digits alone, as ckpt/100.npz and ckpt/200.npz, the newest
            so many are kept. One that is no more there at the next call isn't kept any longer.

    Raises:
        UsageError: it isn't there, is a link, or lies elsewhere, or ``last`` is no such number.
        OperationError: it is being written.
        OSError: the disk refuses.
    """
    if isinstance(last, bool) or not isinstance(last, int) or last < 1:
        raise UsageError(f"elasticd.plain.keep: last= must be a whole number from 1, not {last!r}")
    rank, is_in_job = os.environ.get("MLX_RANK", "0"), {OUTPUTS, WORK} <= set(os.environ)
    work = Path(os.path.realpath(os.environ.get(WORK, ".")))
    outputs = Path(os.path.realpath(os.environ.get(OUTPUTS, ".")))
    named = Path(os.path.abspath(path))
    whole = Path(os.path.realpath(named.parent)) / named.name
    if is_in_job and whole.is_relative_to(outputs):
        if rank == "0":
            _sync(_there(whole))
            want_copies(outputs)
        return
    is_inside = whole != work and whole.is_relative_to(work)
    if not is_inside and (is_in_job or not Path(path).is_absolute()):
        raise UsageError(f"elasticd.plain.keep: {path} is not below the working folder {work}")
    if is_in_job and rank != "0":
        return
    _there(whole)
    if is_in_job:
        name = whole.relative_to(work).as_posix()
        with _copying:
            home = outputs / FOLDER / CALLS
            _keep(_stores.setdefault(home, KeptFiles(work, home)), name, last)
        want_copies(outputs)


def _there(path: Path) -> Path:
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        raise UsageError(f"elasticd.plain.keep: {path} is no file and no folder")
    return path


def _sync(path: Path) -> None:
    """Have what is there, and its name, on the disk."""
    for each in [path, *path.rglob("*")] if path.is_dir() else [path]:
        if each.is_dir() and not each.is_symlink():
            sync_folder(each)
        elif each.is_file():
            with each.open("rb") as file:
                sync_file(file.fileno())
    sync_folder(path.parent)


def _keep(store: KeptFiles, name: str, last: int) -> None:
    """Copy what has that name, and write which of the earlier ones still count."""
    before = store.newest()
    calls = [*(call for call in before.calls if call != name and _is_at(store, call)), name]
    alike = [call for call in calls if _shape(call) == _shape(name)]
    calls = [call for call in calls if call not in alike[:-last]]
    files = {
        each: kept
        for each, kept in before.files.items()
        if not _covers(name, each) and any(_covers(call, each) for call in calls)
    }
    for each in _files(store, name):
        signature = store.signature(each)
        kept = None if signature is None else store.copy(each, signature)
        if kept is None:
            raise OperationError(
                f"elasticd.plain.keep: {each} changed while it was copied: "
                "call this when all is written"
            )
        files[each] = kept
    store.write(Moment(files, tuple(calls)))


def _files(store: KeptFiles, name: str) -> list[str]:
    """Those that are kept of it: no links."""
    if (store.work / name).is_file():
        found = [name]
    else:
        found = sorted(each for each in _below(store, name) if store.signature(each) is not None)
    if not found:
        raise UsageError(f"elasticd.plain.keep: {name} has no file")
    if len(found) > _MOST_FILES:
        raise UsageError(
            f"elasticd.plain.keep: {name} has {len(found)} files; {_MOST_FILES} can be kept at once"
        )
    for each in found:
        if not travels(each):
            raise UsageError(
                f"elasticd.plain.keep: {each!a} is a name that other nodes may not have"
            )
        if store.signature(each) is None:
            raise UsageError(f"elasticd.plain.keep: {each} lies in a link, or is gone")
    return found


def _below(store: KeptFiles, name: str) -> Iterator[str]:
    for folder, _, names in os.walk(store.work / name):
        for each in names:
            yield (Path(folder) / each).relative_to(store.work).as_posix()


def _is_at(store: KeptFiles, call: str) -> bool:
    return (store.work / call).exists()


def _covers(call: str, name: str) -> bool:
    return name == call or name.startswith(f"{call}/")


def _shape(name: str) -> str:
    return re.sub(r"\d+", "0", name)
