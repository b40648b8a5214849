"""A job's folder as one file that travels by its content hash.

The file is an uncompressed tar whose bytes depend on names, contents and executable bits alone, so
that the same folder has the same digest on every machine. What .elasticdignore names doesn't travel
(:mod:`elasticd.ignore`), nor does the home of a daemon that lies inside the job's folder.

Folders of which no file travels are named by a header before the files, as JSON. Daemons of earlier
versions, which refuse what is no file, pass over it: there these folders are missing.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import sys
import tarfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from elasticd import imports
from elasticd.disknames import DiskNames, folders_of
from elasticd.errors import ConfigError, ProtocolError, UsageError, naming
from elasticd.ignore import Ignore
from elasticd.settings import job
from elasticd.settings.job import JobSpec
from elasticd.settings.needed import NeededFile
from elasticd.settings.places import HOME_MARKS
from elasticd.settings.recipe import is_config
from elasticd.settings.rules import one_line
from elasticd.wholefolder import whole_folder

MAX_ARCHIVE_BYTES = 64 << 20
MAX_FILES = 10_000
DIGEST_BYTES = 32
DEEPEST = 100
"""So many folders in each other."""
IGNORE_FILE = ".elasticdignore"
_COMPILED = (".pyc", ".pyz", ".zip")
"""What Python runs beside text."""
_SCRIPT = "job.entrypoint"
_EMPTY_FOLDERS = "ELASTICD.empty_folders"
"""The header's key."""
_COARSEST_NS = 2 * 10**9
"""Between two times that a disk can tell apart: exFAT's."""
_OLDER_NS = 10 * 10**9


@dataclass(frozen=True, slots=True)
class Archive:
    """A packed folder: tar bytes, their hex digest, how many files are inside, and the digest of
    these alone, without the empty folders."""

    data: bytes
    digest: str
    files: int
    files_digest: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    path: Path
    size: int
    executable: bool


def digest(data: bytes) -> str:
    """The content hash that names an archive."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def of_job(
    path: Path, overrides: Sequence[str] = (), *, bare: bool = False
) -> tuple[JobSpec, Archive]:
    """What a job.toml says, and what is shipped for it: its folder, or where it has ``[job] files``
    or lies ``bare`` among others, as a file of mlx-lm's does, only what it names.

    Raises:
        UsageError: the file, an assignment or the folder is wrong.
    """
    spec = job.load(path, overrides)
    _check_script(path.parent, spec)
    bare = bare or is_config(path)
    only = (*spec.inside, *spec.job.files) if bare or spec.job.files else None
    packed = pack(path.parent, only, [each for each in spec.needed if each.key != _SCRIPT])
    sent = files_of(packed.data)
    for each in spec.needed:
        if why := each.unsent(path.parent, sent, only, IGNORE_FILE):
            raise ConfigError(why, file=str(path), key=each.key)
    return spec, packed


def _check_script(folder: Path, spec: JobSpec) -> None:
    """Raises ConfigError for a script that is no Python, as this one reads it, which is the job's
    own unless it names another; or that imports as only what is in a package can."""
    script = folder / spec.job.entrypoint
    if spec.recipe is not None or spec.job.python or script.suffix in _COMPILED:
        return
    try:
        with warnings.catch_warnings(action="ignore"):
            source = script.read_bytes()
            compile(source, str(script), "exec", dont_inherit=True)
            found = imports.relative(source)
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        raise ConfigError(
            f"{said}, says {version}; correct it, or name the script's own Python in job.python",
            file=str(script), line=line, key=_SCRIPT,
        ) from None  # fmt: skip
    except (OSError, MemoryError, RecursionError):
        return  # who packs it says the first; what is nested so deep is for the trainer to try
    if found is not None:
        line, said, instead = found
        raise ConfigError(
            f'"{said}" fails in the script that is started, as it is in no package; write '
            f'"{instead}", of what lies beside it',
            file=str(script), line=line, key=_SCRIPT,
        )  # fmt: skip


def pack(
    folder: Path, only: Sequence[str] | None = None, movable: Sequence[NeededFile] = ()
) -> Archive:
    """Archive what is in ``folder``; with ``only`` these files and folders of it. ``movable`` may
    lie elsewhere on each node, which is said where there is too much.

    Raises:
        UsageError: a link leaves the folder, something is no file or can't be read, is not there,
            two names are one on some disk, or there is too much; says which.
    """
    walk = _Walk(folder)
    found = walk.files() if only is None else walk.named(only)
    entries = sorted({entry.name: entry for entry in found}.values(), key=lambda entry: entry.name)
    names = [entry.name for entry in entries]
    empty = _without(walk.empty, names) if entries else []
    _check_names(folder, names, empty)
    _check_size(folder, entries, sum(entry.size for entry in entries), movable)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            content = _read(entry)
            header = tarfile.TarInfo(entry.name)
            header.size = len(content)
            header.mode = 0o755 if entry.executable else 0o644
            tar.addfile(header, io.BytesIO(content))
    files = buffer.getvalue()
    data = _header_of(empty) + files
    _check_size(folder, entries, len(data), movable)
    of_files = digest(files)
    return Archive(data, digest(data) if empty else of_files, len(entries), of_files)


def _without(folders: set[str], names: list[str]) -> list[str]:
    """Those in which nothing else lies: somebody may have named a file of one besides."""
    filled = {above for name in (*names, *folders) for above in folders_of(name)}
    return sorted(folders - filled)


def _header_of(empty: list[str]) -> bytes:
    if not empty:
        return b""
    return tarfile.TarInfo.create_pax_global_header({_EMPTY_FOLDERS: json.dumps(empty)})


def unpack(data: bytes, folder: Path) -> None:
    """Write an archive's files and empty folders into ``folder``, which appears whole or not at
    all.

    The parent must exist. Nothing is flushed to disk: after a power cut ask :func:`is_unpacked`.

    Raises:
        ProtocolError: the archive is damaged, too big, or holds a name or a kind that :func:`pack`
            never writes.
        FileExistsError: ``folder`` is there already.
        OSError: writing failed.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists")
    if len(data) > MAX_ARCHIVE_BYTES:
        raise ProtocolError(f"the archive is larger than {MAX_ARCHIVE_BYTES} bytes")
    with whole_folder(folder) as beside:
        for header, content in _everything(data):
            path = beside / header.name
            if header.isdir():
                with naming(path):
                    path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with naming(path):
                path.write_bytes(content)
            path.chmod(0o755 if header.mode & stat.S_IXUSR else 0o644)
            _set_back(path)


def _set_back(path: Path) -> None:
    """Let a file be some seconds older than it is: so whoever writes it next gives it another time,
    on disks too that count in seconds, and that shows."""
    status = path.stat()
    coarse = (status.st_mtime_ns - _OLDER_NS) // _COARSEST_NS * _COARSEST_NS
    os.utime(path, ns=(status.st_atime_ns, coarse))


def is_unpacked(data: bytes, folder: Path) -> bool:
    """Whether ``folder`` has all of the archive's files, as they are there, and empty folders. More
    may lie in it.

    Raises:
        ProtocolError: as :func:`unpack`.
    """
    try:
        return all(
            (folder / h.name).is_dir() if h.isdir() else (folder / h.name).read_bytes() == content
            for h, content in _everything(data)
        )
    except OSError:
        return False


class _Walk:
    """Finds the files to ship, and the folders of which none is; links are followed as long as they
    stay inside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = Path(os.path.realpath(folder))
        self.ignore = Ignore(_ignore_lines(folder))
        self.empty: set[str] = set()
        self.count = 0
        """Files and empty folders."""
        self.homes = 0
        self.per_folder: Counter[str] = Counter()

    def files(self) -> Iterator[_Entry]:
        yield from self._inside(self.root, "", (self.root,))

    def named(self, names: Sequence[str]) -> Iterator[_Entry]:
        """Those that somebody has named, whatever is ignored otherwise."""
        for each in names:
            path = PurePosixPath(each)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise UsageError(f"{one_line(each)}: must be a path inside the job's folder")
            name = str(path)
            real = Path(os.path.realpath(self.root / name))
            if not real.is_relative_to(self.root):
                raise UsageError(f"{self._shown(name)}: is a link that leaves the job's folder")
            if real.is_dir():
                yield from self._inside(real, f"{name}/", (self.root, real))
            else:
                yield self._file(name, real)

    def _inside(self, folder: Path, prefix: str, above: tuple[Path, ...]) -> Iterator[_Entry]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            raise UsageError(f"{self._shown(prefix)}: can't be read: {error.strerror}") from None
        if prefix and any(entry.name in HOME_MARKS for entry in entries):
            self.homes += 1
            return
        before = self.count, self.homes
        for entry in entries:
            name = prefix + entry.name
            try:
                is_folder = entry.is_dir()
            except OSError as error:  # a loop of links
                raise UsageError(f"{self._shown(name)}: can't be read: {error.strerror}") from None
            if self.ignore(name, folder=is_folder):
                continue
            real = self._real(name, entry) if entry.is_symlink() else folder / entry.name
            if is_folder:
                if real in above:
                    raise UsageError(f"{self._shown(name)}: is a link to a folder above it")
                if len(above) > DEEPEST:
                    raise UsageError(
                        f"{self._shown(name)}: lies in more than {DEEPEST} folders; name one of"
                        f" them in {IGNORE_FILE}"
                    )
                yield from self._inside(real, f"{name}/", (*above, real))
            else:
                yield self._file(name, real)
        if prefix and (self.count, self.homes) == before:
            self._empty(prefix.rstrip("/"))

    def _empty(self, name: str) -> None:
        _check_text(name, self._shown(name))
        self._count(name)
        self.empty.add(name)

    def _real(self, name: str, entry: os.DirEntry[str]) -> Path:
        real = Path(os.path.realpath(entry.path))
        if not real.is_relative_to(self.root):
            raise UsageError(f"{self._shown(name)}: is a link that leaves the job's folder")
        return real

    def _file(self, name: str, path: Path) -> _Entry:
        shown = self._shown(name)
        _check_text(name, shown)
        try:
            status = path.stat()
        except OSError as error:
            raise UsageError(f"{shown}: can't be read: {error.strerror}") from None
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{shown}: is no regular file; name it in {IGNORE_FILE}")
        self._count(name)
        return _Entry(name, path, status.st_size, bool(status.st_mode & stat.S_IXUSR))

    def _count(self, name: str) -> None:
        self.count += 1
        self.per_folder[name.rpartition("/")[0]] += 1
        if self.count > MAX_FILES:
            biggest, files = self.per_folder.most_common(1)[0]
            kinds = "files and empty folders" if self.empty else "files"
            raise UsageError(
                f"{self._shown('')}: holds more than {MAX_FILES} {kinds} ({files} of the first in"
                f" {self._shown(biggest)}); name what isn't needed in {IGNORE_FILE}"
            )

    def _shown(self, name: str) -> str:
        return one_line(str(self.folder / name))


def _ignore_lines(folder: Path) -> list[str]:
    path = folder / IGNORE_FILE
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{one_line(str(path))}: can't be read: {error}") from None


def _check_text(name: str, shown: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{shown}: its name is not UTF-8") from None


def _check_names(folder: Path, files: list[str], empty: list[str]) -> None:
    """A node's disk may know no case, as a Mac's."""
    names = DiskNames()
    for name, is_folder in (*((each, False) for each in files), *((each, True) for each in empty)):
        if (other := names.add(name, folder=is_folder)) is not None:
            one, two = (one_line(each) for each in (other, name))
            raise UsageError(
                f"{one_line(str(folder))}: {one} and {two} are in each other's way on a disk that"
                f" knows no case; rename one, or name it in {IGNORE_FILE}"
            )


def _check_size(
    folder: Path, entries: list[_Entry], size: int, movable: Sequence[NeededFile]
) -> None:
    if size > MAX_ARCHIVE_BYTES:
        biggest = max(entries, key=lambda entry: entry.size)
        its = next((each.key for each in movable if each.holds(folder, biggest.name)), None)
        cure = f"name what isn't needed in {IGNORE_FILE}"
        if its is not None:
            cure = f"give {its} an absolute path, of what every node has"
        raise UsageError(
            f"{one_line(str(folder))}: holds more than"
            f" {MAX_ARCHIVE_BYTES >> 20} MiB (the biggest file is {one_line(biggest.name)},"
            f" {biggest.size / 2**20:.1f} MiB); {cure}"
        )


def _read(entry: _Entry) -> bytes:
    try:
        with entry.path.open("rb") as stream:
            content = stream.read(MAX_ARCHIVE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{one_line(str(entry.path))}: can't be read: {error.strerror}") from None
    if len(content) > MAX_ARCHIVE_BYTES:
        raise UsageError(f"{one_line(str(entry.path))}: grew while it was read")
    return content


def _members(data: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Its files."""
    return ((header, content) for header, content in _everything(data) if header.isfile())


def _everything(data: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Its files, then its empty folders."""
    total = 0
    count, names = 0, DiskNames()
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for header in tar:
                _check_header(header, names)
                total, count = total + header.size, count + 1
                if total > MAX_ARCHIVE_BYTES or count > MAX_FILES:
                    raise ProtocolError("the archive holds more than it may")
                stream = tar.extractfile(header)
                content = stream.read() if stream else b""
                if len(content) != header.size:
                    raise ProtocolError("the archive ends too early")
                yield header, content
            empty = _named_empty(tar.pax_headers)
        if count + len(empty) > MAX_FILES:
            raise ProtocolError("the archive holds more than it may")
        for name in empty:
            _check_name(name, names, folder=True)
            header = tarfile.TarInfo(name)
            header.type = tarfile.DIRTYPE
            yield header, b""
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"the archive can't be read: {error}") from None


def _named_empty(headers: Mapping[str, str]) -> list[str]:
    named = json.loads(headers.get(_EMPTY_FOLDERS, "[]"))
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise ProtocolError("the archive's empty folders are no names")
    return named


def _check_header(header: tarfile.TarInfo, names: DiskNames) -> None:
    if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or header.size < 0:
        raise ProtocolError(f"{header.name!a} in the archive is no regular file")
    _check_name(header.name, names)


def _check_name(name: str, names: DiskNames, *, folder: bool = False) -> None:
    path, shown = PurePosixPath(name), ascii(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ProtocolError(f"{shown} in the archive leaves its folder")
    if len(path.parts) > DEEPEST + (not folder):
        raise ProtocolError(f"a name in the archive has more than {DEEPEST} folders")
    if folder:
        name.encode()
    if (other := names.add(str(path), folder=folder)) is not None:
        raise ProtocolError(f"{shown} in the archive has the name of {other!a}")


def files_of(data: bytes) -> set[str]:
    """The names of the archive's files.

    Raises:
        ProtocolError: as :func:`unpack`.
    """
    return {header.name for header, _ in _members(data)}


def sources(data: bytes) -> dict[str, bytes]:
    """The Python files of an archive, by name.

    Raises:
        ProtocolError: as :func:`unpack`.
    """
    return {h.name: content for h, content in _members(data) if h.name.endswith(".py")}


def folder_bytes(data: bytes, folder: str, names: str) -> int:
    """How large the files of that folder of it are whose names match a pattern.

    Raises:
        ProtocolError: as :func:`unpack`.
    """
    inside = PurePosixPath(folder)
    paths = ((PurePosixPath(header.name), header.size) for header, _ in _members(data))
    return sum(size for path, size in paths if path.parent == inside and path.match(names))
