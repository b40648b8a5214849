"""``elasticctl report``: one file that tells how a job went."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticd.cli import screen
from elasticd.cli.options import Home, Job, Json, common
from elasticd.errors import naming
from elasticd.namedfile import place_of, refuse_stdout
from elasticd.types import JobId


def report(
    context: typer.Context,
    job: Job,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            show_default=False,
            help="The file to write, or a folder. Default: JOB.html in the current folder.",
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Write Markdown (JOB.md) instead of HTML.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is there already.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Write one file that tells how a job went: state, curves, goodput and what it was lost to,
    faults with their evidence, checkpoints, nodes and configuration.

    The page needs no network and no script, and prints well. It works while the job trains, and
    after its end. It tells what was recorded, and names what was not. The loss by step is that
    which the daemon has heard, and what the script wrote to a file of run.open (lines of JSON with
    step and loss, or columns).

    Of job.env only the names are in it. Arguments and the end of a traceback are: look before you
    send it to somebody.

    \b
    Examples:
      elasticctl report byte-lm-1-k3f9
      elasticctl report byte-lm-1-k3f9 --out run.html --overwrite
      elasticctl report byte-lm-1-k3f9 --markdown
    """
    options = common(context, home, json)
    if out is not None and not out.is_dir():
        refuse_stdout(out, "--out")
        place_of(out.absolute(), overwrite=overwrite)
    # Loaded only now: nothing else needs it, and every command should start quickly.
    from elasticd.cli.reports import gathering, html, writing
    from elasticd.cli.reports import markdown as md

    facts = gathering.gather(options.client, JobId(job), time.time())
    folder = out or Path()
    name = f"{facts.job['id']}{'.md' if markdown else '.html'}"
    target = (folder / name if out is None or out.is_dir() else out).absolute()
    place_of(target, overwrite=overwrite)
    paper = writing.paper(facts)
    page = md.page(paper) if markdown else html.page(paper)
    write_page(target, page.encode(), overwrite=overwrite)
    if options.json:
        screen.print_json({"file": str(target)})
    else:
        screen.say(str(target))


def write_page(target: Path, data: bytes, *, overwrite: bool) -> None:
    """It appears whole or not at all.

    Raises:
        UsageError: something is there, and is not to be replaced.
        OSError: the disk is full, or refuses.
    """
    place = place_of(target, overwrite=overwrite)
    with _beside(place) as (file, partial):
        file.write(data)
        file.flush()
        if overwrite:
            partial.replace(place)
            return
        try:
            os.link(partial, place)  # unlike a renaming it replaces nothing
        except FileExistsError:
            place_of(target, overwrite=False)
            raise
        except OSError:  # a file system without links
            place_of(target, overwrite=False)
            partial.replace(place)


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[tuple[Any, Path]]:
    """A new file next to ``target``, which is gone behind; nobody can have laid it there."""
    partial = target.with_name(f".{target.name[:200]}.{os.getpid()}.partial")
    with naming(target, partial):
        partial.unlink(missing_ok=True)
        try:
            with partial.open("xb") as file:
                yield file, partial
        finally:
            partial.unlink(missing_ok=True)
