"""The check of a job's first step: do its gradients repeat on a node, and agree between nodes?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from elasticd.preflight.finding import ProbeFinding, failed, passed, warned
from elasticd.preflight.nodes import CheckResult
from elasticd.types import NodeId

GRADIENTS = "gradients"
AS_PRODUCT = (
    "look words up as a product: (ids[..., None] == mx.arange(words)).astype(table.dtype) @ table"
)
"""What has the same bits each time in place of an nn.Embedding."""
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class StepSeen:
    """What the first step of a job came to on a node, as it travels.

    Attributes:
        repeats: whether the gradient had the same bits whenever it was computed there.
        gradient: digest of the first grain's.
        update: digest of what the optimizer made of it.
        cpu_update: of what it made of it on the CPU; empty: it can't there, or its build doesn't
            tell.
        batch: digest of the samples of that grain.
        weights: digest of the parameters from which it was computed.
        trains: it was not tried, since this job has processes there.
        short: it was not tried, since memory is short: how short.
        error: why there is no first step.
    """

    node: NodeId
    repeats: bool = True
    gradient: str = ""
    update: str = ""
    cpu_update: str = ""
    batch: str = ""
    weights: str = ""
    trains: str = ""
    short: str = ""
    error: str = ""


def of_runs(runs: Sequence[StepSeen]) -> StepSeen:
    """Of one node's processes, one or more, that have each made the step."""
    first = runs[0]
    # What begins elsewhere ends elsewhere, and says nothing of how it is computed.
    alike = [each for each in runs if (each.batch, each.weights) == (first.batch, first.weights)]
    same = len({(e.gradient, e.update, e.cpu_update) for e in alike}) == 1
    return replace(first, repeats=same and all(each.repeats for each in runs))


def judged_steps(seen: Sequence[StepSeen], *, exact: bool) -> Iterator[CheckResult]:
    """Each of them, compared with the others. ``exact``: the job is to fail where bits differ."""
    made = [each for each in seen if each.gradient]
    for each in seen:
        yield CheckResult.of(GRADIENTS, each.node, _step(each, made, exact))


def _step(each: StepSeen, made: Sequence[StepSeen], exact: bool) -> ProbeFinding:
    if each.error:
        cure = "Mend the script, or see what that node has otherwise than the others"
        return failed(f"it makes no first step: {each.error}", cure)
    if each.trains:
        cure = "Ask again when it has ended, or say --busy: for a moment that slows the job down"
        return warned(f"not tried: {each.trains} runs there", cure)
    if each.short:
        return warned(f"not tried: {each.short}", "End there what else takes memory, and ask again")
    if each.batch != _most(other.batch for other in made):
        cure = "Give every node the same data, in the same order: else the job leaves that node out"
        return failed("its first samples are others than most have", cure)
    if not each.repeats:
        return _inexact(
            "its gradients have other bits each time",
            f"Where it looks words up in an nn.Embedding on Metal, {AS_PRODUCT}. What is drawn at"
            " random is to come from mx.random, random or numpy.random, which are seeded",
            exact,
        )
    if each.weights != _most(other.weights for other in made):
        cure = (
            "Nothing has to be done where the script makes them at random: all nodes take those of"
            " the first. To have them compared give mx.random.seed a number there"
        )
        return warned("it begins with other weights, so gradients can't be compared", cure)
    alike = [o for o in made if o.repeats and (o.batch, o.weights) == (each.batch, each.weights)]
    for what, own, usual in (
        ("gradients", each.gradient, _most(other.gradient for other in alike)),
        ("updates", each.update, _most(other.update for other in alike)),
    ):
        if own != usual:
            cure = (
                "Have the same MLX and the same kind of chip everywhere, or drain that node:"
                f" 'elasticctl drain {each.node}'"
            )
            value = f"its {what} have other bits than those of most nodes"
            if what == "updates" and _agree_on_cpu(alike):
                return warned(
                    f"{value}, and the same on the CPU: all nodes make them there",
                    "Nothing has to be done. With the same kind of chip everywhere updates are made"
                    " on the GPU",
                )
            return _inexact(value, cure, exact)
    return passed(f"they repeat: {each.gradient[:_SHOWN]}")


def _agree_on_cpu(alike: Sequence[StepSeen]) -> bool:
    """As the leader of the job will find (core/leading/exactness.py)."""
    gradients, updates = ({getattr(e, name) for e in alike} for name in ("gradient", "cpu_update"))
    return len(gradients) == len(updates) == 1 and "" not in updates


def _inexact(value: str, cure: str, exact: bool) -> ProbeFinding:
    if exact:
        return failed(f"{value}, and the job wants require_exact", cure)
    return warned(f"{value}: 'status' will say exact: no", f"{cure}. Or let it be so")


def _most(values: Iterable[str]) -> str:
    counts = Counter(values)
    return max(counts, key=lambda each: (counts[each], each), default="")
