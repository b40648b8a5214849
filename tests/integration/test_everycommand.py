"""Every command of ``elasticctl --help``, as a process on real daemons: used right, also where a
terminal can do little, and used wrong."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commandpages import names
from tests.integration.cluster import Cluster
from tests.integration.commandstage import Ran, Stage
from tests.integration.commandtable import USES, CommandUse

pytestmark = pytest.mark.process

NODES = 3
"""Two train; one is lost at the end."""


def test_the_table_has_every_command() -> None:
    assert sorted(use.name for use in USES) == sorted(names())


def words(use: CommandUse, text: str, stage: Stage) -> list[str]:
    return [*use.name.split(), *(word.format(s=stage) for word in shlex.split(text))]


@pytest.mark.long
@pytest.mark.timeout(900)  # sixty commands, one after the other, of which some measure the machine
@pytest.mark.parametrize(
    "narrow", [False, pytest.param(True, marks=pytest.mark.deep)], ids=["json", "narrow"]
)
def test_used_right(
    narrow: bool, make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, NODES) as cluster:
        found = [*right_ones(Stage(cluster, tmp_path / "stage"), narrow=narrow)]
        assert not found, "\n".join(found)


def test_used_wrong(cluster: Cluster, tmp_path: Path) -> None:
    found = [*wrong_ones(Stage(cluster, tmp_path / "stage"))]
    assert not found, "\n".join(found)


def right_ones(stage: Stage, *, narrow: bool) -> Iterator[str]:
    """What was not as it is to be, in words."""
    for use in USES:
        if use.elsewhere:
            continue
        if use.first is not None:
            use.first(stage)
        asked = words(use, use.right, stage)
        ran = stage.run([*asked, *([] if narrow else ["--json"])], narrow=narrow)
        stage.said[use.name] = ran
        late = use.busy and ran.code == 1 and use.busy in ran.out
        if (ran.code and not late) or (ran.err and not (narrow and use.notes)):
            yield f"{asked}: exit {ran.code}, {ran.err!r}"
        yield from (f"{asked}: {each}" for each in strange(ran, use, narrow=narrow))


def strange(ran: Ran, use: CommandUse, *, narrow: bool) -> Iterator[str]:
    if "Traceback" in ran.out:
        yield ran.out
    if narrow and not (ran.out.isascii() and "\x1b" not in ran.out):
        yield f"prints what this terminal can't: {ran.out!r}"
    if narrow or not use.json:
        return
    try:
        objects = [json.loads(line) for line in ran.out.splitlines()]
    except ValueError:
        yield f"no JSON: {ran.out!r}"
    else:
        if not objects or not all(isinstance(each, dict) for each in objects):
            yield f"no objects: {ran.out!r}"


def wrong_ones(stage: Stage) -> Iterator[str]:
    """As :func:`right_ones`."""
    for use in USES:
        asked = words(use, use.wrong, stage)
        before = stage.picture()
        ran = stage.run([*asked, "--json"], narrow=True)
        changed = [name for name, was in stage.picture().items() if before.get(name) != was]
        if changed:
            yield f"{asked}: changes {changed}"
        if ran.code != use.code or ran.err.count("\n") != 1 or "internal error" in ran.err:
            yield f"{asked}: exit {ran.code}, {ran.err!r}"
        try:
            said = json.loads(ran.out)
        except ValueError:
            said = ran.out
        if said != {"error": ran.err.removeprefix("elasticctl: ").strip(), "exit": ran.code}:
            yield f"{asked}: {said!r} is not {ran.err!r}"
