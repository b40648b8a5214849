"""A plain job's own files, kept: ``[plain] keep`` names them, and they outlive rank 0's node.

What rank 0's script writes in its working folder is copied once all of it rests, since a checkpoint
may be several files, written one after another; kept.py says whereto. A rank that begins with
another working folder than rank 0 had takes the newest of it, and has its files as they were.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from elasticd.errors import UsageError
from elasticd.outputs import travels
from elasticd.recipes.kept import FOLDER, KeptFile, KeptFiles, Moment, Signature, put_back

_LOOK_SECONDS = 1.0
_PATIENCE_LOOKS = 60
"""A file that has been written at so many looks in a row, as a log is, keeps no others waiting."""


class Keeper:
    """Copies a script's files to the output folder, and back. One thread at a time uses it."""

    def __init__(self, work: Path, output: Path, patterns: Sequence[str], last: int) -> None:
        """``last``: of each pattern so many are kept, the newest."""
        self._store = KeptFiles(work, output / FOLDER)
        self._patterns, self._last = patterns, last
        self._seen: dict[str, Signature] = {}
        self._restless: dict[str, int] = {}
        """At how many looks in a row a file was being written."""
        self._known: dict[str, tuple[Signature | None, KeptFile]] = {}
        """What the newest index says, each with what was found of it here."""

    def restore(self, *others: KeptFiles) -> list[str]:
        """Have the files of the newest index that is whole, and of that of each of the others;
        their names, none without an index.

        Raises:
            OSError: the disk refuses.
        """
        own = self._store.newest()
        restored = put_back([(self._store, own), *((each, each.newest()) for each in others)])
        for name, kept in own.files.items():
            signature = self._store.signature(name)
            is_own = signature is not None and signature[1] == kept.mtime_ns
            self._known[name] = (signature if is_own else None, kept)
        return restored

    def look(self, *, ended: bool = False) -> bool:
        """Keep what is new, unless something is being written; whether there was any. ``ended``:
        nobody writes any more.

        Raises:
            OSError: the disk refuses.
        """
        found = self._matching()
        steady = {n: s for n, s in found.items() if ended or _rests(self._seen.get(n), s)}
        self._seen = found
        self._restless = {n: self._restless.get(n, 0) + 1 for n in found if n not in steady}
        if any(looks < _PATIENCE_LOOKS for looks in self._restless.values()):
            return False
        known = {name: each for name, each in self._known.items() if name in found}
        for name, signature in steady.items():
            if name not in known or known[name][0] != signature:
                kept = self._store.copy(name, signature)
                if kept is not None:
                    known[name] = (signature, kept)
        if {n: k for n, (_, k) in known.items()} == {n: k for n, (_, k) in self._known.items()}:
            self._known = known
            return False
        if not ended and not all(self._has(known.get(n), n, s) for n, s in steady.items()):
            self._store.drop_unneeded()  # these may be parts of two checkpoints
            return False
        self._store.write(Moment({name: kept for name, (_, kept) in known.items()}))
        self._known = known
        return True

    def _has(
        self, known: tuple[Signature | None, KeptFile] | None, name: str, signature: Signature
    ) -> bool:
        """Whether a file was copied as it was, and is not written again: it may be gone."""
        is_copied = known is not None and known[0] == signature
        return is_copied and self._store.signature(name) in (signature, None)

    def _matching(self) -> dict[str, Signature]:
        found: dict[str, Signature] = {}
        for pattern in self._patterns:
            names = dict(self._of(pattern))
            newest = sorted(names, key=lambda name: (names[name][1], name))[-self._last :]
            found |= {name: names[name] for name in newest}
        return found

    def _of(self, pattern: str) -> Iterator[tuple[str, Signature]]:
        for path in self._store.work.glob(pattern):
            name = path.relative_to(self._store.work).as_posix()
            if travels(name) and (signature := self._store.signature(name)) is not None:
                yield name, signature


def _rests(before: Signature | None, now: Signature) -> bool:
    """Nobody writes it: it is as it was, or another file of the same size is there, as where each
    new one is renamed to that name. One that is written there is shorter at first."""
    return before is not None and (before == now or (before[0] == now[0] and before[2] != now[2]))


class Keeping:
    """Keeps rank 0's files from a thread of its own while its script runs."""

    def __init__(self, keeper: Keeper, say: Callable[[str], None]) -> None:
        self._keeper, self._say = keeper, say
        self._stop, self._last = threading.Event(), threading.Event()
        self._done = threading.Event()
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="keep", daemon=True)
        self._thread.start()

    def ended(self) -> bool:
        """The script has ended: whether all that it has left is kept, or can't be."""
        self._last.set()
        return self._done.is_set()

    def close(self) -> None:
        """Keep no more. Returns when nothing is being copied."""
        self._stop.set()
        self._last.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            last = self._last.is_set()
            try:
                self._keeper.look(ended=last)
            except (OSError, UsageError) as error:
                self._complain(f"files of plain.keep are not kept: {error}")
            if last:
                break
            self._last.wait(_LOOK_SECONDS)
        self._done.set()

    def _complain(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._say(text)
