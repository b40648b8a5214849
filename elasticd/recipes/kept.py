"""Files of a moment, kept in the output folder under the names of their contents.

What a plain job's script writes in its working folder goes, whole, to ``files`` in a folder of the
outputs, and from there, as all that lies there, to the other nodes. An index names the files of
one moment. It is written behind them, so it is of use where all of them are, whatever part of a
copy has arrived. The newest index that is whole says what is put back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from elasticd.errors import UsageError
from elasticd.outputs import partial_name, travels
from elasticd.shell.storage.durable import settle, sync_folder

FOLDER, CALLS, FILES = "kept", "calls", "files"
"""In the output folder; in the first what scripts have asked for themselves; in both the blobs."""
OUTPUTS, WORK = "ELASTICD_OUTPUT_DIR", "ELASTICD_WORK_DIR"
"""What a plain job's script is told of its folders."""
HOSTS = ".elasticd-hosts.json"
"""In the script's working folder: MLX's host file, which is each world's own."""
_INDICES = 2
"""So many moments are kept: a copy may have come only half of the way to the newest."""
_PIECE = 1 << 20
_LONGEST_NAME = 150
_MOST_INDEX_BYTES = 1 << 20

Signature = tuple[int, int, int]
"""A file's size, time and inode."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file as it was copied."""

    digest: str
    mtime_ns: int
    blob: str
    """Its name in :data:`FILES`."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What one index says.

    Attributes:
        files: by their names below the working folder.
        calls: the paths that a script has named, the newest last; none of files that a pattern
            names.
    """

    files: Mapping[str, KeptFile] = field(default_factory=dict)
    calls: tuple[str, ...] = ()


class KeptFiles:
    """One folder of them, and the working folder that they are of. One thread at a time uses it."""

    def __init__(self, work: Path, home: Path) -> None:
        self.work, self._home = work, home
        self._number = 0
        """The newest index that was read."""
        self._written: tuple[Path, Moment] | None = None

    def newest(self) -> Moment:
        """The newest moment of which every file is here as its digest says; empty without one.

        Raises:
            OSError: the disk refuses.
        """
        for number, path in self._indices():
            self._number = max(self._number, number)
            if self._written is not None and self._written[0] == path:
                return self._written[1]
            moment = _read(path)
            if moment.files and all(map(self._is_whole, set(moment.files.values()))):
                return moment
        return Moment()

    def signature(self, name: str) -> Signature | None:
        """None: it is gone, or no file of this folder's own."""
        if name == HOSTS:
            return None
        path = self.work / name
        above = [self.work / each for each in PurePosixPath(name).parents]
        if path.is_symlink() or any(each.is_symlink() for each in above[:-1]) or not path.is_file():
            return None
        try:
            status = path.lstat()
        except FileNotFoundError:
            return None
        return status.st_size, status.st_mtime_ns, status.st_ino

    def put_back(self, name: str, kept: KeptFile) -> None:
        """Have it in the working folder as it was."""
        target = self.work / name
        if target.is_file() and not target.is_symlink():
            with target.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == kept.digest:
                    os.utime(target, ns=(kept.mtime_ns, kept.mtime_ns))
                    return
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(partial_name())
        try:
            with partial.open("xb") as new, self._blob(kept).open("rb") as old:
                while piece := old.read(_PIECE):
                    new.write(piece)
            os.utime(partial, ns=(kept.mtime_ns, kept.mtime_ns))  # scripts ask which is the newest
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def copy(self, name: str, signature: Signature) -> KeptFile | None:
        """None: it has changed meanwhile, or is gone."""
        folder = self._home / FILES
        _make(folder)
        partial, digest = folder / partial_name(), hashlib.sha256()
        try:
            with (self.work / name).open("rb") as old, partial.open("xb") as new:
                while piece := old.read(_PIECE):
                    digest.update(piece)
                    new.write(piece)
                new.flush()
                if self.signature(name) != signature:
                    return None
                base = name.rpartition("/")[2]
                shown = base if len(base.encode()) <= _LONGEST_NAME else "file"
                blob = f"{digest.hexdigest()[:16]}-{shown}"
                kept = KeptFile(digest.hexdigest(), signature[1], blob)
                settle(new.fileno(), partial, self._blob(kept))
                return kept
        except FileNotFoundError:
            return None
        finally:
            partial.unlink(missing_ok=True)

    def write(self, moment: Moment) -> None:
        """Another index, and nothing that none of the last ones needs.

        Raises:
            UsageError: these are more files than an index names.
            OSError: the disk refuses.
        """
        rows = {name: dataclasses.asdict(kept) for name, kept in moment.files.items()}
        calls = {"calls": moment.calls} if moment.calls else {}
        data = json.dumps({"files": rows, **calls}, sort_keys=True).encode()
        if len(data) > _MOST_INDEX_BYTES:
            raise UsageError(f"{len(rows)} files are too many to be kept: put them in fewer")
        _make(self._home)
        here = self._indices()
        self._number = max([self._number, *(number for number, _ in here[:1])]) + 1
        # Two nodes that were rank 0 may have come to the same number: none takes another's name.
        name = f"{self._number:08d}-{hashlib.sha256(data).hexdigest()[:8]}.json"
        partial = self._home / partial_name()
        try:
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                settle(file.fileno(), partial, self._home / name)
        finally:
            partial.unlink(missing_ok=True)
        self._written = self._home / name, moment
        for _, path in self._indices()[_INDICES:]:
            path.unlink(missing_ok=True)
        self.drop_unneeded()
        sync_folder(self._home)

    def drop_unneeded(self) -> None:
        """Have no copies here but those that an index names."""
        needed = {k.blob for _, path in self._indices() for k in _read(path).files.values()}
        for blob in (self._home / FILES).iterdir() if (self._home / FILES).is_dir() else ():
            if blob.name not in needed:
                blob.unlink(missing_ok=True)

    def _blob(self, kept: KeptFile) -> Path:
        return self._home / FILES / kept.blob

    def _is_whole(self, kept: KeptFile) -> bool:
        try:
            with self._blob(kept).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == kept.digest
        except OSError:
            return False

    def _indices(self) -> list[tuple[int, Path]]:
        """The newest first."""
        found = []
        for path in self._home.glob("*.json"):
            number = path.name.partition("-")[0]
            if number.isascii() and number.isdecimal() and len(number) < 16:
                found.append((int(number), path))
        return sorted(found, reverse=True)


def put_back(moments: Iterable[tuple[KeptFiles, Moment]]) -> list[str]:
    """Have all their files; of those that two have the later ones. Their names.

    Raises:
        OSError: the disk refuses.
    """
    found: dict[str, tuple[KeptFiles, KeptFile]] = {}
    for store, moment in moments:
        for name, kept in moment.files.items():
            newer = name not in found or found[name][1].mtime_ns < kept.mtime_ns
            if newer and name != HOSTS:  # earlier versions have kept that, too
                found[name] = store, kept
    for name, (store, kept) in found.items():
        store.put_back(name, kept)
    return sorted(found)


def _make(folder: Path) -> None:
    """Have it, and have its name outlive a power cut."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def _read(path: Path) -> Moment:
    """Empty if it can't be used: it came from another node."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        if path.stat().st_size > _MOST_INDEX_BYTES:
            return Moment()
        told: dict[str, Any] = json.loads(path.read_bytes())
        found = {
            name: KeptFile(str(row["digest"]), int(row["mtime_ns"]), str(row["blob"]))
            for name, row in told["files"].items()
        }
        blobs = [kept.blob for kept in found.values()]
        if all(map(travels, [*found, *blobs])) and not any("/" in blob for blob in blobs):
            return Moment(found, tuple(map(str, told.get("calls", ()))))
    return Moment()
