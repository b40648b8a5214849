"""``elasticctl monitor``: the cluster and one job, live in the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from elasticd.cli import screen
from elasticd.cli.interrupts import Interrupts
from elasticd.cli.monitors.keys import Key, Keyboard
from elasticd.cli.monitors.looking import Lookout, look, status_of
from elasticd.cli.monitors.picture import picture
from elasticd.cli.monitors.scene import moved, turned
from elasticd.cli.options import Home, Json, MaybeJob, Performance, common

DRAW_SECONDS = 0.25


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
    # With FORCE_COLOR a pipe counts as a terminal, but has no picture that could be redrawn.
    if options.json or console.is_dumb_terminal or not sys.stdout.isatty():
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
    interrupts = Interrupts()
    with interrupts.in_force():
        _watch(console, lookout, interrupts, performance)


@contextlib.contextmanager
def _taken(live: Live, keyboard: Keyboard, interrupts: Interrupts) -> Iterator[None]:
    """The terminal is ours meanwhile, and then as before. Signals wait at both ends."""
    stack = contextlib.ExitStack()
    try:
        with interrupts.held():
            stack.enter_context(keyboard.open())
            stack.enter_context(live)
        yield
    finally:
        with interrupts.held():
            stack.close()


def _watch(console: Console, lookout: Lookout, interrupts: Interrupts, performance: bool) -> None:
    """Until somebody leaves."""
    keyboard, curve = Keyboard(), ""
    live = Live(console=console, screen=True, auto_refresh=False)
    lookout.start()
    try:
        with _taken(live, keyboard, interrupts):
            while True:
                live.update(_drawn(console, lookout, performance, curve), refresh=True)
                for key in keyboard.pressed(DRAW_SECONDS):
                    if key == "quit":
                        return
                    performance ^= key == "performance"
                    if key == "values":
                        curve = turned(lookout.scene.named, curve)
                    _obey(key, lookout)
    except EOFError:  # the terminal is gone
        return
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
    pieces = [[(screen.clean(text), style) for text, style in line] for line in lines]
    return Text("\n", no_wrap=True, end="").join(Text.assemble(*each) for each in pieces)


def _has_blocks() -> bool:
    """Whether what is printed may be more than ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
