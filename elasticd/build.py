"""Which build of elasticd this is: people install a checkout, and every commit has one version."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from elasticd import __version__

_PAGE = "page"
"""The folder of the web page's files: all in it count."""
_NOT_RUN = ("__pycache__", "examples")


@functools.cache
def build() -> str:
    """The version, and behind a ``+`` a digest of the program's files: two nodes with the same
    files say the same.

    It stays what it was at the first call. A daemon calls it when it starts: so it says what it
    runs, whatever is installed since.
    """
    return f"{__version__}+{digest_of(Path(__file__).parent)}"


def digest_of(package: Path) -> str:
    """Eight letters, by all files that a daemon or a command runs."""
    whole = hashlib.blake2b(digest_size=4)
    for name, path in sorted(_files(package)):
        try:
            content = path.read_bytes()
        except OSError:  # it goes just now, as another build is installed
            content = b""
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()


def _files(package: Path) -> Iterator[tuple[str, Path]]:
    """By their names within the package. In a checkout some of its folders are links."""
    for folder, folders, files in os.walk(package, followlinks=True):
        folders[:] = [name for name in folders if name not in _NOT_RUN]
        at = Path(folder)
        for name in files:
            if name.endswith(".py") or at.name == _PAGE:
                yield (at / name).relative_to(package).as_posix(), at / name
