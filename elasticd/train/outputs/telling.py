"""What ranks tell one another of a file, and how one has what another has.

An earlier version tells each step's record, and knows no beginning that two files have alike but
the one that this process has seen to be alike. Where such a process is in the world all do so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from elasticd.stepindex import Record, StepIndex
from elasticd.train.outputs.prefixes import alike
from elasticd.train.outputs.records import RECORD_BYTES, unpacked
from elasticd.train.outputs.stepfile import NOTHING, Extent, Since, StepFile


@dataclass(frozen=True, slots=True)
class Told:
    """What a rank has of one file."""

    whole: Extent = NOTHING
    marked: Extent = NOTHING
    """Its beginning that all members had alike."""
    runs: Sequence[Sequence[int]] = ()
    """Of steps: the first and the last of each."""
    code: int = 0
    """So many bytes tell which step wrote what."""
    code_digest: bytes = b""
    marked_code: int = 0
    pieces: Sequence[bytes] = ()
    """Digests of its text's beginnings."""

    def lacks(self, other: Told) -> bool:
        """Whether ``other`` has steps that this has not."""
        return not all(
            any(start <= first and last <= end for start, end in self.runs)
            for first, last in other.runs
        )

    def differs(self, other: Told) -> bool:
        return (self.whole, self.code_digest) != (other.whole, other.code_digest)

    def since(self, source: Told) -> Since:
        """What it needn't be told by ``source``."""
        same = self.marked == source.marked
        known = Since(self.marked.bytes, self.marked_code) if same else Since()
        return Since(max(known.bytes, alike(self.pieces, source.pieces)), known.code)

    def length(self, since: Since) -> int:
        """Of what is told of it."""
        return self.code - since.code + self.whole.bytes - since.bytes


class Dialect(Protocol):
    """How files are told of."""

    def row(self, file: StepFile) -> list[Any]: ...

    def told(self, row: Sequence[Any]) -> Told: ...

    def read(self, file: StepFile, since: Since) -> bytes:
        """What of it is behind ``since``."""

    def replace(self, file: StepFile, since: Since, content: bytes, source: Told) -> None:
        """Have what was read at ``source``."""

    def apart(self, content: bytes, source: Told) -> tuple[Iterable[Record], bytes]:
        """Records and text, of a whole file."""


class OfToday:
    """Only what is missing, in a byte or two a step."""

    def row(self, file: StepFile) -> list[Any]:
        whole, marked = _fields(file.told()), _fields(file.marked)
        return [whole, marked, file.runs(), *file.code(), file.marked_code, file.pieces()]

    def told(self, row: Sequence[Any]) -> Told:
        whole, marked, *others = row
        return Told(Extent(*whole), Extent(*marked), *others)

    def read(self, file: StepFile, since: Since) -> bytes:
        return file.read(since)

    def replace(self, file: StepFile, since: Since, content: bytes, source: Told) -> None:
        file.replace(since, content, source.code - since.code)

    def apart(self, content: bytes, source: Told) -> tuple[Iterable[Record], bytes]:
        text = content[source.code :]
        return StepIndex.parsed(content[: source.code], len(text)).records(), text


class OfEarlier:
    """As nodes tell that have no other way."""

    def row(self, file: StepFile) -> list[Any]:
        return [_fields(file.told()), _fields(file.marked), file.runs()]

    def told(self, row: Sequence[Any]) -> Told:
        (whole, marked, runs) = row
        extents = Extent(*whole), Extent(*marked)
        code, marked_code = (RECORD_BYTES * each.records for each in extents)
        return Told(*extents, runs, code, b"", marked_code)

    def read(self, file: StepFile, since: Since) -> bytes:
        return file.read_records(since)

    def replace(self, file: StepFile, since: Since, content: bytes, source: Told) -> None:
        file.replace_records(since, content)

    def apart(self, content: bytes, source: Told) -> tuple[Iterable[Record], bytes]:
        return unpacked(content, 0)


def _fields(extent: Extent) -> list[Any]:
    return [extent.records, extent.bytes, extent.digest]
