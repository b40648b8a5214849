"""``mode = "plain"``: what runs in a trainer beside a script that makes its own group.

The job is an elastic one whose steps train nothing: each is a round of news between the ranks, so
faults, growth, checkpoints (and with them the copies of the output folder), pause and drain are
those of every job. What the ranks tell one another, and what follows from it, says
elasticd/recovery/plain.py.
"""

from __future__ import annotations

import os
import string
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

from elasticd.core.words.codec import from_plain, to_plain
from elasticd.errors import GenerationLost, OperationError
from elasticd.outputsigns import ask_for_files, have_come
from elasticd.preflight.subnets import behind_router
from elasticd.recipes.keeping import Keeper, Keeping
from elasticd.recipes.kept import CALLS, FOLDER, OUTPUTS, WORK, KeptFiles
from elasticd.recipes.script import STOPPED_SECONDS, Ring, Script, said
from elasticd.recovery import plain as p
from elasticd.recovery.signatures import last_words, of_text
from elasticd.settings.job import JobSpec
from elasticd.settings.otherpython import not_started
from elasticd.settings.plain import RESTARTS, TICK_SECONDS
from elasticd.shell.children.ports import ClaimedPort, claim_port
from elasticd.shell.network.wall import own_networks
from elasticd.train import Run
from elasticd.train.link.daemonseat import DaemonSeat
from elasticd.train.states.namespace import Namespace
from elasticd.train.world import TrainerWorld
from elasticd.types import ScriptFault, Tag

_QUICK_SECONDS, _LOOK_SECONDS = 0.02, 0.05
_TEXT_LETTERS = 2000
_FILES_SECONDS = 5.0
"""Where the script begins anew it waits no longer for rank 0's files to be on the other nodes."""
WORD = "plain"


def main(spec: JobSpec) -> None:
    """Run the job's script, on a trainer's main thread."""
    mx.set_default_device(mx.cpu)
    seat = _Company(spec)
    try:
        seat.run()
    finally:
        seat.end()


class _Nothing(nn.Module):
    """What is trained: nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nothing = mx.zeros(1)


def _loss(model: _Nothing, batch: mx.array) -> mx.array:
    return (model.nothing * batch).sum()


class _Company:
    """Keeps one rank's script company."""

    def __init__(self, spec: JobSpec) -> None:
        assert spec.plain is not None
        self._spec, self._settings = spec, spec.plain
        self._limits = p.Limits(spec.plain.restarts, spec.plain.steady_seconds)
        self._folder = Path.cwd()
        self._script: Script | None = None
        self._keeping: Keeping | None = None
        self._is_source = False
        """The script ran here last as rank 0: its files here are those that count."""
        self._port: ClaimedPort | None = None
        self._world: TrainerWorld | None = None
        """The newest whose port was chosen."""
        self._asked = 0
        """When rank 0's files were asked for in this world; 0: they are here, or don't come."""
        self._warned: set[str] = set()
        self._entered = 0.0
        self._goes_on = False
        """All ranks have said in this world that they go on with the script that they have."""
        self._told = p.ScriptWord((0, "", ""), 0, (), 0, 0.0, by_node=True)
        self._word: dict[str, Any] = {}

    def run(self) -> None:
        """Until the script has ended everywhere."""
        self._run = run = Run(
            model=_Nothing(), optimizer=optim.SGD(0.0), loss=_loss, data=[mx.zeros(())]
        )
        seat = run._seat
        assert isinstance(seat, DaemonSeat)
        self._seat = seat
        run.track(WORD, self._word, per_rank=True)
        remember(run.state, p.ScriptHistory())
        for _ in run:
            self._body(run)

    def _body(self, run: Run) -> None:
        told = [from_plain(p.ScriptWord, word) for word in run._runner.by_rank.told(WORD) if word]
        order, history = p.decide(told, remembered(run.state), self._limits)
        remember(run.state, history)
        self._enter()
        self._goes_on = order == p.GoOn(self._told.world)
        self._obey(order)
        self._stay(TICK_SECONDS if self._goes_on else _QUICK_SECONDS)
        script = self._script
        seconds = 0.0 if script is None else script.ran_seconds
        self._seat.driver.note({"script_seconds": seconds})
        entered = time.monotonic() - self._entered
        self._told = replace(self._told, entered_seconds=entered)
        self._word.clear()
        self._word.update(to_plain(self._told))

    def end(self) -> None:
        """Leave nothing behind."""
        self._drop()
        if self._port is not None:
            self._port.close()

    # --- worlds -----------------------------------------------------------------------------------

    def _in_world(self) -> bool:
        try:
            self._seat.check()
        except GenerationLost:
            return False
        return True

    def _enter(self) -> None:
        """A script of other members is of no more use, unless it has ended as it should; in a new
        world one may begin.

        While what such a one has left is being kept, the others hear of no rank here, and so do
        nothing yet: to them it still runs, and in another world they would begin it anew.
        """
        world = self._run._world
        if world is self._world:
            if self._port is None and world.size > 1 and self._has_files(world):
                self._claim(world)
            return
        if self._script is not None and self._told.members != world.members:
            if self._script.status() != 0:
                self._drop()
                self._told = replace(self._told, state="none", ring=None)
            elif not self._is_kept():
                return
        self._world, self._entered = world, time.monotonic()
        if self._port is not None:
            self._port.close()
        self._port = None
        self._told = replace(
            self._told,
            world=_named(world.generation),
            rank=world.rank,
            members=world.members,
            port=0,
        )
        self._asked = ask_for_files(self._run.output_dir) if world.rank else 0
        if world.size > 1:
            if self._has_files(world):
                self._claim(world)
            self._warn(world)

    def _warn(self, world: TrainerWorld) -> None:
        """Say if the next rank is behind a router."""
        right = (world.rank + 1) % world.size
        networks = [str(each) for each in own_networks()]
        why = behind_router(world.members[right], world.addresses[right], networks)
        if why and why not in self._warned:
            self._warned.add(why)
            said(why)

    def _has_files(self, world: TrainerWorld) -> bool:
        """Whether what rank 0 has saved is here, from which this rank's script may go on, too. As
        long as it isn't this rank has no port, so the others wait."""
        if not self._asked or have_come(self._run.output_dir, self._asked):
            self._asked = 0
        elif time.monotonic() - self._entered >= _FILES_SECONDS:
            self._asked = 0
            late = f"rank 0's newest files are not here after {_FILES_SECONDS:g} s"
            said(f"{late}: what begins now as rank {world.rank} finds older ones")
        return not self._asked

    def _claim(self, world: TrainerWorld) -> None:
        """Have a port for the script; where there is none, the others wait."""
        try:
            self._port = claim_port(world.addresses[world.rank])
        except OperationError as error:
            said(str(error))
            return
        self._told = replace(self._told, port=self._port.port)

    # --- orders -----------------------------------------------------------------------------------

    def _obey(self, order: p.Order) -> None:
        here = self._told.world
        match order:
            case p.NotYet() | p.GoOn(_):
                pass
            case p.Begin(world):
                if world == here and self._in_world():
                    self._begin(order)
            case p.Again(world, rank, why):
                if (world, rank) == (here, self._told.rank):
                    self._accuse(why)
            case p.LeaveOut(world, rank, reason):
                if (world, rank) == (here, self._told.rank):
                    self._drop()
                    with self._seat.driver.turn() as protocol:
                        protocol.refuse(reason, unfit=True, looping=True)
            case p.GiveUp(world, reason):
                if world == here and self._told.rank == 0:
                    self._seat.refuse(reason)
            case p.Finish():
                self._run.stop("its script has ended on every rank")
            case _:
                assert_never(order)

    def _begin(self, order: p.Begin) -> None:
        self._drop()
        world = self._world
        assert world is not None
        self._keep(world.rank)
        hosts = [f"{at}:{port}" for at, port in zip(world.addresses, order.ports, strict=True)]
        variables = {
            **os.environ,
            **Ring(world.rank, tuple(hosts)).variables(self._folder),
            RESTARTS: str(order.restarts),
            OUTPUTS: str(self._run.output_dir),
            WORK: str(self._folder),
        }
        job = self._spec.job
        python = job.python or sys.executable
        args = [string.Template(word).safe_substitute(variables) for word in job.args]
        command = [python, str(self._folder / job.entrypoint), *args]
        begins = f"begins anew, time {order.restarts}" if order.restarts else "begins"
        said(f"the script {begins}, as rank {world.rank} of {world.size}")
        self._seat.driver.note({"restarts": order.restarts})
        try:
            self._script = Script(command, self._folder, variables)
        except OSError as error:
            self._told = replace(self._told, ring=order.world)
            why = f"{python} can't be started: {error.strerror}"
            self._failed(127, not_started(job.python, error, "") if job.python else why)
            return
        self._told = replace(
            self._told, ring=order.world, state="running", failed_in=None, text="", status=None
        )

    def _keep(self, rank: int) -> None:
        """Have the files that were kept as rank 0 had them; as rank 0, keep what it writes."""
        settings, output = self._settings, self._run.output_dir
        keeper = Keeper(self._folder, output, settings.keep, settings.keep_last)
        called = KeptFiles(self._folder, output / FOLDER / CALLS)
        try:
            restored = [] if self._is_source else keeper.restore(called)
        except OSError as error:
            restored = []
            said(f"files that were kept can't be put back: {error}")
        if restored:
            said(f"it has the files that were kept: {', '.join(restored)}")
        self._is_source = rank == 0
        if rank == 0 and settings.keep:
            self._keeping = Keeping(keeper, said)

    def _drop(self) -> None:
        if self._script is not None:
            self._script.end()
            self._script = None
        if self._keeping is not None:
            self._keeping.close()
            self._keeping = None

    # --- the script -------------------------------------------------------------------------------

    def _stay(self, seconds: float) -> None:
        """Watch the script for so long, or until there is news."""
        until = time.monotonic() + seconds
        while self._in_world():
            if self._look():
                return
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _LOOK_SECONDS))

    def _look(self) -> bool:
        """Whether the script has ended, or hangs, which nobody knows yet.

        In a world that has just been formed the script may be about to begin anew because of
        another rank: what has gone wrong with it until then doesn't end this world, too.
        """
        script = self._script
        if script is None or self._told.state != "running":
            return False
        status = script.status()
        if status is not None:
            if status == 0 and not self._is_kept():
                return False  # look again
            script.ended()
            self._script = None
            self._told = replace(self._told, ran_seconds=script.ran_seconds, status=status)
            if status == 0:
                self._told = replace(self._told, state="done")
            else:
                self._failed(status, script.tail()[-_TEXT_LETTERS:])
                if status < 0 and self._goes_on and not self._told.follows:
                    self._accuse()  # what kills from outside is no doing of the script's
            return True
        if self._goes_on and (why := self._hangs(script)):
            self._drop()
            self._told = replace(self._told, ran_seconds=script.ran_seconds)
            self._failed(None, why)
            self._accuse()
            return True
        return False

    def _is_kept(self) -> bool:
        """What a script that has ended has left."""
        return self._keeping is None or self._keeping.ended()

    def _hangs(self, script: Script) -> str:
        if script.stopped_seconds() >= STOPPED_SECONDS:
            return f"it was stopped (SIGSTOP) for {STOPPED_SECONDS:g} s"
        if script.idle_seconds() >= self._settings.hang_seconds:
            return (
                f"it has printed nothing and taken no CPU time for {self._settings.hang_seconds:g}"
                " s (plain.hang_seconds)"
            )
        return ""

    def _failed(self, status: int | None, text: str) -> None:
        found = of_text(text)
        self._told = replace(
            self._told,
            state="failed",
            failed_in=self._told.world,
            status=status,
            follows=found is not None and found[0] == "link_lost",
            text=text,
        )

    def _accuse(self, why: str = "") -> None:
        """The script's failure here ends the world, so that it begins anew everywhere."""
        told = self._told
        fault: ScriptFault = "hang" if told.status is None else "reducer_lost"
        evidence = f"the script {p.how(told.status)}"
        if told.status is None:
            evidence = f"the script hangs: {told.text}"
        elif told.status > 0 and (said := last_words(told.text)):
            evidence += f": {said}"
        if why:
            evidence = f"{why}: {evidence}"
        with self._seat.driver.turn() as protocol:
            protocol.lose_script(fault, evidence)


def remember(state: Namespace, history: p.ScriptHistory) -> None:
    """As all ranks have it. Who was left out is told beside it, and only once somebody was: a
    trainer of the release before keeps that as it is, and the digests of all ranks stay alike."""
    plain = to_plain(history)
    left = plain.pop("left")
    state.history = plain
    if left:
        state.left = left
    elif "left" in state:
        del state.left


def remembered(state: Namespace) -> p.ScriptHistory:
    """What was told last."""
    left = {"left": state.left} if "left" in state else {}
    found: p.ScriptHistory = from_plain(p.ScriptHistory, {**state.history, **left})
    return found


def _named(tag: Tag) -> tuple[int, str, str]:
    return tag.counter, tag.leader, tag.nonce
