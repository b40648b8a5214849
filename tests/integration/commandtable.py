"""How each command of elasticctl is used right, and wrong, on a small cluster of real daemons.

The order is that in which they are run: a job is submitted before it is looked at, hit, paused and
cancelled. In the words ``{s.NAME}`` is of the :class:`~tests.integration.commandstage.Stage`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.integration.commandstage import Stage

_NOBODY = "--user no-such-user"
_QUIETLY = "--set world.max=2 --set recovery.spare=none --set train.steps=100000"
_PACED = """--set 'job.args=["--pace-seconds", "0.05"]'"""


@dataclass(frozen=True, slots=True)
class CommandUse:
    """One command. ``right`` and ``wrong`` are the words behind its name, as a shell reads them."""

    name: str
    right: str
    """Exits with 0, prints nothing on stderr, and with --json objects."""
    wrong: str
    code: int = 2
    """What ``wrong`` exits with. It says why in one line, and changes nothing."""
    notes: bool = False
    """What people should know besides is said on stderr, if not with --json."""
    json: bool = True
    """False: it prints its help, also with --json."""
    first: Callable[[Stage], Any] | None = None
    """Runs before ``right``."""
    busy: str = ""
    """What ``right`` prints where it exits with 1 because the machine is so busy."""
    elsewhere: str = ""
    """Where ``right`` is tried, if not here."""


def _group(name: str) -> CommandUse:
    """Commands of which one has to be named."""
    return CommandUse(name, "", "no-such-command", json=False)


USES = (
    CommandUse("", "", "no-such-command", json=False),
    *map(_group, ("local", "cluster", "service", "chaos", "checkpoints")),
    # A home without a cluster.
    CommandUse("configure", "--home {s.bare} --node-id bare", "--set no_such_key=1"),
    CommandUse(
        "cluster init",
        "--home {s.bare} --listen {s.listen}",
        "--home {s.first} --node-id another",
        notes=True,
    ),
    CommandUse("reset", "--home {s.bare} --yes", "--home {s.first} --yes", 1),
    CommandUse("service install", "--home {s.bare} --dry-run", _NOBODY),
    CommandUse("service uninstall", "--home {s.bare} --dry-run", _NOBODY),
    CommandUse("service start", "--home {s.bare} --dry-run", _NOBODY),
    CommandUse("service stop", "--home {s.bare} --dry-run", _NOBODY),
    CommandUse("service status", "--home {s.bare} --dry-run", _NOBODY),
    CommandUse("service logs", "--home {s.bare} --dry-run", _NOBODY),
    # One of its own.
    CommandUse("local up", "--home {s.small} -n 1", "--home {s.new} -n 99"),
    CommandUse("local down", "--home {s.small}", "no-such-argument"),
    CommandUse("demo", "", "--home {s.home}", elsewhere="tests/unit/cli/test_demo.py"),
    # Who is in the cluster.
    CommandUse("cluster token", "--home {s.first}", "--home {s.first} --hours 9999", notes=True),
    CommandUse(
        "cluster join",
        "{s.token} --home {s.joiner} --node-id {s.guest} --listen {s.listen}",
        "elasticd1-nonsense --home {s.new}",
    ),
    CommandUse(
        "cluster invite",
        "{s.hosts} --home {s.first}",
        "{s.full}/none --home {s.first}",
        notes=True,
    ),
    CommandUse(
        "cluster revoke", "{s.guest} --home {s.first} --yes", "no-such-node --home {s.first}", 1
    ),
    CommandUse("cluster rotate", "--home {s.first}", "--home {s.second}", 1),
    CommandUse("cluster list", "--home {s.first}", "--home {s.first} no-such-argument"),
    # A quiet cluster.
    CommandUse("nodes", "", "--no-such-option"),
    CommandUse("disk", "", "no-such-argument"),
    CommandUse("doctor", "--home {s.first}", "--home {s.full}/none"),
    CommandUse("dashboard", "--home {s.first}", "--home {s.new}", 3),
    CommandUse("notify", "", "--event job_failed"),
    CommandUse("check-network", "", "no-such-argument"),
    CommandUse("calibrate", "--seconds 1", "--seconds 0", busy="hangs:"),  # it gives way to all
    CommandUse(
        "optimize", "", "{s.toml} --seconds 0", elsewhere="tests/integration/test_optimize.py"
    ),
    # A job that has ended.
    CommandUse("wait", "{s.done}", "no-such-job", 1),
    CommandUse("outputs", "{s.done} --out {s.new}/out", "{s.done} --out {s.full}"),
    CommandUse("report", "{s.done} --out {s.new}/page.html", "{s.done} --out {s.full}/file"),
    CommandUse("checkpoints list", "{s.done}", "no-such-job", 1),
    CommandUse("checkpoints verify", "{s.done}", "{s.done} --step 77", 1),
    CommandUse(
        "checkpoints export", "{s.done} --out {s.new}/m.safetensors", "{s.done} --out {s.full}/file"
    ),
    CommandUse("checkpoints prune", "{s.done} --keep 1 --yes", "no-such-job", 1),
    CommandUse("forget", "{s.done} --yes", "no-such-job --yes", 1),
    # One that trains.
    CommandUse("submit", f"{{s.toml}} {_QUIETLY} {_PACED}", "{s.toml} --set batch.micro=0"),
    CommandUse("jobs", "--last 5", "--state runing"),
    CommandUse("status", "{s.job}", "no-such-job", 1),
    CommandUse("monitor", "{s.job}", "no-such-job", 1, first=Stage.whole),
    # Where a job trains no link is measured, which takes a second of a processor each.
    CommandUse("preflight", "{s.toml}", "{s.toml} --set batch.global=none"),
    CommandUse("logs", "{s.job} --rank 0", "{s.done} --since tomorrow"),
    CommandUse("events", "{s.job}", "no-such-job", 1),
    CommandUse(
        "chaos slow",
        "{s.job} --rank 0 --seconds 0.2",
        "{s.done} --rank 0 --seconds 0",
        first=Stage.whole,
    ),
    CommandUse(
        "chaos hang", "{s.job} --rank 1 --seconds 0.1", "{s.done} --rank 0", 1, first=Stage.whole
    ),
    CommandUse("chaos oom", "{s.job} --rank 1", "{s.done} --rank -1", first=Stage.whole),
    CommandUse(
        "chaos kill",
        "{s.job} --rank 1 --process reducer",
        "{s.done} --rank 0 --process gpu",
        first=Stage.whole,
    ),
    CommandUse("retry", "{s.job} --memory", "no-such-job", 1),
    CommandUse(
        "chaos link",
        "{s.busy} {s.idle} --how close --seconds 0.1",  # a Mac closes no ring's
        "node-0 no-such-node --how close",
        1,
        first=Stage.together,
    ),
    CommandUse(
        "chaos partition",
        "'{s.sides}' --how close --seconds 0.1",
        "node-0 --how close",
        first=Stage.together,
    ),
    CommandUse("drain", "{s.idle}", "no-such-node", 1, first=Stage.together),
    CommandUse("undrain", "{s.idle}", "no-such-node", 1),
    CommandUse("pause", "{s.job}", "{s.done}", 1, first=Stage.whole),
    CommandUse("resume", "{s.job}", "{s.done}", 1),
    CommandUse("cancel", "{s.job}", "{s.done}", 1),
    # A node that is gone, and one that begins anew.
    CommandUse("nodes forget", "{s.dead}", "node-0", 1),
    CommandUse("service restart", "--home {s.second}", _NOBODY),
)
