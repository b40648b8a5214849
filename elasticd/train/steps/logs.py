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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import msgpack

from elasticd.disknames import DiskNames
from elasticd.errors import UsageError
from elasticd.outputs import OWN_FOLDER, index_of, older_index_of
from elasticd.stepindex import BASE, StepIndex, merged
from elasticd.train.outputs.stepfile import Since, StepFile
from elasticd.train.outputs.telling import Dialect, OfEarlier, OfToday, Told
from elasticd.train.outputs.textfile import RunFile, checked_name
from elasticd.train.steps.gathering import Gathering
from elasticd.train.steps.named import GivenNumbers
from elasticd.train.steps.standing import Standing
from elasticd.train.steps.tracking import Tracking
from elasticd.train.world import TrainerWorld
from elasticd.types import Tag

MOST_FILES = 32
MOST_BYTES = 32 << 20
"""Of a file: who joins is told all of it before it computes its first step."""
MOST_HELD_BYTES = 8 << 20
"""Of a file, while the disk refuses it."""
_LOGS = 2 * MOST_FILES
"""More than there are files."""
_OF_TODAY = _LOGS - 1
"""Who has files says so, and an earlier version says how many."""
_EVERY_STEPS = 10
"""Where the interval of checkpoints isn't given."""


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
        self._compared: Tag | None = None
        """A world."""
        self._dialect: Dialect | None = None
        """How its members tell of files; None: nobody had one when it began."""
        self._size = 0
        """Of the world of the last step; 0: none was begun."""
        self._is_main = True
        self._tracking = Tracking(self._seat.spec, self.taking, self._seat.output_dir)
        self._given = GivenNumbers()
        self._logged: dict[str, float] = {}
        """Since the last body."""
        every = self._seat.spec.checkpoint.every_steps
        self._every = every if isinstance(every, int) else _EVERY_STEPS

    def open(self, name: str) -> RunFile:
        """A file with what belongs to the state in place, as :meth:`taking`."""
        return RunFile(name, self.taking(name))

    def taking(self, name: str) -> Callable[[bytes], None]:
        """What takes in bytes for a file.

        Raises:
            UsageError: it is no name of a file here, there are too many, it is too big already, or
                the disk refuses it. To take raises it where the file would be too big.
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
        return lambda text: self._take(name, log, text)

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

    def log(self, values: Mapping[str, Any]) -> None:
        """Figures of the step whose body is under way; texts are passed over."""
        figures = self._given.of(values)
        with self._lock:
            self._logged |= figures

    # The loop.

    def begin(self) -> None:
        """The script comes to its loop. Raises as :meth:`taking`."""
        self._tracking.begin()

    def drop(self) -> None:
        """What the script has written since the last body belongs to no state."""
        with self._lock:
            self._logged.clear()
            for log in self._logs.values():
                log.let_go()

    def body_ends(self) -> None:
        """What the script has written belongs to the state in place."""
        with self._lock:
            logged, self._logged = self._logged, {}
        if self._size:
            loss, size, main = self._standing.loss, self._size, self._is_main
            self._tracking.body_ends(self._step, loss, logged, size, is_main=main)
        self._seat.show(self._step, logged)
        for name, log in self._logs.items():
            if log.opened:
                self._write(name, log, self._step)

    def end(self) -> None:
        """The script has left its loop: what it still writes belongs to no step."""
        self._behind = True
        self._tracking.end()
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
        self._size = 1 if world is None else world.size
        self._is_main = world is None or world.rank == 0
        for name, log in self._logs.items():
            try:
                log.file.cut(self._step)
            except OSError as error:
                self._complain(name, log, error)
        if world is None or world.size == 1:
            return [beside]
        others: list[int] = []
        gathering = Gathering(self._seat, world, self._standing.step)
        if self._compared != world.generation:
            told = gathering.numbers(beside * _LOGS + (_OF_TODAY if self._logs else 0))
            others = [number // _LOGS for number in told]
            words = [number % _LOGS for number in told]
            self._compared = world.generation
            today = all(word == _OF_TODAY for word in words)
            self._dialect = (OfToday() if today else OfEarlier()) if any(words) else None
            due = True
        else:
            last = world.ends_at(self._seat.spec.train.steps)
            due = self._step % self._every == 0 or self._step >= last
        if due and self._dialect is not None:
            self._compare(_Exchange(gathering, world, self._dialect))
        return others

    def _compare(self, exchange: _Exchange) -> None:
        world, files = exchange.world, {name: log.file for name, log in self._logs.items()}
        told = exchange.tell(files)
        for name in sorted({name for each in told for name in each}):
            ranks = [each.get(name, Told()) for each in told]
            source = max(range(world.size), key=lambda rank: (ranks[rank].whole.records, -rank))
            best = ranks[source]
            if others := [rank for rank, each in enumerate(ranks) if best.lacks(each)]:
                self._settle(name, exchange.merge(files.get(name), ranks, [source, *others]))
                continue
            differing = [each.since(best) for each in ranks if each.differs(best)]
            change: _Change | None = None
            if differing:
                since = Since(*(min(pair) for pair in zip(*map(astuple, differing), strict=True)))
                change = exchange.give(files.get(name), best, source, since)
            self._settle(name, change if ranks[world.rank].differs(best) else None)

    def _settle(self, name: str, change: _Change | None) -> None:
        """Have the content that all have; None: it is here."""
        try:
            if name not in self._logs:
                if self._clash(name) is not None:
                    return  # another rank's script calls it so; here it would be another file
                self._logs[name] = _Log(self._file(name))
            log = self._logs[name]
            if change is not None:
                change(log.file)
            log.file.mark()
        except OSError as error:
            if name in self._logs:
                self._complain(name, self._logs[name], error)


_Change = Callable[[StepFile], None]
"""Makes a file like the others'."""


@dataclass(frozen=True)
class _Exchange:
    """Between the members of a world, in one step. All call the same, in the same order."""

    gathering: Gathering
    world: TrainerWorld
    dialect: Dialect

    def tell(self, files: Mapping[str, StepFile]) -> list[dict[str, Told]]:
        """What each rank has."""
        mine = msgpack.packb({name: self.dialect.row(file) for name, file in files.items()})
        rows = map(msgpack.unpackb, self.gathering.messages(mine))
        return [{name: self.dialect.told(row) for name, row in each.items()} for each in rows]

    def give(self, own: StepFile | None, told: Told, source: int, since: Since) -> _Change:
        """Let all have what is behind ``since`` at ``source``."""
        content = self._content(own, told, source, since)
        return lambda file: self.dialect.replace(file, since, content, told)

    def merge(self, own: StepFile | None, ranks: Sequence[Told], sources: Sequence[int]) -> _Change:
        """None has all that there is: make one file of several ranks' whole ones."""
        contents = {rank: self._content(own, ranks[rank], rank, Since()) for rank in sources}
        files = [self.dialect.apart(content, ranks[rank]) for rank, content in contents.items()]
        records, text = merged(files)
        return lambda file: file.have(StepIndex.of(records), 0, text)

    def _content(self, own: StepFile | None, told: Told, source: int, since: Since) -> bytes:
        length, content = told.length(since), b""
        if self.world.rank == source and own is not None:
            content = self.dialect.read(own, since)
            content = content.ljust(length, b"\0")  # somebody has cut the file behind our back
        return self.gathering.told(source, content, length)


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
