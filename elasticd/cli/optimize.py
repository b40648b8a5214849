"""``elasticctl optimize``: a job is tried with other settings on each node, and measured."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticd.archive import Archive
from elasticd.cli import screen, submit
from elasticd.cli.interrupts import Interrupts
from elasticd.cli.options import Home, Json, common, finite
from elasticd.cli.output import ENDED, print_table, shown_bytes
from elasticd.cli.preflight import Assignments
from elasticd.cli.screen import progress
from elasticd.cli.tables import Table
from elasticd.cli.trials.bynode import ClusterTrials
from elasticd.cli.trials.measured import (
    TURNS,
    Search,
    TrialComparison,
    as_told,
    of_recomputing,
    of_storing,
    verdict,
)
from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.counting import counted
from elasticd.errors import NoDaemonError, OperationError, UsageError
from elasticd.namedfile import refuse_no_file
from elasticd.pasting import quoted
from elasticd.preflight.trials import Setting, Trial
from elasticd.removing import remove_tree
from elasticd.settings.job import JobSpec, load
from elasticd.settings.recipe import is_config
from elasticd.settings.rules import one_line
from elasticd.settings.toml_change import with_keys
from elasticd.shell.children import environment
from elasticd.shell.children.trialrunning import TrialRunner

TRIALS = Table(
    ("trial", "s/step", "lowest", "highest", "steps", "memory", "why"),
    drops=("highest", "lowest", "steps"),
    text="why",
)
NODES = Table(("node", "s/step", "memory", "may use", "why"), drops=("may use",), text="why")
_STORE_EVERY = 2
_NOT_TRIED = (
    "reduction: not tried, as each node was alone. 'elasticctl status' of the job shows what exact"
    " sums send, and what fast ones would"
)

MeasuredSeconds = Annotated[
    float,
    typer.Option(
        "--seconds",
        min=0.1,
        max=3600.0,
        callback=finite,
        help="How long steps are measured in each trial.",
    ),
]
JobFile = Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job's file, or its folder.")]


def optimize(
    context: typer.Context,
    job: JobFile,
    assignments: Assignments = None,
    seconds: MeasuredSeconds = 10.0,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            min=1,
            help="So many nodes are to train it. Default: those of the cluster, or world.min.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write what was measured to be faster into JOB.toml.")
    ] = False,
    here: Annotated[
        bool, typer.Option("--here", help="Try it on this machine alone. No daemon is needed.")
    ] = False,
    busy: Annotated[
        bool, typer.Option("--busy", help="Try it also where a job runs, which slows that down.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Try a job on each node with other settings, and say what was measured.

    The script itself is run, again and again, for a few steps, on each node that trains, alone
    there, in folders that are removed afterwards. Nothing is submitted. Nodes on one machine take
    turns. A setting counts as its slowest node: a step takes as long as there, and what does not
    fit in the memory of one node is not suggested. If no daemon answers, or with --here, it is
    this machine that tries.

    It tries more samples at once (batch.micro), as long as that makes a step shorter and fits in
    memory, else fewer. The fastest and the present setting are then run in turns. Only what was
    faster each time, by 3 % at least, is suggested. Then it measures what recomputing activations
    would bring, and what a checkpoint costs.

    Other samples at once round otherwise: the job has other bits from then on. The figures are of
    these machines, and of how busy they were. What a script does behind its loop is not run; what
    it does before is, and may have effects outside of its folder.

    --write changes batch.micro in JOB.toml if another one was faster, and nothing else: comments
    stay. Ctrl-C ends the trial that runs; nothing is changed then.

    Exit code: 1 if the job fails with the settings that it has, for another reason than memory.

    \b
    Examples:
      elasticctl optimize job.toml
      elasticctl optimize job.toml --write
      elasticctl optimize job.toml --here --seconds 30 --nodes 4
    """
    options = common(context, home, json)
    path = job / "job.toml" if job.is_dir() else job
    if write:
        refuse_no_file(path)
    spec, packed = submit.prepare(job, assignments or [])
    _refuse(path, spec, write)
    cluster, interrupts = _cluster(options.client), Interrupts()
    with interrupts.in_force(), _folder(interrupts) as folder, progress(options.json) as tells:
        everywhere = ClusterTrials(options.client, spec, packed, seconds, busy, tells)
        alone = here or not cluster.members
        run = _alone(spec, packed, folder, seconds, tells) if alone else everywhere.run
        search = Search(spec.batch.global_, nodes or max(cluster.members, spec.world.min), run)
        found = _tried(search, spec)
    _TrialsShown(path, spec, search, found, cluster, None if alone else everywhere, here).say(
        options.json, write=write
    )


def _refuse(path: Path, spec: JobSpec, write: bool) -> None:
    if spec.plain is not None:
        raise UsageError(f'{path}: of a job of mode = "plain" only its script knows the batch')
    if write and is_config(path):
        raise UsageError(f"{path}: --write changes a job.toml, and this is a file of mlx-lm's")


def _alone(
    spec: JobSpec, packed: Archive, folder: Path, seconds: float, tells: Callable[[str], None]
) -> Callable[[Setting], Trial]:
    variables = environment.of_trainer(os.environ, "", spec.job, spec.job.pass_env)
    return TrialRunner(spec, packed.data, variables, folder, seconds, tells).run


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    """``compared``: ``best`` with the present setting, ``base``; None: that failed, or is the
    fastest."""

    base: Trial
    best: Trial
    compared: TrialComparison | None
    advice: tuple[str, ...]

    @property
    def micro(self) -> int:
        """That which is to be had: another one only if it was measured to be better."""
        return self.change or self.base.setting.micro

    @property
    def change(self) -> int | None:
        """The ``batch.micro`` that was measured to be better: the other one fails, or was slower
        each time."""
        better = self.compared is not None and self.compared.sure
        fits = not self.base.seconds and bool(self.best.seconds)
        return self.best.setting.micro if better or fits else None


def _tried(search: Search, spec: JobSpec) -> OptimizeResult:
    best = search.best(spec.batch.micro)
    base = search.trials[0]
    if not base.seconds and not (base.short and best.seconds):
        raise OperationError(f"the job can't be measured: {base.failed}")
    compared = None
    if base.seconds and best is not base:
        runs = {base.setting: [base], best.setting: [best]}
        for _ in range(TURNS - 1):
            for setting, trials in runs.items():
                trials.append(_run(search, setting))
        if all(trial.seconds for trials in runs.values() for trial in trials):
            compared = verdict(runs[base.setting], runs[best.setting])
    used = best if compared is None or compared.sure else base
    micro = used.setting.micro
    again = _run(search, Setting(micro, recompute=True))
    _run(search, used.setting)
    stores = _run(search, Setting(micro, store_every=_STORE_EVERY))
    _run(search, used.setting)
    plain = [each for each in search.trials if each.setting == used.setting and each.seconds]
    said = (of_recomputing(plain, again), of_storing(plain, stores, spec.checkpoint.every_steps))
    return OptimizeResult(base, best, compared, (*said, _NOT_TRIED))


def _run(search: Search, setting: Setting) -> Trial:
    search.trials.append(found := search.run(setting))
    return found


@dataclass(frozen=True, slots=True)
class _Cluster:
    """How many nodes there are that train, and the jobs that do; 0 and none if no daemon tells."""

    members: int = 0
    busy: tuple[str, ...] = ()


def _cluster(client: Client) -> _Cluster:
    try:
        status = client.request(ShowStatus(ended=0))
    except NoDaemonError:
        return _Cluster()
    going = [each for each in status.get("jobs") or () if each.get("state") not in ENDED]
    members = set((status.get("view") or {}).get("members") or ())
    training = [
        each
        for each in status.get("nodes") or ()
        if each.get("id") in members
        and each.get("state") != "draining"
        and "train" in (each.get("roles") or ("train",))
    ]
    ids = tuple(one_line(str(each.get("id"))) for each in going if each.get("ranks"))
    return _Cluster(len(training), ids)


@contextlib.contextmanager
def _folder(interrupts: Interrupts) -> Iterator[Path]:
    with interrupts.held():
        folder = Path(tempfile.mkdtemp(prefix="elasticd-optimize-"))
    try:
        yield folder
    finally:
        with interrupts.held(), contextlib.suppress(OSError):
            remove_tree(folder)


def _write(path: Path, micro: int) -> None:
    """Raises UsageError: the file can't be changed."""
    key = "batch.micro"
    try:
        text = with_keys(path.read_bytes().decode(), {key: micro})
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {key} = {micro} can't be written there: {error}") from None
    file = path.resolve()  # a link stays one
    try:
        with _beside(path, text) as tried:  # where its entrypoint is
            if load(tried).batch.micro != micro:
                raise UsageError(f"{path}: write {key} = {micro} by hand")
        with _beside(file, text) as made:
            shutil.copymode(file, made)
            made.replace(file)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; write {key} = {micro} by hand") from None


@contextlib.contextmanager
def _beside(path: Path, text: str) -> Iterator[Path]:
    """A file with that text, of a name that nobody else has, or knows before."""
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(fd, "wb") as made:
            made.write(text.encode())
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _said(found: OptimizeResult) -> str:
    """What comes of it for batch.micro."""
    now, best = found.base.setting.micro, found.best.setting.micro
    if not found.base.seconds:
        why = found.base.failed
        return f"batch.micro = {now} fails here ({why}); {best} runs, and was measured once"
    if found.compared is None:
        tried = "no other that was tried was faster" if best == now else "another one failed"
        return f"batch.micro = {now} stays: {tried}"
    if found.compared.sure:
        return f"batch.micro = {best}: {found.compared.said}"
    return f"batch.micro = {now} stays: with {best} {found.compared.said}"


@dataclass(frozen=True, slots=True)
class _TrialsShown:
    """What was found, as people and programs are told it. ``everywhere``: None: this machine alone
    has tried. ``here``: as it was told to."""

    path: Path
    spec: JobSpec
    search: Search
    found: OptimizeResult
    cluster: _Cluster
    everywhere: ClusterTrials | None
    here: bool

    def say(self, as_json: bool, *, write: bool) -> None:
        """With ``write`` the file is changed first."""
        change = self.found.change
        if write and change is not None:
            _write(self.path, change)
        if as_json:
            screen.print_json(self.told(written=write and change is not None))
        else:
            self.show(written=write)

    def told(self, *, written: bool) -> dict[str, Any]:
        found, search = self.found, self.search
        change = found.change
        return {
            "job": self.spec.job.name,
            "nodes": search.nodes,
            "limit_bytes": max(trial.limit_bytes for trial in search.trials),
            "trials": [as_told(trial) for trial in search.trials],
            "by_node": self._by_node(),
            "passed": search.passed,
            "suggestion": None if change is None else {"batch.micro": change},
            "gain": None if found.compared is None else round(found.compared.gain, 4),
            "said": _said(found),
            "advice": list(found.advice),
            "busy": list(self.cluster.busy),
            "written": written,
        }

    def _by_node(self) -> list[dict[str, Any]]:
        """What each node has told last of the setting that is suggested, or stays."""
        if self.everywhere is None:
            return []
        seen = self.everywhere.seen.get(Setting(self.found.micro), [])
        return [
            {
                "node": each.node,
                **({} if each.trial is None else as_told(each.trial)),
                "limit_bytes": 0 if each.trial is None else each.trial.limit_bytes,
                "older": each.older,
            }
            for each in seen
        ]

    def show(self, *, written: bool) -> None:
        search, found, path = self.search, self.found, self.path
        if self.cluster.busy:
            screen.say(f"{', '.join(self.cluster.busy)} trains: the figures are of busy machines.")
        if self.everywhere is None:
            why = "" if self.here else "no daemon answers, so "
            screen.say(f"{why}tried on this machine alone.".capitalize())
        least = counted(search.nodes, "node")
        batch = self.spec.batch.global_
        screen.say(f"{self.spec.job.name}: batches of {batch}, a grain for each of {least}")
        screen.say()
        print_table(TRIALS, [_row(trial) for trial in search.trials])
        screen.say()
        if rows := self._by_node():
            screen.say(f"With micro {found.micro}, node by node:")
            screen.say()
            print_table(NODES, [_node_row(each) for each in rows])
            screen.say()
        for text in search.passed:
            screen.say(f"not tried  {text}")
        for text in (_said(found), *found.advice):
            screen.say(f"{text}.")
        change = found.change
        if change is None:
            screen.say(f"{path} stays as it is." if written else "Nothing is to be changed.")
        elif written:
            screen.say(f"{path}: batch.micro = {change} is written.")
        else:
            again = quoted("elasticctl optimize", path, "--write")
            screen.say(f"{again} measures again and writes it.")


def _row(trial: Trial) -> tuple[object, ...]:
    told = as_told(trial)
    return (
        str(trial.setting),
        *(told[key] for key in ("seconds", "lowest", "highest", "steps")),
        shown_bytes(trial.peak_bytes) if trial.peak_bytes else None,
        trial.failed or None,
    )


def _node_row(each: Mapping[str, Any]) -> tuple[object, ...]:
    sizes = (each.get("peak_bytes") or 0, each["limit_bytes"])
    return (
        each["node"],
        each.get("seconds"),
        *(shown_bytes(size) if size else None for size in sizes),
        "an earlier version, which tries nothing" if each["older"] else None,
    )
