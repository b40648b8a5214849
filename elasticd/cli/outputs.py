"""``elasticctl outputs``: main's output folder, brought to this machine."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticd.cli import output
from elasticd.cli.checkpoints import Bar
from elasticd.cli.options import Home, Job, Json, common
from elasticd.cli.screen import print_json, say, warn
from elasticd.client.connection import Connection
from elasticd.core.words.requests.looking import OpenOutputs
from elasticd.counting import counted
from elasticd.disknames import folded, folders_of
from elasticd.errors import OperationError, ProtocolError, UsageError
from elasticd.namedfile import refuse_stdout
from elasticd.outputs import checked
from elasticd.settings.rules import one_line
from elasticd.types import JobId
from elasticd.wholefolder import whole_folder

_MOST_NAMED = 20
"""Of what was left out."""
_ANSWER_SECONDS = 30.0
"""How much has come is said each second; finding out who has the files may take longer."""
_SLICE_BYTES = 1 << 20


def outputs(
    context: typer.Context,
    job: Job,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            show_default=False,
            help="The folder to make. It must not exist, or be empty.",
        ),
    ],
    home: Home = None,
    json: Json = False,
) -> None:
    """Fetch the files that a job's script has written to run.output_dir, from whoever is main.

    If main's node is lost they are those of the last checkpoint, from another node. It works while
    the job trains, and after its end. DIR appears when all files are there.

    \b
    Examples:
      elasticctl outputs byte-lm-1-k3f9 --out results
      elasticctl outputs byte-lm-1-k3f9 --out results --json
    """
    options = common(context, home, json)
    refuse_stdout(out, "--out")
    folder = out.absolute()
    _check(folder)
    with options.client.open(OpenOutputs(JobId(job))) as connection:
        head = connection.answer(_ANSWER_SECONDS)
        with (
            _whole(folder) as beside,
            Bar("fetching", shown=not options.json, unit_bytes=True) as bar,
        ):
            bar.total(int(head["bytes"]))
            written, changed, refused = _receive(connection, beside, bar)
    said = {key: head[key] for key in ("job", "node", "main", "copy", "made", "skipped", "note")}
    if options.json:
        came = {"files": written, "changed": changed, "refused": [*refused]}
        print_json({**said, "out": str(folder), **came})
    else:
        _print(head, [*written, *changed, *refused], len(written), folder)
    for name in changed:
        warn(f"{one_line(name)}: changed while it was read; run this again for it")
    for name, why in refused.items():
        warn(f"{one_line(name)}: was not copied: {one_line(why)}")
    if changed or refused:
        raise typer.Exit(1)


def _check(folder: Path) -> None:
    shown = one_line(str(folder))
    if not folder.parent.is_dir():
        raise UsageError(f"{one_line(str(folder.parent))}: there is no such folder")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{shown}: is there already, and is no folder")
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{shown}: is not empty; name a new folder, nothing is overwritten")


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """As :func:`whole_folder`; what fails is named."""
    try:
        with whole_folder(folder) as beside:
            yield beside
    except OSError as error:
        raise OperationError(f"{one_line(str(folder))}: {error.strerror or error}") from None


def _receive(
    connection: Connection, folder: Path, bar: Bar
) -> tuple[list[str], list[str], dict[str, str]]:
    """The names of what was written, of what changed meanwhile, and of what is damaged, or as root
    is not read, with the reasons."""
    written: list[str] = []
    changed: list[str] = []
    refused: dict[str, str] = {}
    names: set[str] = set()
    shown = 0
    while not (frame := connection.answer(_ANSWER_SECONDS)).get("end"):
        if "received" in frame:
            bar.step(int(frame["received"]) - shown)
            shown = int(frame["received"])
            continue
        name, size = str(frame["name"]), int(frame["bytes"])
        checked([name])
        if folded(name) in names:
            raise ProtocolError(f"{name!a}: comes twice")
        names.add(folded(name))
        path = None if frame["path"] is None else Path(frame["path"])
        try:
            if why := frame.get("why"):
                raise OperationError(str(why))
            taken = path is not None and _take(connection, path, folder / name, size)
        except OperationError as error:
            refused[name] = str(error)
        else:
            (written if taken else changed).append(name)
        bar.step(size - shown)
        shown = 0
        connection.send({"taken": name})
    return written, changed, refused


def _take(connection: Connection, source: Path, target: Path, size: int) -> bool:
    """Copy as much as was listed; False: there is less now, or something else.

    Raises:
        OperationError: it is no file of the daemon's account, and we are root.
    """
    # It may be a link or a pipe by now.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(source, flags)
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False
    with open(fd, "rb") as old:
        connection.require_own(fd, source)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        left = size
        with target.open("xb") as new:
            while left and (data := old.read(min(left, _SLICE_BYTES))):
                new.write(data)
                left -= len(data)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
    if left:
        target.unlink()
    return not left


def _print(head: Mapping[str, Any], names: Sequence[str], count: int, folder: Path) -> None:
    """``names``: of all files that were offered."""
    say(f"{counted(count, 'file')}, {output.shown_bytes(head['bytes'])}: {folder}")
    if head["note"]:
        warn(head["note"])
    if head["copy"]:
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(head["made"]))
        say(
            f"from {head['node']}'s copy of the files that {head['main']}, which was main, had at"
            f" {made}"
        )
    came = {part for name in names for part in (folded(name), *folders_of(folded(name)))}
    for name in head["skipped"][:_MOST_NAMED]:
        if folded(name) in came:
            warn(f"{one_line(name)}: was left out: another file's name differs in case only")
        elif head["copy"]:
            warn(f"{one_line(name)}: was not copied to other nodes (see the event output_skipped)")
        else:
            warn(f"{one_line(name)}: was left out: one too many, or its name can't travel")
    of_all = head.get("skipped_files", len(head["skipped"]))  # an earlier daemon names all
    if (more := of_all - _MOST_NAMED) > 0:
        warn(f"{more} more were left out; --json names {len(head['skipped'])} of all")
