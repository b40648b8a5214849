"""The files of ``run.open``: each rank writes its own, and now and then all are made like main's.

So main may die at any time: whoever is main then has the file already. All ranks compare what they
have where a world begins its first step, then at the steps of checkpoints, and at the end. A file
that differs, or lacks the steps before its process came, is completed from one that has most of
them; of several that of the lowest rank counts, which is main's. If none has all that there is, as
where nodes were away in turns, each step's lines come from the first that has them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgpack

from elasticd.disknames import DiskNames
from elasticd.errors import UsageError
from elasticd.outputs import OWN_FOLDER, index_of, older_index_of
from elasticd.train.outputs.stepfile import BASE, Extent, StepFile, merged
from elasticd.train.outputs.textfile import RunFile, checked_name
from elasticd.train.steps.gathering import Gathering
from elasticd.train.steps.standing import Standing
from elasticd.train.world import TrainerWorld
from elasticd.types import Tag

MOST_FILES = 32
MOST_BYTES = 32 << 20
"""Of a file: who joins is told all of it before it computes its first step."""
MOST_HELD_BYTES = 8 << 20
"""Of a file, while the disk refuses it."""
_LOGS = 2 * MOST_FILES
"""More than there are files."""
_NOTHING = Extent(0, 0, "")
_EVERY_STEPS = 10
"""Where the interval of checkpoints isn't given."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a rank has of one file."""

    whole: Extent
    marked: Extent
    runs: Sequence[Sequence[int]] = ()
    """Of steps: the first and the last of each."""

    def lacks(self, other: Told) -> bool:
        """Whether ``other`` has steps that this has not."""
        return not all(
            any(start <= first and last <= end for start, end in self.runs)
            for first, last in other.runs
        )

    def since(self, source: Told) -> Extent:
        """What it needn't be told by ``source``."""
        return self.marked if self.marked == source.marked else _NOTHING


@dataclass
class _Log:
    file: StepFile
    held: list[bytes] = field(default_factory=list)
    held_bytes: int = 0
    opened: bool = False
    """By this rank's script, and not only by another's."""
    complained: bool = False

    def hold(self, text: bytes) -> None:
        self.held.append(text)
        self.held_bytes += len(text)

    def let_go(self) -> bytes:
        """What was held."""
        text = b"".join(self.held)
        self.held.clear()
        self.held_bytes = 0
        return text


class RunLogs:
    """Of one process."""

    def __init__(self, standing: Standing) -> None:
        self._standing, self._seat = standing, standing.seat
        self._logs: dict[str, _Log] = {}
        self._lock = threading.Lock()
        """A script may write in any thread; the rest is the training thread's."""
        self._behind = False
        self._compared: tuple[Tag, bool] | None = None
        """A world, and whether anybody in it had a file when it began."""
        every = self._seat.spec.checkpoint.every_steps
        self._every = every if isinstance(every, int) else _EVERY_STEPS

    def open(self, name: str) -> RunFile:
        """A file with what belongs to the state in place.

        Raises:
            UsageError: it is no name of a file here, there are too many, it is too big already, or
                the disk refuses it.
        """
        name = checked_name(name)
        if name not in self._logs:
            if len(self._logs) == MOST_FILES:
                raise UsageError(f"run.open({name!r}): it would be the {MOST_FILES + 1}th file")
            if (other := self._clash(name)) is not None:
                raise UsageError(
                    f"run.open({name!r}): {other!r} is open already, and some disk takes both names"
                    " for one; choose another"
                )
            try:
                self._logs[name] = _Log(self._file(name))
            except OSError as error:
                raise UsageError(f"run.open({name!r}): {error}") from error
        log = self._logs[name]
        _check_room(name, log.file.size)
        log.opened = True
        return RunFile(name, lambda text: self._take(name, log, text))

    def _file(self, name: str) -> StepFile:
        folder, step = self._seat.output_dir, self._step if self._standing.set_up else BASE
        return StepFile(folder / name, _index(folder / OWN_FOLDER, name), step)

    def _clash(self, name: str) -> str | None:
        """An open file that can't lie beside ``name`` on every disk."""
        names = DiskNames()
        for each in self._logs:
            names.add(each)
        return names.add(name)

    @property
    def _step(self) -> int:
        """Of the state in place."""
        return self._standing.step - 1

    def _take(self, name: str, log: _Log, text: bytes) -> None:
        with self._lock:
            _check_room(name, log.file.size + log.held_bytes + len(text))
            log.hold(text)
        if self._behind:
            self._write(name, log, None)

    # The loop.

    def drop(self) -> None:
        """What the script has written since the last body belongs to no state."""
        with self._lock:
            for log in self._logs.values():
                log.let_go()

    def body_ends(self) -> None:
        """What the script has written belongs to the state in place."""
        for name, log in self._logs.items():
            if log.opened:
                self._write(name, log, self._step)

    def end(self) -> None:
        """The script has left its loop: what it still writes belongs to no step."""
        self._behind = True
        for name, log in self._logs.items():
            self._write(name, log, None)

    def _write(self, name: str, log: _Log, step: int | None) -> None:
        with self._lock:
            text = log.let_go()
            try:
                if step is not None:
                    log.file.append(step, text)
                elif text:
                    log.file.append_behind(text)
            except OSError as error:
                log.hold(text)
                if len(text) > MOST_HELD_BYTES:
                    raise
                self._complain(name, log, error)

    def _complain(self, name: str, log: _Log, error: OSError) -> None:
        """One rank's disk is no reason to end a job."""
        if not log.complained:
            print(f"elasticd: {name} can't be written, tried again: {error}", file=sys.stderr)
        log.complained = True

    # The world.

    def level(self, world: TrainerWorld | None, beside: int = 0) -> list[int]:
        """Have the text that belongs to the state in place. Every member comes here once in a world
        for each step, before it is computed.

        The first time in a world all members' numbers ``beside`` it come back, by rank, each below
        2**18; later none.

        Raises:
            GenerationLost: the world has ended.
        """
        for name, log in self._logs.items():
            try:
                log.file.cut(self._step)
            except OSError as error:
                self._complain(name, log, error)
        if world is None or world.size == 1:
            return [beside]
        others: list[int] = []
        gathering = Gathering(self._seat, world, self._standing.step)
        if self._compared is None or self._compared[0] != world.generation:
            told = gathering.numbers(beside * _LOGS + len(self._logs))
            others = [number // _LOGS for number in told]
            anybody = any(number % _LOGS for number in told)
            self._compared = world.generation, anybody
            due = anybody
        else:
            last = world.ends_at(self._seat.spec.train.steps)
            due = self._compared[1] and (self._step % self._every == 0 or self._step >= last)
        if due:
            self._compare(gathering, world)
        return others

    def _compare(self, gathering: Gathering, world: TrainerWorld) -> None:
        told = [_unpacked(message) for message in gathering.messages(self._packed())]
        for name in sorted({name for each in told for name in each}):
            ranks = [each.get(name, Told(_NOTHING, _NOTHING)) for each in told]
            source = max(range(world.size), key=lambda rank: (ranks[rank].whole.records, -rank))
            best = ranks[source]
            if others := [rank for rank, each in enumerate(ranks) if best.lacks(each)]:
                self._merge(gathering, world, name, ranks, [source, *others])
                continue
            differing = [each.since(best) for each in ranks if each.whole != best.whole]
            since = min(differing, key=lambda extent: extent.records, default=None)
            content = b""
            if since is not None:
                length = _length(since, best.whole)
                own = self._read(name, since, length) if world.rank == source else b""
                content = gathering.told(source, own, length)
            lacks = ranks[world.rank].whole != best.whole
            self._settle(name, since if lacks else None, content)

    def _merge(
        self,
        gathering: Gathering,
        world: TrainerWorld,
        name: str,
        ranks: Sequence[Told],
        sources: Sequence[int],
    ) -> None:
        """None has all that there is: make one file of several ranks' whole ones."""
        contents = []
        for rank in sources:
            length = _length(_NOTHING, ranks[rank].whole)
            own = self._read(name, _NOTHING, length) if world.rank == rank else b""
            contents.append(gathering.told(rank, own, length))
        self._settle(name, _NOTHING, merged(contents))

    def _packed(self) -> bytes:
        told = {}
        for name, log in self._logs.items():
            extents = log.file.told(), log.file.marked
            rows = [[e.records, e.bytes, e.digest] for e in extents]
            told[name] = [*rows, log.file.runs()]
        packed: bytes = msgpack.packb(told)
        return packed

    def _read(self, name: str, since: Extent, length: int) -> bytes:
        content = self._logs[name].file.read(since)
        return content.ljust(length, b"\0")  # somebody has cut the file behind our back

    def _settle(self, name: str, since: Extent | None, content: bytes) -> None:
        """Have the content that all have behind ``since``; None: it is here."""
        try:
            if name not in self._logs:
                if self._clash(name) is not None:
                    return  # another rank's script calls it so; here it would be another file
                self._logs[name] = _Log(self._file(name))
            log = self._logs[name]
            if since is not None:
                log.file.replace(since, content)
            log.file.mark()
        except OSError as error:
            if name in self._logs:
                self._complain(name, self._logs[name], error)


def _check_room(name: str, count: int) -> None:
    if count > MOST_BYTES:
        raise UsageError(
            f"run.open({name!r}): the file would have more than {MOST_BYTES >> 20} MiB, the most"
            " that such a file may have; write less often, go on in another file of run.open, or"
            " let main write big files to run.output_dir itself"
        )


def _index(own: Path, name: str) -> Path:
    """Where a file's index is. One that an earlier version has written gets its name of today."""
    index, older = own / index_of(name), own / older_index_of(name)
    if index.exists() or not older.is_file():
        return index
    if "%%%" in older.name:
        print(
            f"elasticd: {name}: {older} may be another file's, so it is not used. Lines that are in"
            f" {name} stay at its top",
            file=sys.stderr,
        )
    else:
        older.rename(index)
    return index


def _unpacked(message: bytes) -> dict[str, Told]:
    return {
        name: Told(Extent(*whole), Extent(*marked), runs)
        for name, (whole, marked, runs) in msgpack.unpackb(message).items()
    }


def _length(since: Extent, whole: Extent) -> int:
    """Of what is told of a file."""
    return StepFile.record_bytes * (whole.records - since.records) + whole.bytes - since.bytes
