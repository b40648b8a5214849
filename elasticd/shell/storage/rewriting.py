"""Files that are written anew beside the loop, while others go on appending to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from elasticd.shell.inorder import Aside, at_once
from elasticd.shell.storage.durable import PARTIAL_SUFFIX

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Rewriting:
    """The old file has everything until the new one takes its place: a process that is killed
    meanwhile loses nothing."""

    aside: Aside = at_once
    _meanwhile: dict[Path, bytes | None] = field(default_factory=dict)
    """What was appended to each since its writing began; None: it was removed."""

    def begin(self, path: Path, content: Callable[[], bytes]) -> None:
        """Replace what is in a file. One that is being written already stays as it will be."""
        if path in self._meanwhile:
            return
        self._meanwhile[path] = b""
        partial = path.with_name(path.name + PARTIAL_SUFFIX)
        self.aside(
            lambda: partial.write_bytes(content()), lambda error: self._end(path, partial, error)
        )

    def appended(self, path: Path, data: bytes) -> None:
        """That was added to the old file, and belongs into the new one."""
        if (known := self._meanwhile.get(path)) is not None:
            self._meanwhile[path] = known + data

    def removed(self, path: Path) -> None:
        """The old file is to go, and no new one takes its place."""
        if path in self._meanwhile:
            self._meanwhile[path] = None

    def _end(self, path: Path, partial: Path, error: OSError | None) -> None:
        meanwhile = self._meanwhile.pop(path)
        if meanwhile is None:
            partial.unlink(missing_ok=True)
            return
        try:
            if error is not None:
                raise error
            with partial.open("ab") as file:
                file.write(meanwhile)
            partial.replace(path)
        except OSError as failure:
            partial.unlink(missing_ok=True)
            log.warning("the disk keeps what was to go", path=str(path), reason=str(failure))
