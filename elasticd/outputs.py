"""What a folder of output files holds, and which names in it may travel.

Regular files travel, each by its name below the folder. Links don't, nor does the library's own
folder. A name that comes from elsewhere is checked before anything is read or written by it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from elasticd.disknames import DiskNames, folded
from elasticd.errors import OperationError, ProtocolError
from elasticd.settings.rules import encodable, one_line
from elasticd.types import NodeId, Within

OWN_FOLDER = ".elasticd"
"""In the output folder; for what is no business of a script's."""
PARTIAL_PREFIX = ".partial-"
"""Begins the name of a file that is still being copied there."""
WHOLE_PREFIX = "whole-"
"""Begins the name of a folder in our own, in which files of ``run.open`` are put together."""
_PARTIAL_BYTES = 8
_PARTIAL = re.compile(rf"{re.escape(PARTIAL_PREFIX)}[0-9a-f]{{{2 * _PARTIAL_BYTES}}}")
MOST_FILES = 10_000
"""Of a folder, in the order of their names; the others are skipped."""
MOST_SKIPPED = 1000
"""So many of those are named."""
SMALL_BYTES = 1 << 20
"""Of a file that comes before all larger ones, however old it is."""
_LONGEST_NAME_BYTES = 1000
_LONGEST_SHOWN = 200
DEEPEST = 50
"""So many folders in each other."""
_ANY = Within(-(1 << 63), (1 << 64) - 1)
_LONGEST_PATH = (errno.ENAMETOOLONG, errno.ELOOP)
"""What a system says of a name that is too long for it."""


def index_of(name: str) -> str:
    """The name of the index of a file of ``run.open``, in :data:`OWN_FOLDER`: each file's own."""
    return f"{name.replace('%', '%25').replace('/', '%2F')}.index"


def older_index_of(name: str) -> str:
    """What it was called before. ``a/%b`` and ``a%/b`` had one: where three ``%`` stand in a row
    it isn't known whose it is."""
    return f"{name.replace('%', '%%').replace('/', '%')}.steps"


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file as it was found."""

    name: str
    bytes: int
    mtime_ns: Annotated[int, _ANY]
    inode: Annotated[int, _ANY]
    managed: bool = False
    """It is one of ``run.open``: every rank's own is made like main's by the library."""
    steps: tuple[tuple[int, int], ...] = ()
    """Of which steps it has lines, if that was asked: the first and the last of each run of them;
    -1 stands for what was there before the run."""

    @property
    def mark(self) -> list[int]:
        """By which it is known that nobody has written to it since."""
        return [self.inode, self.bytes, self.mtime_ns]

    def grown(self, later: OutputFile) -> bool:
        """Whether it may only have been appended to until ``later`` was found."""
        return later.inode == self.inode and later.bytes >= self.bytes


@dataclass(frozen=True, slots=True)
class Listing:
    """A folder's files by name.

    Attributes:
        skipped: what is there and left out, since it would be too much or its name can't travel: as
            the names are shown, and no more than :data:`MOST_SKIPPED`.
    """

    files: tuple[OutputFile, ...]
    skipped: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def by_name(self) -> dict[str, OutputFile]:
        return {file.name: file for file in self.files}


@dataclass(frozen=True, slots=True)
class OutputSet:
    """The files of whoever was main, as they were at one time.

    Attributes:
        source: the node in whose folder they were found.
        generation: the counter of the world in which that node was main; 0: not known.
        made: when, by that node's clock.
        digests: of a copy's files, SHA-256 in hex by name, as they came; a copy that an earlier
            version made has none.
    """

    source: NodeId
    generation: int
    made: float
    listing: Listing
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, float]:
        """Of two the larger is the newer."""
        return self.generation, self.made

    def has(self, name: str, path: Path) -> bool:
        """Whether a file has the content that the copy's had when it came; True if that was not
        noted. Blocks."""
        if (noted := self.digests.get(name)) is None:
            return True
        try:
            return digest_of(path) == noted
        except OSError:  # a disk that can't read it has lost it too
            return False


def digest_of(path: Path) -> str:
    """SHA-256 of a file in hex, as :class:`OutputSet` has it. Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_files(folder: Path) -> Listing:
    """The files of ``folder``, which may be missing. Of names that are one name on some disk the
    first is taken, and the others are skipped; so is what can't travel.

    Raises:
        OSError: it can't be read.
    """
    indices = _indices(folder)
    found: list[OutputFile] = []
    skipped: list[str] = []
    for name, status in _walk(folder, ""):
        if status is not None and len(found) < MOST_FILES:
            managed = index_of(name) in indices or older_index_of(name) in indices
            found.append(_found(name, status, managed))
        elif len(skipped) < MOST_SKIPPED:
            skipped.append(shown(name))
        elif len(found) == MOST_FILES:
            break
    return _apart(sorted(found, key=lambda file: file.name), skipped)


def _found(name: str, status: os.stat_result, managed: bool) -> OutputFile:
    """A disk may have times that no other disk and no frame has: the nearest counts."""
    mtime_ns = min(max(status.st_mtime_ns, -(1 << 63)), (1 << 63) - 1)
    inode = min(max(status.st_ino, _ANY.least), _ANY.most)
    return OutputFile(name, status.st_size, mtime_ns, inode, managed)


def shown(name: str) -> str:
    """A name as it can be written in any frame, on one line."""
    text = one_line(encodable(name))
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _apart(files: Sequence[OutputFile], skipped: list[str]) -> Listing:
    kept, names = [], DiskNames()
    for file in files:
        if names.add(file.name) is None:
            kept.append(file)
        else:
            skipped.append(shown(file.name))
    return Listing(tuple(kept), tuple(skipped[:MOST_SKIPPED]))


def within(listing: Listing, limit_bytes: int) -> Listing:
    """The small files, then the newer ones of the large, as many as fit: a script that removes no
    checkpoint has the newest copied. The others are skipped."""
    left, kept, skipped = limit_bytes, [], list(listing.skipped)
    for file in sorted(listing.files, key=_rank):
        if file.bytes > left:
            skipped.append(shown(file.name))
            continue
        left -= file.bytes
        kept.append(file)
    skipped = sorted(skipped)[:MOST_SKIPPED]
    return Listing(tuple(sorted(kept, key=lambda file: file.name)), tuple(skipped))


def _rank(file: OutputFile) -> tuple[int, int, str]:
    if file.bytes <= SMALL_BYTES:
        return 0, file.bytes, file.name
    return 1, -file.mtime_ns, file.name


def checked(names: Sequence[str]) -> None:
    """Check names that came from elsewhere.

    Raises:
        ProtocolError: one would leave the folder, or can't stand beside another.
    """
    if len(names) > MOST_FILES:
        raise ProtocolError(f"{len(names)} output files are more than {MOST_FILES}")
    known = DiskNames()
    for name in names:
        parts = name.split("/")
        if any(map(is_own, parts)) or "\0" in name or {"", ".", ".."} & set(parts):
            raise ProtocolError(f"{name!a} is no name of an output file")
        if len(name.encode(errors="replace")) > _LONGEST_NAME_BYTES:
            raise ProtocolError(f"{name[:20]!a}…: the name of an output file is too long")
        if (other := known.add(name)) is not None:
            raise ProtocolError(f"the output files {name!a} and {other!a} have one name")


def open_file(folder: Path, name: str) -> int:
    """A descriptor of a file, the caller's to close.

    Raises:
        ProtocolError: that is no name of one.
        OperationError: it is a link or no regular file.
        OSError: it isn't there.
    """
    checked([name])
    return _opened(folder, name)


def open_index(folder: Path, name: str) -> int:
    """A descriptor of the index of a file of ``run.open``. Raises as :func:`open_file`."""
    checked([name])
    return _opened(folder, f"{OWN_FOLDER}/{index_of(name)}")


def _opened(folder: Path, name: str) -> int:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    *above, last = name.split("/")
    try:
        for part in above:
            fd = _step(fd, part, os.O_DIRECTORY)
        fd = _step(fd, last, os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OperationError(f"{name!a} is no regular file")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _step(fd: int, part: str, flags: int) -> int:
    """Open what lies in the folder ``fd``, never through a link, and close that."""
    inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=fd)
    os.close(fd)
    return inner


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """Names below a folder, in order; None: that, and what it holds, can't travel."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        # Of anything else nothing is known: what is there might be taken for removed.
        if not prefix or not (isinstance(error, PermissionError) or error.errno in _LONGEST_PATH):
            raise
        yield prefix, None
        return
    for entry in entries:
        name = prefix + entry.name
        try:
            yield from _entry(folder, name, entry)
        except FileNotFoundError:
            continue  # the script has just removed it
        except OSError as error:
            if error.errno not in _LONGEST_PATH:
                raise
            yield name, None


def _entry(
    folder: Path, name: str, entry: os.DirEntry[str]
) -> Iterator[tuple[str, os.stat_result | None]]:
    if is_own(entry.name):
        if not (is_partial(entry.name) or (name == OWN_FOLDER and entry.is_dir())):
            yield name, None
    elif entry.is_dir(follow_symlinks=False):
        if name.count("/") >= DEEPEST or not travels(name):
            yield f"{name}/", None
        else:
            yield from _walk(folder / entry.name, f"{name}/")
    elif stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode):
        yield name, status if travels(name) else None


def is_own(part: str) -> bool:
    """Whether a name, of a file or of a folder, is the library's own on any disk."""
    return (name := folded(part)) == OWN_FOLDER or name.startswith(PARTIAL_PREFIX)


def partial_name() -> str:
    """A new one, for a file that is being copied."""
    return f"{PARTIAL_PREFIX}{secrets.token_hex(_PARTIAL_BYTES)}"


def is_partial(part: str) -> bool:
    """Whether it is one of these, and not a script's own file."""
    return _PARTIAL.fullmatch(part) is not None


def travels(name: str) -> bool:
    """Whether a file of that name can be copied to every node."""
    try:
        checked([name])
        name.encode()
    except (ProtocolError, UnicodeEncodeError):
        return False
    return True


def _indices(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder / OWN_FOLDER))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return set()  # or the script has put something else there
