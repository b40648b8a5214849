"""A terminal that is drawn again and again, until somebody leaves."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from elasticd.cli import screen
from elasticd.cli.interrupts import Interrupts
from elasticd.cli.monitors.keys import Key, Keyboard

DRAW_SECONDS = 0.25


def can_redraw(console: Console) -> bool:
    """Whether there is a terminal whose picture can be redrawn. With FORCE_COLOR a pipe counts as
    one, but has none."""
    return not console.is_dumb_terminal and sys.stdout.isatty()


def drawn(lines: Iterable[screen.Line]) -> Text:
    """Lines as a picture; none is wrapped."""
    pieces = [[(screen.clean(text), style) for text, style in line] for line in lines]
    return Text("\n", no_wrap=True, end="").join(Text.assemble(*each) for each in pieces)


def redraw(console: Console, draw: Callable[[], Text], obey: Callable[[Key], None]) -> None:
    """Draw until somebody leaves, or the terminal is gone; then it is as it was before.

    Raises:
        KeyboardInterrupt: by a signal.
    """
    keyboard, interrupts = Keyboard(), Interrupts()
    live = Live(console=console, screen=True, auto_refresh=False)
    with (
        interrupts.in_force(),
        contextlib.suppress(EOFError),
        _taken(live, keyboard, interrupts),
    ):
        while True:
            live.update(draw(), refresh=True)
            for key in keyboard.pressed(DRAW_SECONDS):
                if key == "quit":
                    return
                obey(key)


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
