"""One copy of a node's output files, or of its copy of another's, is fetched.

What the last copy has already is linked, the rest comes over the network, and so does what the disk
has changed in the last copy. A second look tells what was written meanwhile. A script may remove
its older files before they have come: then its newer ones are fetched, and what was copied before
stays if they are gone, too. The digest of each file that has come is noted, so that who takes a
copy of a copy finds out whether a disk has changed it.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elasticd.core.words.bulk import WantOutput
from elasticd.disknames import DiskNames
from elasticd.errors import OperationError
from elasticd.outputs import (
    MOST_FILES,
    Listing,
    OutputFile,
    OutputSet,
    digest_of,
    shown,
    within,
)
from elasticd.shell.storage.outputcopies import Copy
from elasticd.shell.storage.outputs import Outputs
from elasticd.types import JobId, NodeId

_NO_NAME = (errno.EILSEQ, errno.ENAMETOOLONG, errno.EINVAL, errno.EEXIST, errno.ENOTDIR,
            errno.EISDIR)  # fmt: skip
"""This disk knows no such name, or has another file under it."""
_TRIES = 3
"""How often something is fetched: then what was just being written, and what is new by then."""


@dataclass
class Bringing:
    """Of the files that are ``there``: those of a node, or those of its ``copy``."""

    outputs: Outputs
    job: JobId
    node: NodeId
    copy: bool
    limit_bytes: int
    there: OutputSet
    have: Copy | None
    """The newest copy that is here."""
    _told: dict[str, str] = field(init=False)
    """Digests that its files have to have."""
    _digests: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._told = self.there.digests

    async def into(self, staged: Path) -> OutputSet:
        """Stage the files; what they are.

        Raises:
            OperationError: the node can't be asked any more, or has a damaged copy.
            OSError: the disk refuses.
        """
        there, have = self.there, self.have
        older = have.made.listing.by_name() if have and have.made.source == there.source else {}
        got: dict[str, OutputFile] = {}
        now: dict[str, OutputFile] = {}
        asked = set[str]()
        wanted = list(there.listing.files)
        for _ in range(_TRIES):
            came = {file.name for file in wanted if await self._one(file, staged,
                    have if older.get(file.name) == file else None)}  # fmt: skip
            after = await self.outputs.ask_set(self.node, self.job, self.copy, self.limit_bytes)
            now, self._told = after.listing.by_name(), after.digests
            asked.update(file.name for file in wanted)
            for file in wanted:
                later = now.get(file.name)
                if file.name in came and (later is None or later == file or file.grown(later)):
                    got[file.name] = file
            gone = not asked <= now.keys()
            wanted = [f for f in now.values() if f.name not in got and (gone or f.name in asked)]
            if not wanted:
                break
        if self.copy and wanted:  # nobody writes there
            raise OperationError(f"{shown(wanted[0].name)} in the copy on {self.node} is damaged")
        for file in wanted:  # it is being written all the time: what was there before stays
            last = have if file.name in older else None
            if last is not None and await self._links(file, last, staged / file.name):
                got[file.name] = older[file.name]
        new = {file.name for file in wanted} - asked
        missing = (new | (asked - now.keys())) - got.keys()
        kept = _kept(got, older if missing else {}, now, self.limit_bytes)
        is_newer = any(older.get(file.name) != file for file in kept)
        if not kept or (missing & new and not is_newer):
            raise OperationError(f"no newer file of {self.node} came whole: they are removed, or"
                                 " written anew, in less time than a copy takes")  # fmt: skip
        for file in [each for each in kept if each.name not in got]:
            if have is None or not await self._links(file, have, staged / file.name):
                kept.remove(file)
        return OutputSet(
            there.source,
            there.generation,
            there.made,
            Listing(tuple(kept), there.listing.skipped),
            {f.name: self._digests[f.name] for f in kept if f.name in self._digests},
        )

    async def _one(self, file: OutputFile, staged: Path, have: Copy | None) -> bool:
        """Have one file staged; False: it is another by now."""
        target = staged / file.name
        if have is not None and await self._links(file, have, target):
            return True
        try:
            wanted = WantOutput(self.job, file.name, self.copy)
            if not await self.outputs.fetch(self.node, wanted, file, target):
                return False
        except OperationError:
            if not self.outputs.reaches(self.node):
                raise
            return False  # it was removed, cut, or has grown much while it came
        except OSError as error:
            if error.errno not in _NO_NAME:
                raise
            return False
        self._digests[file.name] = found = await asyncio.to_thread(digest_of, target)
        return self._told.get(file.name, found) == found

    async def _links(self, file: OutputFile, have: Copy, target: Path) -> bool:
        """Take a file of the last copy; False: the disk has changed it."""
        name = file.name
        if not await asyncio.to_thread(have.made.has, name, have.files / name):
            return False
        await asyncio.to_thread(_link, have.files / name, target)
        self._digests.pop(name, None)
        if name in have.made.digests:
            self._digests[name] = have.made.digests[name]
        return True


def _kept(
    got: Mapping[str, OutputFile],
    older: Mapping[str, OutputFile],
    now: Mapping[str, OutputFile],
    limit_bytes: int,
) -> list[OutputFile]:
    """The files of a copy: what is there ``now`` and is ``got``; then what is gone, got or
    ``older``, unless it came under another name or there is no room for it."""
    kept, names = [file for name, file in got.items() if name in now], DiskNames()
    for file in kept:
        names.add(file.name)
    inodes = {file.inode for file in kept}
    gone = [
        file
        for file in (*got.values(), *older.values())
        if file.name not in now and file.inode not in inodes and names.add(file.name) is None
    ]
    kept += within(Listing(tuple(gone)), limit_bytes - Listing(tuple(kept)).bytes).files
    return sorted(kept[:MOST_FILES], key=lambda file: file.name)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    os.link(source, target)
