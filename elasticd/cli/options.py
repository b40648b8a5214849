"""Options and arguments that several commands share.

``--home`` and ``--json`` are accepted before and after every command: each level writes down what
it was given, and the innermost that was given something wins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from elasticd.cli.completing import complete_jobs, complete_nodes
from elasticd.client.client import Client
from elasticd.client.homes import local_home, user_home

Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        show_default=False,
        help="The daemon's state folder, or a local cluster's. Default: ELASTICD_HOME, else the"
        " system's usual folder for application state.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable output.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on, and print what is new.")]
Performance = Annotated[
    bool, typer.Option("--performance", help="Show what the time of a step goes to, by rank.")
]
Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="The job's id, or how only its id begins.", autocompletion=complete_jobs
    ),
]
Node = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="The node's id, or how only its id begins.",
        autocompletion=complete_nodes,
    ),
]
MaybeJob = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="The job's id; without it, all jobs.",
        show_default=False,
        autocompletion=complete_jobs,
    ),
]


def finite(value: float | None) -> float | None:
    """What an option was given, unless that is ``nan`` or ``inf``: those are in every range."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no length of time")
    return value


@dataclass(frozen=True)
class Common:
    """What ``--home`` and ``--json`` said."""

    given_home: Path | None
    json: bool

    @property
    def home(self) -> Path:
        """The home of the daemons to talk to."""
        return user_home(self.given_home)

    @property
    def local_home(self) -> Path:
        """The home of the local cluster."""
        return local_home(self.given_home)

    @property
    def client(self) -> Client:
        """Talks to the daemons of :attr:`home`."""
        return Client(self.home)


def common(context: typer.Context, home: Path | None, json: bool) -> Common:
    """Join what this level was given with what the levels above were."""
    above = context.obj if isinstance(context.obj, Common) else Common(None, False)
    joined = Common(home if home is not None else above.given_home, json or above.json)
    context.obj = joined
    return joined
