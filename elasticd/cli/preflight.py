"""``elasticctl preflight``, ``check-network`` and ``calibrate``: what is wrong with nodes and links
before a job runs."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticd.cli import screen, submit
from elasticd.cli.jobneeds import earlier_state, needs_of
from elasticd.cli.moments import age
from elasticd.cli.options import Home, Json, common, finite
from elasticd.cli.output import print_table
from elasticd.cli.tables import Table
from elasticd.client.client import Client
from elasticd.client.queue import send_archive
from elasticd.core.words.requests.preflight import RunPreflight
from elasticd.counting import counted
from elasticd.errors import OperationError, UsageError
from elasticd.preflight.needs import ScriptOffer
from elasticd.preflight.nodes import ANSWERS
from elasticd.preflight.speeds import LEAST_SECONDS, MOST_SECONDS, USUAL_SECONDS

CHECKS = Table(("check", "node", "result", "value"), text="value")
ALL = "all"
_NEXT_SECONDS = 200.0
"""Longer than a daemon takes to tell what it looks at next."""

Last = Annotated[
    bool, typer.Option("--last", help="Show again what was found last, and how old that is.")
]

Busy = Annotated[
    bool,
    typer.Option("--busy", help="Measure also where a job runs, which slows it down."),
]


Seconds = Annotated[
    float,
    typer.Option(
        "--seconds",
        metavar="SECONDS",
        min=LEAST_SECONDS,
        max=MOST_SECONDS,
        callback=finite,
        help="For so long each node computes.",
    ),
]

JobFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[JOB.toml]",
        help="Look also at what this job needs; what 'elasticctl submit' takes.",
        show_default=False,
    ),
]

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="TABLE.KEY=VALUE",
        help="Change a setting of the job's file; may be given several times.",
    ),
]


NoScript = Annotated[
    bool,
    typer.Option("--no-script", help="Run no script: don't see whether its gradients repeat."),
]


def preflight(
    context: typer.Context,
    job: JobFile = None,
    assignments: Assignments = None,
    no_script: NoScript = False,
    busy: Busy = False,
    last: Last = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Look at all nodes before a job runs: what differs, what runs short, what would stop them.

    One daemon is asked, and asks the others: versions of elasticd, Python, MLX and the system,
    chip, memory, disk, clock, power source, sleep settings, Low Power Mode, heat and firewall. It
    has each node compute for two seconds, unless that was measured within a day, as 'elasticctl
    calibrate' does alone; and it has the links between them measured, as 'elasticctl check-network'
    does alone. Each check passes, warns or fails, with the value and the cure. A node that is away,
    or has an earlier version, is said to be. Where a job has processes nothing is measured, unless
    you say --busy.

    With JOB.toml it looks also at what that job needs on every node: its interpreter and the
    packages that its script imports, variables of pass_env, memory for the model, room for files
    and checkpoints, the same data at each path that it names, and enough nodes for world.min. And
    each node runs the script as far as its first gradient, twice, for a minute each at most: do
    the gradients repeat there, and are they the same everywhere? Nothing is updated or submitted.
    --no-script leaves that out, so there is no check 'gradients' then, as there is none of a plain
    job.

    What was found is kept in the home of the node that was asked, until the next time; --last
    shows it. In the table a row is for all nodes with the same value. Ctrl-C ends it everywhere.

    Exit code: 1 if a check fails, or did with --last; warnings don't count. 2 if the job's file is
    wrong.

    \b
    Examples:
      elasticctl preflight
      elasticctl preflight job.toml
      elasticctl preflight lora.yaml --set world.min=3
      elasticctl preflight --json
      elasticctl preflight --last
    """
    options = common(context, home, json)
    about = (("JOB.toml", job), ("--set", assignments), ("--no-script", no_script))
    if last and (given := [name for name, value in about if value]):
        raise UsageError(
            f"--last shows what was found, with its job: leave {' and '.join(given)} out"
        )
    if (assignments or no_script) and job is None:
        what = "--set changes" if assignments else "--no-script is for"
        raise UsageError(f"{what} a job's file: name that, too")
    needs, script, data = None, None, b""
    if job is not None:
        spec, packed = submit.prepare(job, assignments or [])
        needs = needs_of(spec, packed, earlier_state(options.client, spec.job.name))
        if spec.plain is None and not no_script:
            data = packed.data
            script = ScriptOffer(spec.to_dict(), len(data), packed.digest)
    request = RunPreflight(last=last or None, busy=busy or None, job=needs, script=script)
    show(asked(options.client, request, options.json, data), options.json)


def check_network(
    context: typer.Context,
    busy: Busy = False,
    last: Last = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Measure the links between all nodes, both ways, at each address of a node.

    It goes the way of a ring: unencrypted, at a port like those of ranks. So it also finds a
    firewall that lets daemons through and rings not. Each takes about half a second; no node
    measures two at once. Where a job has processes links are not measured, unless you say --busy.

    What was found is kept in the home of the node that was asked, until the next time; --last
    shows it. Ctrl-C ends it everywhere.

    Exit code: 1 if a link fails, or did with --last; warnings don't count.

    \b
    Examples:
      elasticctl check-network
      elasticctl check-network --busy --json
      elasticctl check-network --last
    """
    options = common(context, home, json)
    request = RunPreflight(last=last or None, only="links", busy=busy or None)
    show(asked(options.client, request, options.json), options.json)


def calibrate(
    context: typer.Context,
    seconds: Seconds = USUAL_SECONDS,
    busy: Busy = False,
    last: Last = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Measure how fast each node computes, and whether it slows down meanwhile.

    Each multiplies matrices of a fixed size again and again, on the device that MLX uses by
    default, in a process of its own that gives way to others. A node warns if it is less than half
    as fast as the fastest, not steady, or slower at the end than at the beginning, as one is that
    gets hot: that takes a minute to show, so say --seconds 60. Nodes on one machine take turns.
    Where a job has processes nothing is measured, unless you say --busy.

    Each node keeps its own result, which 'elasticctl preflight' uses for a day. The report is kept
    in the home of the node that was asked, until the next time; --last shows it.

    Exit code: 1 if a node can't compute or doesn't answer, or did so with --last; warnings don't
    count.

    \b
    Examples:
      elasticctl calibrate
      elasticctl calibrate --seconds 60
      elasticctl calibrate --busy --json
      elasticctl calibrate --last
    """
    options = common(context, home, json)
    only = None if last else seconds
    request = RunPreflight(last=last or None, only="speed", busy=busy or None, seconds=only)
    show(asked(options.client, request, options.json), options.json)


def asked(client: Client, request: RunPreflight, quiet: bool, files: bytes = b"") -> dict[str, Any]:
    """The report; unless ``quiet`` what is being done is said meanwhile. ``files``: the archive of
    a script that is offered."""
    with client.open(request) as connection, screen.progress(quiet) as tell:
        try:
            while "doing" in (frame := connection.answer(_NEXT_SECONDS)):
                tell(f"{frame['doing']} …")
                if frame.get("send"):
                    send_archive(connection, files)
        except UsageError as error:
            speeds = request.only == "speed" and str(error).startswith("bad request")
            if not speeds and not str(error).startswith("unknown request"):
                raise
            raise OperationError(
                f"the daemon at {connection.path.parent} is of an earlier version, which"
                f" {'measures no speeds' if speeds else 'knows no preflight'}: restart it with this"
                " one, or ask another node (--home)"
            ) from None
    if request.job is not None and not frame.get("job"):
        raise OperationError(
            f"the daemon at {connection.path.parent} is of an earlier version, which looks at no"
            " job: restart it with this one, or ask another node (--home)"
        )
    return frame


def show(report: Mapping[str, Any], as_json: bool, now: float | None = None) -> None:
    """Raises typer.Exit: a check has failed."""
    old = max(0.0, (time.time() if now is None else now) - report["time"])
    if as_json:
        screen.print_json({**report, "age_seconds": round(old, 3)})
    else:
        _show_table(report, old)
    if report["wrong"]:
        raise typer.Exit(1)


def _show_table(report: Mapping[str, Any], old: float) -> None:
    rows = grouped(report["checks"])
    about = f" about {report['job']}" if report.get("job") else ""
    screen.say(f"asked {report['asked']}{about}, {age(old)} ago")
    screen.say()
    print_table(
        CHECKS, [(each["check"], who, each["verdict"], each["value"]) for each, who in rows]
    )
    screen.say()
    for each, who in rows:
        if each["cure"]:
            screen.say(f"{each['verdict']}  {each['check']}, {who}: {each['cure']}.")
    warns = sum(each["verdict"] == "warn" for each in report["checks"])
    fails = report["wrong"]
    screen.say(
        f"{counted(len(report['checks']), 'check')}: {counted(fails, 'fails', 'fail')},"
        f" {counted(warns, 'warns', 'warn')}"
    )


def grouped(checks: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
    """A check for each result of it that differs, and the nodes that have that one."""
    rows: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    of_check: dict[str, list[str]] = {}
    for each in checks:
        key = (each["check"], each["verdict"], each["value"], each["cure"])
        rows.setdefault(key, []).append(each)
        of_check.setdefault(each["check"], []).append(each["where"])
    order = {name: number for number, name in enumerate(of_check)}
    known = _nodes(of_check.get(ANSWERS, []))
    found = []
    for same in sorted(rows.values(), key=lambda some: order[some[0]["check"]]):
        places, here = {*of_check[same[0]["check"]]}, [each["where"] for each in same]
        whole = len(here) > 1 and {*here} == places and _nodes(places) >= known
        found.append((same[0], ALL if whole else ", ".join(here)))
    return found


def _nodes(places: Collection[str]) -> set[str]:
    return {node for place in places for node in place.split(" > ")}
