"""Somebody at a terminal is asked before what can't be undone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from elasticd.cli.screen import clean

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


def confirm(question: str, given: str, ids: Callable[[], Iterable[str]], *, asks: bool) -> None:
    """Ask ``question``, with the id in it that is meant. A script is asked nothing: what it says is
    what it wants, and nobody is there.

    Args:
        given: how the id begins, or all of it.
        ids: those that there are.
        asks: neither --yes nor --json was said.

    Raises:
        typer.Abort: the answer isn't yes; nothing is to change.
    """
    if not somebody(asks=asks):
        return
    known = [*ids()]
    begun = [each for each in known if each.startswith(given)]
    meant = begun[0] if len(begun) == 1 and given not in known else given
    agree(question.format(meant))


def somebody(*, asks: bool) -> bool:
    """Whether there is somebody to be asked; ``asks`` as of :func:`confirm`."""
    return asks and sys.stdin.isatty()


def agree(question: str) -> None:
    """Ask whoever is there.

    Raises:
        typer.Abort: the answer isn't yes.
    """
    if not typer.confirm(clean(question), err=True):
        raise typer.Abort
