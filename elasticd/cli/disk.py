"""``elasticctl disk``: what takes the space on a node's disk."""

from __future__ import annotations

from pathlib import Path

import typer

from elasticd.cli import screen
from elasticd.cli.options import Home, Json, common
from elasticd.cli.output import print_table, shown_bytes
from elasticd.cli.tables import Table
from elasticd.core.words.requests.looking import ShowDisk
from elasticd.counting import counted
from elasticd.pasting import of_home, quoted

KINDS = Table(("kind", "size"))
DISK_JOBS = Table(
    ("job", "size", "checkpoints", "outputs", "logs", "other"),
    drops=("other", "logs", "outputs", "checkpoints"),
)
SHOWN_JOBS = 20


def disk(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """Show what takes the space on this node's disk: by kind, and by job.

    The jobs that take most come first, 20 of them; --json has 1000. Outputs include the copies of
    main's that this node keeps. Of the cache the folder 'tokens', with tokens of data, may be
    deleted at any time, and all the rest while no job runs; its compiled kernels, on Linux in the
    folder 'mlx', stay within 1 GiB by themselves. A Mac has them in the temporary folder of the
    daemon's account. To free space: 'elasticctl forget JOB', 'elasticctl checkpoints prune JOB', or
    [keep] in elasticd.toml. A job that no record names, as after 'elasticctl reset', is said to be
    one: 'elasticctl forget JOB' removes what this node has of it.

    On a narrow terminal columns are left out in this order: other, logs, outputs, checkpoints.

    \b
    Examples:
      elasticctl disk
      elasticctl disk --json
    """
    options = common(context, home, json)
    found = options.client.wait_for(ShowDisk())
    if options.json:
        screen.print_json(found)
        return
    used, free = shown_bytes(found["bytes"]), shown_bytes(found["free_bytes"])
    screen.say(f"{found['node']}: {used} used, {free} free")
    screen.say(found["home"])
    screen.say("")
    print_table(KINDS, [(each["kind"], shown_bytes(each["bytes"])) for each in found["kinds"]])
    if not found["jobs"]:
        return
    screen.say("")
    rows = []
    for job in found["jobs"][:SHOWN_JOBS]:
        outputs = job.get("outputs", 0) + job.get("copies", 0)
        logs, states = job.get("logs", 0), job.get("checkpoints", 0)
        sizes = (job["bytes"], states, outputs, logs, job["bytes"] - states - outputs - logs)
        rows.append((job["job"], *map(shown_bytes, sizes)))
    print_table(DISK_JOBS, rows)
    rest = found["jobs"][SHOWN_JOBS:]
    if rest or found["other_jobs"]:
        size = sum(job["bytes"] for job in rest) + found["other_bytes"]
        others = counted(len(rest) + found["other_jobs"], "other job")
        screen.say(f"and {others}: {shown_bytes(size)}")
    if strays := found.get("strays"):  # an earlier daemon doesn't say
        command = quoted(of_home(f"forget {strays[0]}", Path(found["home"])))
        screen.warn(
            f"no record names {', '.join(strays[:SHOWN_JOBS])}, as after a reset: {command} removes"
            " what this node has of it; 'elasticctl outputs' says how to have it first"
        )
