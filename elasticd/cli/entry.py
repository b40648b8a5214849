"""The top of the process: every way to end, and what the user then sees.

Exit codes: 0 done, 1 tried and failed, 2 wrong usage, 3 no daemon answers, 130 interrupted. An
error is one line on stderr. With ``--json`` it is ``{"error": …, "exit": code}`` on stdout, too, as
the last object there; so is an interrupt.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import typer

from elasticd.cli.app import app
from elasticd.cli.interrupts import Interrupts
from elasticd.cli.screen import print_json, warn, whole_lines
from elasticd.errors import ElasticdError, naming

PROGRAM = "elasticctl"
INTERRUPTED = 130

# Typer took click in with 0.2x; the base of its usage errors has no public name that both have.
_CommandLineError = typer.BadParameter.__mro__[2]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; nothing is raised."""
    with _closed_lead_nowhere():
        if not _wants_json(arguments):
            return _run(arguments)
        with whole_lines():
            return _run(arguments)


@contextlib.contextmanager
def _closed_lead_nowhere() -> Iterator[None]:
    """There are all standard streams, also those that the caller has closed (``>&-``)."""
    with contextlib.ExitStack() as opened:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                stream = opened.enter_context(open(os.devnull, mode, encoding="utf-8"))
                setattr(sys, name, stream)
                opened.callback(setattr, sys, name, None)
        yield


def _run(arguments: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        # A name in a job's output must not end the program on a terminal that can't show it.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        # A polite kill and a closed terminal end it as Ctrl-C does: nothing is left half done.
        with Interrupts((signal.SIGTERM, signal.SIGHUP)).in_force(), _naming_output():
            code = app(args=arguments, prog_name=PROGRAM, standalone_mode=False)
            sys.stdout.flush()
        if code == INTERRUPTED:  # what some versions of typer make of a KeyboardInterrupt
            return interrupted(arguments)
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return interrupted(arguments)
    except BrokenPipeError:
        # Whoever read our output has seen enough; 1 is what typer ends with in the same case.
        # What is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("ELASTICD_DEBUG"):
            raise
        if isinstance(error, typer.Abort):
            return interrupted(arguments)
        message, code = _explain(error)
        return _fail(message, code, json=_wants_json(arguments))


def interrupted(arguments: Sequence[str] | None = None) -> int:
    """The exit code of a command that was interrupted. It says so to programs; whoever sits at the
    terminal knows."""
    if _wants_json(arguments):
        _say_json("interrupted", INTERRUPTED)
    return INTERRUPTED


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _wants_json(arguments: Sequence[str] | None) -> bool:
    """Also if the command line is too wrong to be understood."""
    given = sys.argv[1:] if arguments is None else arguments
    return "--json" in (given[: given.index("--")] if "--" in given else given)


def _explain(error: Exception) -> tuple[str, int]:
    """What the user is told, and the exit code."""
    if isinstance(error, ElasticdError):
        return str(error), error.exit_code
    if isinstance(error, _CommandLineError):
        return _explain_usage(cast(Any, error)), 2
    if isinstance(error, OSError):
        if not error.filename and isinstance(error, FileNotFoundError) and _is_nowhere():
            return "the current folder is gone: go to another one (cd)", 1
        from elasticd.settings.diskroom import refusal  # only then is needed what that loads

        return refusal(error), 1
    kind = type(error).__name__
    return f"internal error: {kind}: {error} (ELASTICD_DEBUG=1 shows where)", 1


@contextlib.contextmanager
def _naming_output() -> Iterator[None]:
    """Have an error of standard output say of what it is, which that doesn't, whoever writes."""
    out, names = sys.stdout, ("write", "flush")
    for name in names:
        setattr(out, name, naming("standard output")(getattr(out, name)))
    try:
        yield
    finally:
        for name in names:
            getattr(out, "__dict__", {}).pop(name, None)


def _explain_usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else PROGRAM
    return f"{error.format_message().rstrip('.')} (see '{path} --help')"


def _fail(message: str, code: int, *, json: bool) -> int:
    line = " ".join(message.split("\n"))
    warn(f"{PROGRAM}: {line}")
    if json:
        _say_json(line, code)
    return code


def _say_json(error: str, code: int) -> None:
    with contextlib.suppress(OSError):  # stdout may be what failed
        print_json({"error": error, "exit": code})
