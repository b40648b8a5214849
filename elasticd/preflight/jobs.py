"""The checks of what one job needs: one table, which judges what each node has of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from elasticd.counting import counted, gibibytes
from elasticd.pasting import word
from elasticd.preflight.finding import ProbeFinding, failed, passed, warned
from elasticd.preflight.needs import JobNeeds, JobSeen, NamedPath, NeedsMet, PathFacts
from elasticd.preflight.nodes import CheckResult
from elasticd.types import NodeId

WORLD, WHOLE = "world", "the job"
"""A check of no node, and where it is said to be."""
_HIGH_SHARE = 0.75
"""Of the memory: with more little is left for activations, and macOS lends a GPU about so much."""
_SPARE_BYTES = 1 << 30
"""Of a disk."""
_SHOWN_FILES, _SHOWN_GROUPS = 3, 3
"""So many files that differ are named, and so many kinds of other content."""


@dataclass(frozen=True, slots=True)
class JobCheck:
    """``judge`` is given the needs, one node, and all that train; several findings: of each path.
    ``stores``: it is made of nodes that only store, too."""

    name: str
    about: str
    judge: Callable[[JobNeeds, JobSeen, Sequence[JobSeen]], Iterable[ProbeFinding]]
    stores: bool = False


def judged_job(needs: JobNeeds, seen: Sequence[JobSeen]) -> Iterator[CheckResult]:
    """All checks of the nodes that have to do with the job."""
    trains = [each for each in seen if each.trains]
    for each in seen:
        yield CheckResult.of("role", each.node, _role(each))
    for check in JOB_CHECKS:
        for each in seen:
            if each.trains or (check.stores and each.role == "store" and not each.draining):
                for found in check.judge(needs, each, trains):
                    yield CheckResult.of(check.name, each.node, found)


def judged_world(
    needs: JobNeeds, seen: Sequence[JobSeen], wrong: Collection[NodeId]
) -> Iterator[CheckResult]:
    """Whether the nodes are enough. ``wrong``: of these a check has failed."""
    able = [each for each in seen if each.trains and each.node not in wrong]
    out = sorted(each.node for each in seen if each.trains and each.node in wrong)
    value = f"{counted(len(able), 'node')} can train, world.min is {needs.least}"
    if len(able) < needs.least:
        without = f" (without {', '.join(out)}, of which a check fails)" if out else ""
        cure = "See to what fails above, add nodes, or let it begin with fewer: world.min"
        yield CheckResult.of(WORLD, WHOLE, failed(value + without, cure))
        return
    yield CheckResult.of(WORLD, WHOLE, passed(value))
    stores = sum(each.role != "witness" and not each.draining for each in seen)
    if stores < needs.replicas:
        short = f"{counted(stores, 'node')} can store, checkpoint.replicas is {needs.replicas}"
        cure = "Add nodes; until then a checkpoint is lost with fewer of them than you asked for"
        yield CheckResult.of(WORLD, WHOLE, warned(short, cure))


def _role(each: JobSeen) -> ProbeFinding:
    if each.draining:
        return warned("drained: no job runs there", f"elasticctl undrain {each.node}")
    return passed({"train": "it trains", "store": "it only stores"}.get(each.role, "it only votes"))


def _interpreter(needs: JobNeeds, each: JobSeen, all_: Sequence[JobSeen]) -> Iterator[ProbeFinding]:
    facts, named = each.facts, needs.python or "the daemon's own Python"
    if not facts.python:
        cure = f"Install it there at the same path ({named}), or name another as job.python"
        yield failed(facts.error or "it can't be started", cure)
        return
    value = f"Python {facts.python}, MLX {facts.mlx or 'not installed'}"
    if not facts.mlx and not needs.plain:
        python = needs.python or "python3"
        yield failed(
            value, f"Install it for that interpreter there: {word(python)} -m pip install mlx"
        )
        return
    usual = _most(_bits(other.facts) for other in all_ if other.facts.python)
    if _bits(facts) == usual:
        yield passed(value)
        return
    cure = f"Have the same in {named} on each node: another computes other bits"
    yield failed(f"{value}, where most have {usual}", cure)


def _bits(facts: NeedsMet) -> str:
    return f"Python {'.'.join(facts.python.split('.')[:2])}, MLX {facts.mlx or 'not installed'}"


def _most(values: Iterable[str]) -> str:
    counts = Counter(values)
    return max(counts, key=lambda each: (counts[each], each), default="")


def _packages(needs: JobNeeds, each: JobSeen, all_: Sequence[JobSeen]) -> Iterator[ProbeFinding]:
    facts = each.facts
    if not facts.python:
        return
    if facts.missing:
        with_ = needs.python or "the Python of elasticd"
        cure = f"Install there, with {with_}, the packages that bring {', '.join(facts.missing)}"
        yield failed(f"it doesn't find {', '.join(facts.missing)}", cure)
        return
    yield passed(", ".join(needs.modules) or "its script imports none")


def _variables(needs: JobNeeds, each: JobSeen, all_: Sequence[JobSeen]) -> Iterator[ProbeFinding]:
    if each.facts.lacks:
        name = ", ".join(needs.passed)
        cure = f"Write {name} into secrets.env of the daemon's home there, mode 600"
        yield failed(each.facts.lacks, cure)
        return
    yield passed(", ".join(needs.passed) or "job.pass_env names none")


def least_bytes(needs: JobNeeds, facts: NeedsMet) -> tuple[int, str]:
    """What training takes of memory at least, without activations, and from what that is told;
    0: nobody knows."""
    weights = facts.model_bytes
    if weights and needs.tuned == "full":
        moving = int(weights * _share(needs, facts))
        each = f"weights, gradients and {counted(needs.moments, 'moment')}"
        return weights + moving * (1 + needs.moments), f"{each} of {needs.model}"
    if weights:
        return weights, f"the weights of {needs.model}"
    return needs.state_bytes, f"the state that {needs.state_of} stored"


def _share(needs: JobNeeds, facts: NeedsMet) -> float:
    """Which part of a model is trained, as a lower bound where its layers aren't known."""
    if needs.layers <= 0:
        return 1.0
    return min(1.0, needs.layers / facts.model_layers) if facts.model_layers else 0.0


def _memory(needs: JobNeeds, each: JobSeen, all_: Sequence[JobSeen]) -> Iterator[ProbeFinding]:
    facts = each.facts
    if facts.model_error:
        cure = facts.model_cure or f"Put the model there: {needs.model}"
        yield failed(facts.model_error, cure)
        return
    least, whence = least_bytes(needs, facts)
    if not least:
        yield passed("not known: no recipe, and no earlier job of this name has stored a state")
        return
    if not facts.memory_bytes:
        yield passed("not known: the system does not say how much memory there is")
        return
    value = f"{gibibytes(least)} at least ({whence}) of {gibibytes(facts.memory_bytes)}"
    smaller = "a smaller or quantised model, or fine_tune_type lora" if needs.tuned else "less"
    cure = f"Train {smaller}, or drain that node: 'elasticctl drain {each.node}'"
    if least > facts.memory_bytes:
        yield failed(value, cure)
    elif least > facts.memory_bytes * _HIGH_SHARE:
        yield warned(f"{value}: little is left for activations", cure)
    elif least > facts.available_bytes:
        ends = "End there what else takes memory, before the job begins"
        yield warned(f"{value}, of which {gibibytes(facts.available_bytes)} are free now", ends)
    else:
        yield passed(value)


def _disk(needs: JobNeeds, each: JobSeen, all_: Sequence[JobSeen]) -> Iterator[ProbeFinding]:
    facts = each.facts
    state = needs.state_bytes
    if not state and needs.tuned == "full":
        moving = facts.model_bytes * _share(needs, facts)
        state = int(moving * (1 + needs.moments))
    holders = max(1, len(all_))
    stored = state * (needs.keep + 1) * min(needs.replicas, holders) // holders
    # Its files are there packed and unpacked, and each process works in a clone.
    wanted = 3 * needs.archive_bytes + stored
    value = f"it needs {gibibytes(wanted)}, {gibibytes(facts.free_bytes)} are free"
    value += "" if state else "; checkpoints, whose size is not known, come on top"
    cure = (
        "Free space on the disk of its home ('elasticctl disk' there says what takes it), or lower"
        " [checkpoint] keep or replicas in job.toml"
    )
    if wanted > facts.free_bytes:
        yield failed(value, cure)
    elif wanted > facts.free_bytes - _SPARE_BYTES:
        yield warned(value, cure)
    else:
        yield passed(value)


def _data(needs: JobNeeds, each: JobSeen, all_: Sequence[JobSeen]) -> Iterator[ProbeFinding]:
    if not needs.paths:
        yield passed("the job names no path outside of its folder")
    for at, (named, facts) in enumerate(zip(needs.paths, each.facts.paths, strict=False)):
        others = {o.node: o.facts.paths[at] for o in all_ if at < len(o.facts.paths)}
        yield _path(named, facts, others)


def _path(named: NamedPath, facts: PathFacts, others: Mapping[NodeId, PathFacts]) -> ProbeFinding:
    label = named.key if named.secret else f"{named.key}: {named.path}"
    if facts.error:
        cure = facts.cure or "Let the daemon's account read it there"
        return failed(f"{label}: {facts.error}", cure)
    if not facts.kind:
        late = facts.cure and f". {facts.cure}"
        if named.read or any(other.kind for other in others.values()):
            return failed(f"{label}: not there", f"Put the same there as on the other nodes{late}")
        cure = "If the script reads it put it on each node; if it makes it nothing has to be done"
        return warned(f"{label}: on no node", f"{cure}{late}")
    value = f"{label}: {_content(facts)}"
    if named.secret:  # what files are called there is nobody's business either
        others = {node: replace(other, by_file={}) for node, other in others.items()}
        facts = replace(facts, by_file={})
    differs = _other(facts, others) if facts.digest else ""
    if not differs:
        return passed(value)
    cure = "Copy it there from a node that has it right: ranks would train on different data"
    if named.read:
        return failed(f"{value}, {differs}", cure)
    only = f"{cure}. If the script only writes there nothing has to be done"
    return warned(f"{value}, {differs}", only)


def _other(facts: PathFacts, others: Mapping[NodeId, PathFacts]) -> str:
    """Than which nodes a node has something else; empty: it has what most have. Of equally many
    none is right, so each says so."""
    groups: dict[str, list[NodeId]] = {}
    for node in sorted(others):
        if others[node].digest:
            groups.setdefault(others[node].digest, []).append(node)
    sizes = sorted((len(nodes) for nodes in groups.values()), reverse=True)
    largest = [digest for digest, nodes in groups.items() if len(nodes) == sizes[0]]
    if largest == [facts.digest]:
        return ""
    rest = [digest for digest in largest if digest != facts.digest]
    there = "; ".join(_than(facts, others, groups[digest]) for digest in rest[:_SHOWN_GROUPS])
    return f"not what most have: {there}" if len(largest) == 1 else there


def _than(facts: PathFacts, others: Mapping[NodeId, PathFacts], nodes: Sequence[NodeId]) -> str:
    theirs, own = others[nodes[0]].by_file, facts.by_file
    names = sorted(name for name in {*own, *theirs} if own.get(name) != theirs.get(name))
    which = f" in {', '.join(names[:_SHOWN_FILES])}" if names else ""
    if len(names) > _SHOWN_FILES:
        which += f" and {len(names) - _SHOWN_FILES} more"
    return f"it differs from {', '.join(nodes)}{which}"


def _content(facts: PathFacts) -> str:
    if facts.kind == "other":
        return "neither file nor folder"
    size = f"{facts.bytes / 1e6:.1f} MB" if facts.bytes >= 1e5 else f"{facts.bytes} bytes"
    return f"{counted(facts.files, 'file')}, {size}" if facts.kind == "folder" else size


JOB_CHECKS = (
    JobCheck("interpreter", "its interpreter starts, and is alike everywhere", _interpreter),
    JobCheck("packages", "what its script imports is found", _packages),
    JobCheck("variables", "the daemon has the variables of job.pass_env", _variables),
    JobCheck("model", "memory is enough for the model", _memory),
    JobCheck("room", "the disk is enough for its files and checkpoints", _disk, stores=True),
    JobCheck("data", "the paths that it names are alike everywhere", _data),
)
