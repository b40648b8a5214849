"""``elasticctl monitor``: the cluster and one job, live in the terminal."""

from __future__ import annotations

import os
import sys

import typer
from rich.console import Console
from rich.text import Text

from elasticd.cli import screen
from elasticd.cli.monitors.board import can_redraw, drawn, redraw
from elasticd.cli.monitors.keys import Key
from elasticd.cli.monitors.looking import Lookout, look, status_of
from elasticd.cli.monitors.picture import picture
from elasticd.cli.monitors.scene import moved, turned
from elasticd.cli.options import Home, Json, MaybeJob, Performance, common

_ASCII = ("C", "POSIX")
"""Locales that promise no other letters."""


def monitor(
    context: typer.Context,
    job: MaybeJob = None,
    performance: Performance = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Watch the cluster and a job: nodes, ranks, loss, speed, the queue, faults and recoveries.

    Without JOB it shows the one that has its turn. If the daemon that it asks dies, another one
    under the same home is asked. Without a terminal, and with TERM=dumb, it prints one picture and
    ends. --json prints one object.

    \b
    Keys:
      tab, arrows   another job
      l             the last lines of the job's logs, and back
      p             what the time of a step goes to, by rank, in seconds, and back
      v             the curve of the next value that the script gave to run.log, at last the loss
      q, Ctrl-C     leave; nothing changes

    On a narrow terminal columns are left out in this order: of nodes version, chip, memory, link;
    of ranks s/grain, grains, share; with --performance script, checkpoint, update, data, waiting,
    reduce, compute.

    \b
    Examples:
      elasticctl monitor
      elasticctl monitor --performance
      elasticctl monitor byte-lm-1-k3f9 --json
    """
    options = common(context, home, json)
    console = Console()
    if options.json or not can_redraw(console):
        scene = look(options.client, job)
        if options.json:
            screen.print_json(scene.plain(scene.job))
        else:
            width, blocks = screen.width(), _has_blocks()
            lines = picture(scene, scene.job, width, performance=performance, blocks=blocks)
            screen.say_lines(lines)
        return
    status, chosen = status_of(options.client, job)
    lookout = Lookout(options.client, chosen, status, follows=job is None)
    _watch(console, lookout, performance)


def _watch(console: Console, lookout: Lookout, performance: bool) -> None:
    """Until somebody leaves."""
    curve = ""

    def obey(key: Key) -> None:
        nonlocal performance, curve
        performance ^= key == "performance"
        if key == "values":
            curve = turned(lookout.scene.named, curve)
        _obey(key, lookout)

    lookout.start()
    try:
        redraw(console, lambda: _drawn(console, lookout, performance, curve), obey)
    finally:
        lookout.stop()


def _obey(key: Key, lookout: Lookout) -> None:
    if key == "logs":
        lookout.show_logs(not lookout.logs)
    elif key in ("next", "previous"):
        by = 1 if key == "next" else -1
        lookout.show(moved(lookout.scene.jobs, lookout.job, by))


def _drawn(console: Console, lookout: Lookout, performance: bool, curve: str) -> Text:
    lines = picture(
        lookout.scene,
        lookout.job,
        console.width,
        console.height,
        logs=lookout.logs,
        performance=performance,
        live=True,
        blocks=_has_blocks(),
        curve=curve,
    )
    return drawn(lines)


def _has_blocks() -> bool:
    """Whether what is printed may be more than ASCII. In the locale C Python takes UTF-8 all the
    same, and says so in LC_CTYPE."""
    said = os.environ.get("LC_ALL") or os.environ.get("LANG")
    if said in _ASCII and os.environ.get("LC_CTYPE", "") in ("", "C.UTF-8", *_ASCII):
        return False
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
