"""The commands that change something and are short: each reads its options, asks a daemon, and
shows the answer."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from elasticd.cli import asking, nodes
from elasticd.cli.asking import Yes
from elasticd.cli.options import Home, Job, Json, Node, common
from elasticd.cli.screen import asking_again, print_json, say, warn
from elasticd.core.words.codec import to_plain
from elasticd.core.words.requests.jobs import (
    CancelJob,
    ChangeOfJob,
    ForgetJob,
    JobChanged,
    PauseJob,
    ResumeJob,
)
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.core.words.requests.nodes import ChangeOfNode, UndrainNode
from elasticd.errors import OperationError
from elasticd.types import JobId, NodeId


def submit_(
    context: typer.Context,
    job: Annotated[
        Path,
        typer.Argument(
            metavar="JOB.toml",
            help="The job's description, a folder with a job.toml, or mlx-lm's lora.yaml.",
        ),
    ],
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="TABLE.KEY=VALUE",
            help="Change a setting of the file; may be given several times.",
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Show progress until the job ends; exit 1 if it fails, 3 if no daemon answers for"
            " 30 s.",
        ),
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Ship the folder of JOB.toml to the cluster, queue the job and print its id.

    A file .elasticdignore in it, in the notation of .gitignore, names what is left out. Of a
    lora.yaml's folder only what it names is sent: its data, and its model if that lies inside.

    With mode = "plain" in [job] an MLX script with mx.distributed.init() runs unchanged, and begins
    anew on all nodes when a rank is lost: docs/plain.md.

    \b
    Examples:
      elasticctl submit job.toml --wait
      elasticctl submit job.toml --set job.mode=plain --set 'job.args=["--epochs", "3"]'
      elasticctl submit elasticd/examples/byte_lm
      elasticctl submit job.toml --set batch.global=16 --set job.name=small
      elasticctl submit lora.yaml --set recipe.config.model=/Users/Shared/models/qwen3
    """
    options = common(context, home, json)
    # Loaded only now, with all that a job can say: nothing else here needs it.
    from elasticd.cli import submit, watch

    spec, archive = submit.prepare(job, assignments or [])
    if what := submit.taken(job, spec):
        warn(what)
    submitted = options.client.queue(spec, archive, asking_again)
    name = submitted.id
    if submitted.warning:
        warn(f"{name} can't run now: {submitted.warning}; it waits, and others go ahead of it")
    if submitted.short:
        warn(
            f"{name}: {submitted.short}; if these are lost before another node has begun the job,"
            " submit it again"
        )
    if options.json:
        print_json({k: v for k, v in to_plain(submitted).items() if k == "id" or v})
    else:
        say(name, flush=True)
    if wait and (code := watch.wait(options.client, name, json=options.json)):
        raise typer.Exit(code)


def cancel(context: typer.Context, job: Job, home: Home = None, json: Json = False) -> None:
    """End a job; its checkpoints stay.

    Exit code: 1 if it had ended already, by itself or by another cancel; then nothing is changed.

    \b
    Example:
      elasticctl cancel byte-lm-1-k3f9
    """
    _control(context, CancelJob(JobId(job)), home, json)


def forget(
    context: typer.Context, job: Job, yes: Yes = False, home: Home = None, json: Json = False
) -> None:
    """Remove an ended job from the list, and all its files from all nodes.

    Its checkpoints, output files, logs, events and working folders go, and can't be brought back.
    Fetch what you want to keep first: 'elasticctl outputs', 'elasticctl checkpoints export',
    'elasticctl report'. Nodes that are away remove theirs when they are back. At a terminal it asks
    first. A script is not asked, nor who says --yes or --json.

    Of a job that no record names, as 'elasticctl disk' may say after a reset, this node removes
    what it has, if the id is given in full.

    \b
    Examples:
      elasticctl forget byte-lm-1-k3f9
      elasticctl forget byte-lm-1-k3f9 --yes
    """
    options = common(context, home, json)

    def jobs() -> list[str]:
        return [str(each["id"]) for each in options.client.request(ShowStatus())["jobs"]]

    question = "Remove {} and all its files from all nodes? Checkpoints and outputs go, too."
    asking.confirm(question, job, jobs, asks=not (yes or options.json))
    _control(context, ForgetJob(JobId(job)), home, json)


def _control(
    context: typer.Context, change: ChangeOfJob | ChangeOfNode, home: Path | None, json: bool
) -> None:
    options = common(context, home, json)
    changed = options.client.change(change, asking_again)
    if isinstance(changed, JobChanged) and changed.already:
        raise OperationError(
            f"{changed.id} has ended already ({changed.state}); nothing was changed"
        )
    if options.json:
        print_json({"id": changed.id, "state": changed.state})
    else:
        say(f"{changed.id} {changed.state}")


def pause(context: typer.Context, job: Job, home: Home = None, json: Json = False) -> None:
    """Stop a job at a committed and stored step, and end its processes.

    The command returns when every node has noted it. The job comes to rest a few steps later.
    Meanwhile the next job of the queue may run. Pausing a paused job changes nothing.

    \b
    Example:
      elasticctl pause byte-lm-1-k3f9
    """
    _control(context, PauseJob(JobId(job)), home, json)


def resume(context: typer.Context, job: Job, home: Home = None, json: Json = False) -> None:
    """Let a paused job go on from where it rests, with the same bits as if it had never paused.

    If another job trains by now, it waits for its turn in the queue.

    \b
    Example:
      elasticctl resume byte-lm-1-k3f9
    """
    _control(context, ResumeJob(JobId(job)), home, json)


def retry(
    context: typer.Context,
    job: Job,
    memory: Annotated[
        bool, typer.Option("--memory", help="Use as much memory again as job.toml says.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Try nodes again that a job goes on without, after what was wrong there is put right.

    A node is left out where the script fails, or builds another model or data than on the others
    ('elasticctl status JOB' shows which, and why). Without this command it is tried again when its
    daemon is started, and after pauses that grow from a minute to an hour.

    A job that ran out of memory gives up what it can: spare trainers, kept activations, then half
    of its samples at once. It never asks for more again by itself. With --memory it does, from the
    next step on, and if memory runs out again, it gives it up again.

    \b
    Examples:
      elasticctl retry byte-lm-1-k3f9
      elasticctl retry byte-lm-1-k3f9 --memory
    """
    options = common(context, home, json)
    tried = options.client.retry(JobId(job), memory=memory, again=asking_again)
    if options.json:
        print_json(to_plain(tried))
        return
    if tried.relief:
        say(f"{tried.id}: it uses as much memory again as job.toml says")
    elif memory:
        say(f"{tried.id}: nothing is given up for want of memory")
    if tried.nodes:
        say(f"{tried.id}: {', '.join(tried.nodes)} will be tried again")
    elif not memory:
        say(f"{tried.id}: no node is left out")


def drain(
    context: typer.Context,
    node: Node,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return once the node may be switched off.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Let a node's ranks leave between two steps, and place no job on it.

    Nothing trained is lost. The node stays a member of the cluster and keeps what it has stored. If
    the job can't do without a rank (world.min), that rank stays until another node can take its
    place. The command, and 'elasticctl nodes' later, say when the node may be switched off.

    \b
    Examples:
      elasticctl drain node-1
      elasticctl drain node-1 --wait
    """
    nodes.drain_node(common(context, home, json), node, wait=wait)


def undrain(context: typer.Context, node: Node, home: Home = None, json: Json = False) -> None:
    """Let a drained node take part again: running jobs grow onto it.

    \b
    Example:
      elasticctl undrain node-1
    """
    _control(context, UndrainNode(NodeId(node)), home, json)


def demo(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """Train a real model on a local cluster of 3 daemons, break it, and watch it heal.

    Then the same job runs undisturbed: both must end with the same bits. It takes a few minutes.

    \b
    Example:
      elasticctl demo
    """
    options = common(context, home, json)
    # Loaded only now: nothing else needs it, and every command should start quickly.
    show = importlib.import_module("elasticd.cli.demo")
    if code := show.run(options.given_home, options.json):
        raise typer.Exit(code)
