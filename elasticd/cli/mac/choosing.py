"""Which probes are run, and what is shown of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

from elasticd.cli.mac.probe import MacProbe
from elasticd.cli.mac.probes import PROBES
from elasticd.cli.mac.running import TrialResult
from elasticd.cli.output import print_table
from elasticd.cli.screen import say
from elasticd.cli.tables import Table
from elasticd.errors import UsageError

RESULTS = Table(("probe", "result", "value"), text="value")


def chosen(only: Sequence[str], *, mac: bool) -> tuple[MacProbe, ...]:
    """With ``--mac`` all, or those that ``--only`` names.

    Raises:
        UsageError: there is no such probe, or ``--mac`` wasn't said.
    """
    if not mac:
        if only:
            raise UsageError("--only is for the probes of --mac: say --mac, too")
        return ()
    names = [each.name for each in PROBES]
    for name in only:
        if name not in names:
            said = name or repr(name)
            raise UsageError(f"--only {said}: there is no such probe; there are {', '.join(names)}")
    return tuple(each for each in PROBES if not only or each.name in only)


def ask_for_root(
    probes: Sequence[MacProbe],
    run: Callable[[Sequence[str]], int] = subprocess.call,
    here: str = sys.platform,
    asks: bool | None = None,
) -> None:
    """Have sudo ask for the password, once, if one of these takes it. Without it that probe says
    that it was not tried."""
    able = sys.stdin.isatty() and os.geteuid() != 0 if asks is None else asks
    names = [each.name for each in probes if each.root]
    if here == "darwin" and able and names:
        say(f"{names[0]} installs a service and takes it away again. sudo asks for your password.")
        run(("sudo", "-v"))


def say_result(result: TrialResult) -> None:
    """As soon as it is there: the next may take a while."""
    say(f"{result.finding.verdict}  {result.probe.name}: {result.probe.about}", flush=True)


def say_table(results: Sequence[TrialResult]) -> None:
    """All of them, and the cures."""
    say()
    rows = [(each.probe.name, each.finding.verdict, each.finding.value) for each in results]
    print_table(RESULTS, rows)
    cures = [each for each in results if each.finding.cure]
    if cures:
        say()
    for each in cures:
        say(f"{each.finding.verdict}  {each.probe.name}: {each.finding.cure}.")
