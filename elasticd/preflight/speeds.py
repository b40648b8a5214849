"""The check of how fast nodes compute: a test of matrix products, and what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from elasticd.preflight.finding import ProbeFinding, failed, passed, warned
from elasticd.preflight.nodes import CheckResult
from elasticd.preflight.seen import NodeSeen
from elasticd.types import NodeId

SPEED = "speed"
SIDE = 1024
"""Of the square matrices that are multiplied."""
LEAST_SECONDS, USUAL_SECONDS, MOST_SECONDS = 1.0, 5.0, 60.0
_FLOPS = 2 * SIDE**3
_OF_FASTEST = 0.5
_SLOWED, _SPREAD = 0.15, 0.3
_LEAST_TIMES = 3
_JUST_NOW_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class SpeedSeen:
    """One node's, as it travels and as it is kept there.

    Attributes:
        device: what MLX computes with by default: "gpu" or "cpu".
        spread: between the slow and the fast tenth of the products, as a share of the usual speed.
        slowed: by which share the last third of the time was slower than the first.
        unix: when it was measured.
        trains: it was not measured now, since this job has processes there.
        error: why there is nothing.
    """

    node: NodeId
    gflops: float = 0.0
    device: str = ""
    spread: float = 0.0
    slowed: float = 0.0
    unix: float = 0.0
    trains: str = ""
    error: str = ""


def speed_of(node: NodeId, device: str, seconds: Sequence[float], unix: float) -> SpeedSeen:
    """``seconds``: of each product, in the order in which they were made."""
    if len(seconds) < _LEAST_TIMES or min(seconds) <= 0:
        return SpeedSeen(node, error="it told too few times, or such as can't be")
    rates = [_FLOPS / each / 1e9 for each in seconds]
    usual, third = median(rates), len(rates) // 3
    tenths = quantiles(rates, n=10, method="inclusive")
    slowed = 1 - median(rates[-third:]) / median(rates[:third])
    return SpeedSeen(node, usual, device, (tenths[-1] - tenths[0]) / usual, slowed, unix)


def machines(seen: Sequence[NodeSeen]) -> list[list[NodeId]]:
    """All nodes, in turns in which no two are on one machine, as their addresses tell: they would
    measure each other."""
    found: list[tuple[set[str], list[NodeId]]] = []
    for each in seen:
        own = {address.partition("/")[0] for address in each.facts.addresses}
        for addresses, nodes in found:
            if not own & addresses:
                addresses |= own
                nodes.append(each.node)
                break
        else:
            found.append((own, [each.node]))
    return [nodes for _, nodes in found]


def judged_speeds(speeds: Sequence[SpeedSeen], now: float) -> list[CheckResult]:
    """Each of them, compared with the others. ``now``: a Unix time."""
    fastest = max((each.gflops for each in speeds), default=0.0)
    return [CheckResult.of(SPEED, each.node, _speed(each, fastest, now)) for each in speeds]


def _speed(each: SpeedSeen, fastest: float, now: float) -> ProbeFinding:
    if each.error:
        cure = f"See there whether MLX computes: 'elasticctl doctor' on {each.node}"
        return failed(each.error, cure)
    if not each.gflops:
        cure = "Ask again when it has ended, or say --busy: for a moment that slows the job down"
        return warned(f"not measured: {each.trains} runs there", cure)
    value = f"{each.gflops:.0f} GFLOPS ({each.device}), spread {each.spread:.0%}{_when(each, now)}"
    if each.slowed > _SLOWED:
        return warned(
            f"{value}, at the end {each.slowed:.0%} slower than at the beginning",
            "If it gets hot: give it air, and more distance to what is warm. Else end there what"
            " has begun to compute. Then measure for longer: elasticctl calibrate --seconds 60",
        )
    if each.gflops < fastest * _OF_FASTEST:
        return warned(
            f"{value}, where the fastest has {fastest:.0f}",
            "If its chip is slower nothing has to be done: its share of each step gets smaller."
            " Else switch Low Power Mode off there, plug it in, and end what else computes",
        )
    if each.spread > _SPREAD:
        cure = "End there what else computes, and measure again: elasticctl calibrate"
        return warned(f"{value}: it is not steady", cure)
    return passed(value)


def _when(each: SpeedSeen, now: float) -> str:
    ago = now - each.unix
    if ago < _JUST_NOW_SECONDS:
        return ""
    return f", {ago / 3600:.0f} h ago" if ago >= 3600 else f", {ago / 60:.0f} min ago"
