"""docs/commands.md: what ``--help`` says of every command. ``python tests/commandpages.py``
writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer
from typer.core import TyperGroup

from elasticd.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
_WIDTH = 100
_COMPLETION = {"--install-completion", "--show-completion"}
"""They are there only where the shell is known."""
_TOP = (
    "# Commands\n\nFor whoever looks for a command or an option without a terminal at hand. Each"
    " text is that of `--help`; `make docs` writes this page.\n\n"
)


def page() -> str:
    """All of it."""
    found = [*_commands(typer.main.get_command(app), "elasticctl")]
    listed = [f"- [`{name}`](#{name.replace(' ', '-')})" for name, _ in found]
    parts = [f"## {name}\n\n```text\n{text}\n```\n" for name, text in found]
    return _TOP + "\n".join(listed) + "\n\n" + "\n".join(parts)


def names() -> list[str]:
    """Every command, without the program's name: "checkpoints list"; groups of them, too."""
    found = _commands(typer.main.get_command(app), "elasticctl")
    return [name.removeprefix("elasticctl").strip() for name, _ in found]


def parameters() -> Iterator[tuple[str, list[Any]]]:
    """Of every command its arguments and options."""
    for name, command, _ in _walked(typer.main.get_command(app), "elasticctl"):
        yield name, command.params


def _commands(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """Names, and what the help says."""
    for below, _, text in _walked(command, name):
        yield below, text


def _walked(command: Any, name: str) -> Iterator[tuple[str, Any, str]]:
    command.params = [each for each in command.params if not {*each.opts} & _COMPLETION]
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH}
    with command.make_context(name, ["--help"], resilient_parsing=True, **settings) as context:
        context.terminal_width = _WIDTH
        yield name, command, command.get_help(context).rstrip()
        if isinstance(command, TyperGroup):
            for each in command.list_commands(context):
                _, below, _ = command.resolve_command(context, [each])
                if below is not None and not below.hidden:
                    yield from _walked(below, f"{name} {each}")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
