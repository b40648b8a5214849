"""One file to send when something is wrong: findings, versions, the ends of the daemon's logs and
of what probes printed.

What scripts print, their data and outputs, and elasticd.toml, which may name commands with
secrets, stay here. So do the home's secrets: whatever looks like one of them in a log is blotted
out, though logs should have none (docs/security.md).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import stat
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from elasticd.build import build
from elasticd.cli.daemons import LOG_FILE
from elasticd.cli.keeper import KEEPER_LOG
from elasticd.cli.screen import json_line
from elasticd.cli.unprinted import without_printed
from elasticd.errors import OperationError, UsageError
from elasticd.launchd.otherdisk import log_aside
from elasticd.namedfile import refuse_stdout
from elasticd.settings.places import PAPERS
from elasticd.shell.children.ownvariables import FILE_NAME as SECRETS
from elasticd.shell.control.webdoor import LOG_FILE as PAGE_LOG
from elasticd.shell.control.webtoken import METRICS_FILE, TOKEN_FILE
from elasticd.systemtools import release

MOST_LOG_BYTES = 1 << 20
"""Of the end of each log."""
_LOGS = (LOG_FILE, f"{LOG_FILE}.1", PAGE_LOG)
_KEEPERS = (KEEPER_LOG, f"{KEEPER_LOG}.1")
_LEAST_SECRET = 6
"""Shorter ones would blot out words."""
_LEAST_KEY = 32
"""Shorter words of a JSON file are names."""
_BLOT = b"[secret]"
_PACKAGES = ("mlx", "mlx-lm", "numpy", "psutil", "cryptography", "safetensors", "starlette")


def default_bundle() -> Path:
    """In the working folder, named after now."""
    return Path(time.strftime("elasticd-doctor-%Y%m%d-%H%M%S.tar.gz"))


def refuse_taken(path: Path) -> None:
    """Raises UsageError: something has that name, or it can't be written there."""
    if path == Path():
        raise UsageError("--bundle: names no file; say one that ends in .tar.gz")
    refuse_stdout(path, "--bundle")
    if os.path.lexists(path):
        raise UsageError(f"--bundle {path}: is there already; name a new file")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--bundle {path}: there is no folder {path.absolute().parent}")


def write_bundle(
    path: Path,
    homes: Sequence[Path],
    told: Mapping[str, Any],
    printed: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Pack it, readable by this account alone. ``printed``: by each probe, besides its finding.

    Raises:
        OperationError: it can't be written.
    """
    found = {form for home in homes for each in secrets_of(home) for form in forms_of(each)}
    secrets = sorted(found, key=len, reverse=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as packed:
            _add(packed, "doctor.json", json_line(told).encode(), secrets)
            _add(packed, "versions.json", json.dumps(versions(), indent=1).encode(), secrets)
            for name, text in printed.items():
                if text:
                    _add(packed, f"probes/{name}.txt", text.encode(), secrets)
            for number, home in enumerate(homes):
                for name, data in _of(home):
                    _add(packed, f"home-{number}/{name}", data, secrets)
        part.rename(path)
    except OSError as error:
        raise OperationError(f"{path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def versions() -> dict[str, str]:
    """Of what runs here."""
    found = {
        "elasticd": build(),
        "python": sys.version,
        "system": platform.platform(),
        "release": release(),
    }
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "-"
    return found


def secrets_of(home: Path) -> Iterator[bytes]:
    """What is secret in a home, as far as this account may read it."""
    files = [home / TOKEN_FILE, home / METRICS_FILE, home / SECRETS]
    files += sorted(each for each in (home / PAPERS).glob("*") if each.suffix in (".key", ".json"))
    for file in files:
        try:
            data = file.read_bytes()
        except OSError:
            continue
        if file.name == SECRETS:
            pieces = [line.partition(b"=")[2].strip() for line in data.splitlines()]
        elif file.suffix == ".json":
            pieces = list(_texts(data))
        else:
            pieces = [line.strip() for line in data.splitlines() if not line.startswith(b"-----")]
        yield from (each for each in pieces if len(each) >= _LEAST_SECRET)


def forms_of(secret: bytes) -> set[bytes]:
    """It, and how JSON, Python and a log write it; also where one of them quotes another."""
    forms = {secret.decode("utf-8", "surrogateescape")}
    for _ in range(2):
        written = {w(each) for each in forms for w in (json.dumps, _unescaped_json, repr)}
        forms |= {each[1:-1] for each in written}
        forms |= {each.replace('"', '\\"') for each in forms}
    return {each.encode("utf-8", "surrogateescape") for each in forms}


def _unescaped_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _texts(data: bytes) -> Iterator[bytes]:
    """The long words of a JSON file."""
    try:
        left = [json.loads(data)]
    except ValueError:
        return
    while left:
        found = left.pop()
        if isinstance(found, dict | list):
            left += found.values() if isinstance(found, dict) else found
        elif isinstance(found, str) and len(found) >= _LEAST_KEY:
            yield found.encode()


def _of(home: Path) -> Iterator[tuple[str, bytes]]:
    """Names of the home's own files with their sizes, and its logs."""
    try:
        there = sorted(os.scandir(home), key=lambda each: each.name)
        lines = [
            f"{each.name}{'/' if each.is_dir(follow_symlinks=False) else ''}"
            f" {each.stat(follow_symlinks=False).st_size}"
            for each in there
        ]
    except OSError as error:
        lines = [f"can't be read: {error.strerror}"]
    yield "files.txt", ("\n".join(lines) + "\n").encode()
    own = [home / each for each in _LOGS]
    logs = {path.name: path for path in (*own, *(home.parent / each for each in _KEEPERS))}
    if service := log_aside(home, Path.home(), os.geteuid()):
        logs |= {f"service.log{part}": Path(f"{service}{part}") for part in ("", ".1")}
    for name, path in logs.items():
        with contextlib.suppress(OSError), _opened(path) as file:
            size = file.seek(0, os.SEEK_END)
            begins = max(0, size - MOST_LOG_BYTES)
            file.seek(begins)
            data = file.read(MOST_LOG_BYTES)
            # Of a line that is cut nobody can tell whose words it has.
            whole = data.partition(b"\n")[2] if begins else data
            yield name, without_printed(whole.decode("utf-8", "replace")).encode()


def _opened(path: Path) -> BinaryIO:
    """Raises OSError: it is no file, or, for root, one that may be another account's elsewhere,
    which a link in that account's home leads to."""
    root = os.geteuid() == 0
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if root else 0)
    file = open(os.open(path, flags), "rb")  # noqa: SIM115  # the caller's
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or (root and found.st_nlink > 1):
        file.close()
        raise OSError(f"{path}: is a link, or no file")
    return file


def _add(packed: tarfile.TarFile, name: str, data: bytes, secrets: Sequence[bytes]) -> None:
    for secret in secrets:
        data = data.replace(secret, _BLOT)
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
    packed.addfile(entry, io.BytesIO(data))
