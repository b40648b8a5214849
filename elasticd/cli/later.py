"""Commands that are loaded when they are run. Many need much that others don't, such as all that
daemons say to one another, and 'elasticctl status' should answer at once."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

_later: dict[str, _Deferred] = {}


@dataclass(frozen=True, slots=True)
class _Deferred:
    """Where a command is that was not loaded: a function, or a group of commands."""

    module: str
    name: str


class Commands(TyperGroup):
    """The commands of elasticctl. Their list shows what :func:`add_later` was given."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that ``args`` begin with, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, _loaded(name, _later[name]) if name in _later else command, rest


def add_later(app: typer.Typer, name: str, place: str, short_help: str) -> None:
    """Let ``name`` run what is at ``place`` in elasticd.cli: ``health.doctor``, say."""

    def stands_for_it() -> None:
        """Shown in lists; never run."""

    module, _, attribute = place.rpartition(".")
    _later[name] = _Deferred(f"elasticd.cli.{module}", attribute)
    app.command(name, short_help=short_help)(stands_for_it)


def _loaded(name: str, place: _Deferred) -> Any:
    found = getattr(importlib.import_module(place.module), place.name)
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.callback()(lambda: None)  # with one command alone it would be no group
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name)(found)
    return cast(TyperGroup, get_command(app)).commands[name]
