"""``elasticctl checkpoints``: list, verify, export and prune what is stored of a job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TransferSpeedColumn,
)

from elasticd.checkpoints import export
from elasticd.cli import asking, output
from elasticd.cli.completing import complete_lineages, complete_steps
from elasticd.cli.options import Common, Home, Job, Json, common, finite
from elasticd.cli.screen import print_json, say, warn
from elasticd.cli.tables import Table
from elasticd.client.client import Client
from elasticd.client.connection import Connection
from elasticd.core.words.requests.checkpoints import (
    ListCheckpoints,
    OpenCheckpoint,
    PruneCheckpoints,
    VerifyCheckpoints,
)
from elasticd.counting import counted
from elasticd.errors import ProtocolError, UsageError
from elasticd.namedfile import place_of, refuse_stdout
from elasticd.types import JobId

ANSWER_SECONDS = 900.0
"""Reading a large shard from a slow disk takes its time; a daemon that dies hangs up at once."""

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None)

STORED = Table(
    ("step", "lineage", "size", "shards", "replicas", "consistent", "made", "on"),
    drops=("shards", "replicas", "made", "size", "lineage"),
    text="on",
    ids=True,
)

Step = Annotated[
    int | None,
    typer.Option(
        "--step",
        min=0,
        show_default=False,
        help="Only the checkpoint of this step.",
        autocompletion=complete_steps,
    ),
]

Lineage = Annotated[
    str | None,
    typer.Option(
        "--lineage",
        metavar="LINEAGE",
        show_default=False,
        help="Only a checkpoint of this lineage, as 'checkpoints list' names it.",
        autocompletion=complete_lineages,
    ),
]


def _client(options: Common) -> Client:
    return Client(options.home, ANSWER_SECONDS)


@app.callback(invoke_without_command=True)
def checkpoints(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """List, verify, export and remove stored states."""
    common(context, home, json)
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command("list")
def list_(context: typer.Context, job: Job, home: Home = None, json: Json = False) -> None:
    """List a job's checkpoints and where they are now.

    On a narrow terminal the nodes go below their row. Then columns are left out in this order:
    shards, replicas, made, size, lineage.

    \b
    Example:
      elasticctl checkpoints list byte-lm-1-k3f9
    """
    options = common(context, home, json)
    answer = _client(options).request(ListCheckpoints(JobId(job)))
    if options.json:
        print_json(answer)
        return
    _print_rows(answer["checkpoints"])
    _print_silent(answer)


@app.command(short_help="Read every replica, and find what is damaged.")
def verify(
    context: typer.Context, job: Job, step: Step = None, home: Home = None, json: Json = False
) -> None:
    """Read every replica of every shard on every node, and compare it with its digest.

    Exits with 1 if a replica is rotten, cut or missing. The daemons repair it when they next come
    across it, or at a restore. A checkpoint that was never completed, since all was killed
    meanwhile, is named and is no damage. checkpoints prune removes it.

    \b
    Example:
      elasticctl checkpoints verify byte-lm-1-k3f9
    """
    options = common(context, home, json)
    good = bad = 0
    silent: Mapping[str, str] = {}
    never: list[dict[str, Any]] = []
    unreadable: list[dict[str, Any]] = []
    with Bar("verifying", shown=not options.json) as bar:
        for frame in _client(options).stream(VerifyCheckpoints(JobId(job), step)):
            if "replicas" in frame:
                # A daemon of an earlier version doesn't tell.
                silent, never = frame["silent"], frame.get("never_completed", [])
                unreadable = frame.get("unreadable", [])
                bar.total(frame["replicas"])
                continue
            good, bad = good + bool(frame["ok"]), bad + (not frame["ok"])
            bar.step()
            if options.json:
                print_json(frame)
            elif not frame["ok"]:
                bar.print(f"{_place(frame)}: {frame['reason']}")
    if options.json:
        total = {"verified": good, "damaged": bad, "silent": silent}
        print_json({**total, "never_completed": never, "unreadable": unreadable})
    else:
        for each in never:
            say(
                f"step {each['step']} was never completed (on {' '.join(each['on'])}): no data lost"
            )
        for each in unreadable:
            what = "a checkpoint whose manifest can't be read, and no node that answers has another"
            say(f"{each['node']}: step {each['step']}: {what}")
        whole = counted(
            good, "replica of a shard is as it was", "replicas of shards are as they were"
        )
        say(f"{whole} written, {counted(bad, 'is', 'are')} not")
        _print_silent({"silent": silent})
    if bad or unreadable:
        raise typer.Exit(1)


@app.command("export", short_help="Write the parameters as plain safetensors.")
def export_(
    context: typer.Context,
    job: Job,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="PATH", show_default=False, help="The file to write, or a folder."
        ),
    ],
    step: Step = None,
    lineage: Lineage = None,
    optimizer: Annotated[
        bool, typer.Option("--optimizer", help="Write the optimizer's state too, beside it.")
    ] = False,
    shard_bytes: Annotated[
        int | None,
        typer.Option(
            "--shard-bytes",
            min=1,
            show_default=False,
            help="Write a folder of files of about this size, with an index.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are there already.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Write the parameters of the newest consistent checkpoint as plain safetensors.

    mx.load and mlx-lm read them; the names are those of model.parameters(). Every tensor is
    verified on its way, and a file appears whole or not at all. A file that is there already stays,
    unless you say --overwrite. A node that was away may be back with checkpoints of a lineage that
    was left: --lineage takes one of those.

    \b
    Examples:
      elasticctl checkpoints export byte-lm-1-k3f9 --out model.safetensors
      elasticctl checkpoints export byte-lm-1-k3f9 --out folder --shard-bytes 5000000000
      elasticctl checkpoints export byte-lm-1-k3f9 --out old.safetensors --lineage d2ce8101
      elasticctl checkpoints export byte-lm-1-k3f9 --out model.safetensors --overwrite
    """
    options = common(context, home, json)
    refuse_stdout(out, "--out")
    out = out.absolute()
    _require_free(out, sharded=shard_bytes is not None, optimizer=optimizer, overwrite=overwrite)
    with _client(options).open(OpenCheckpoint(JobId(job), step, lineage)) as connection:
        ready = _until_ready(connection)
        shards = [(Path(path), str(digest)) for path, digest in ready["files"]]
        with (
            export.CheckpointReader.open(shards) as source,
            Bar("exporting", shown=not options.json, unit_bytes=True) as bar,
        ):
            _require_own(connection, source)
            bar.total(source.model_bytes + (source.optimizer_bytes if optimizer else 0))
            written = export.export(
                source, out, optimizer=optimizer, shard_bytes=shard_bytes, progress=bar.step,
                overwrite=overwrite,
            )  # fmt: skip
        connection.send({"done": True})
    _tell_export(options, ready["checkpoint"], written)


def _tell_export(options: Common, row: Mapping[str, Any], written: export.Exported) -> None:
    if options.json:
        files = [str(path) for path in written.files]
        said = {"step": row["step"], "lineage": row["lineage"], "digest": row["digest"]}
        print_json({**said, "files": files, "tensors": written.tensors, "bytes": written.bytes})
        return
    say(f"step {row['step']}: {written.tensors} tensors, {output.shown_bytes(written.bytes)}")
    for path in written.files:
        say(str(path))


def _require_own(connection: Connection, source: export.CheckpointReader) -> None:
    """As the method, of all files of the checkpoint."""
    for tensor in (*source.model.values(), *source.optimizer.values()):
        connection.require_own(tensor.fd, Path(tensor.where))


def _require_free(out: Path, *, sharded: bool, optimizer: bool, overwrite: bool) -> None:
    if not out.parent.is_dir():
        raise UsageError(f"{out.parent}: there is no such folder")
    if sharded and overwrite:
        raise UsageError("a sharded set needs a new folder; --overwrite is for single files")
    for path in () if sharded else export.targets(out, optimizer=optimizer):
        place_of(path, overwrite=overwrite)


def _until_ready(connection: Any) -> dict[str, Any]:
    while True:
        frame: dict[str, Any] = connection.answer(ANSWER_SECONDS)
        if "files" in frame:
            return frame
        if frame.get("end"):
            raise ProtocolError("the daemon's answer names no files")


@app.command()
def prune(
    context: typer.Context,
    job: Job,
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=0, show_default=False, help="How many of the newest stay."),
    ] = None,
    keep_every_steps: Annotated[
        int | None,
        typer.Option(
            "--keep-every-steps",
            min=0,
            show_default=False,
            help="Those of steps that are multiples of this stay too.",
        ),
    ] = None,
    keep_hours: Annotated[
        float | None,
        typer.Option(
            "--keep-hours",
            min=0,
            show_default=False,
            callback=finite,
            help="One of each so many hours stays too.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed; change nothing.")
    ] = False,
    yes: asking.Yes = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Remove checkpoints on all nodes.

    Without options it removes what the job's own settings don't keep. The newest consistent
    checkpoint of each lineage always stays. At a terminal it asks first. A script is not asked, nor
    who says --yes or --json.

    \b
    Examples:
      elasticctl checkpoints prune byte-lm-1-k3f9 --keep 1 --dry-run
      elasticctl checkpoints prune byte-lm-1-k3f9 --keep 1 --yes
    """
    options = common(context, home, json)

    def pruned(*, dry: bool) -> dict[str, Any]:
        return _client(options).request(
            PruneCheckpoints(JobId(job), keep, keep_every_steps, keep_hours, dry)
        )

    if asking.somebody(asks=not (dry_run or yes or options.json)):
        doomed = pruned(dry=True)["removed"]
        size = output.shown_bytes(sum(row["bytes"] for row in doomed))
        if doomed:
            asking.agree(f"Remove {counted(len(doomed), 'checkpoint')} ({size}) from all nodes?")
    answer = pruned(dry=dry_run)
    if options.json:
        print_json(answer)
    else:
        verb = "would remove" if dry_run else "removed"
        for row in answer["removed"]:
            say(f"{verb} step {row['step']} ({output.shown_bytes(row['bytes'])})")
        stay = counted(len(answer["kept"]), "stays", "stay")
        say(f"{verb} {counted(len(answer['removed']), 'checkpoint')}, {stay}")
        for failure in answer["failures"]:
            warn(failure)
        _print_silent(answer)
    if answer["failures"]:
        raise typer.Exit(1)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("no checkpoints")
        return
    table = [
        (
            row["step"],
            row["lineage"],
            output.shown_bytes(row["bytes"]),
            row["shards"],
            row["replicas"],
            "yes" if row["consistent"] else "no",
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["created"])),
            " ".join(row["holders"]),
        )
        for row in rows
    ]
    output.print_table(STORED, table)


def _print_silent(answer: Mapping[str, Any]) -> None:
    for node, reason in answer["silent"].items():
        warn(f"{node} was not asked: {reason}")


def _place(frame: Mapping[str, Any]) -> str:
    shard = f"shard {frame['shard']} of {frame['shards']}"
    return f"{frame['node']}: step {frame['step']}, {shard}"


class Bar:
    """A bar on a terminal's stderr, nothing elsewhere."""

    def __init__(self, title: str, *, shown: bool, unit_bytes: bool = False) -> None:
        console = Console(stderr=True)
        columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
        columns += [DownloadColumn(), TransferSpeedColumn()] if unit_bytes else []
        visible = shown and console.is_terminal
        self._progress = Progress(*columns, console=console, disable=not visible, transient=True)
        self._task = self._progress.add_task(title, total=None)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def total(self, count: int) -> None:
        self._progress.update(self._task, total=count)

    def step(self, count: int = 1) -> None:
        self._progress.advance(self._task, count)

    def print(self, line: str) -> None:
        self._progress.stop()
        say(line, flush=True)
        self._progress.start()
