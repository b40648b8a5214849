"""The check of links: how each end of one reaches the other, as the ranks of a ring would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from elasticd.preflight.finding import ProbeFinding, failed, passed, warned
from elasticd.preflight.nodes import CheckResult
from elasticd.types import NodeId

LINK = "link"
SLOW_BYTES, LEAST_BYTES = 90e6, 5e6
"""A second. A cable of 1 Gbit/s carries 117e6."""
_OF_MEDIAN = 1 / 3
LATE_SECONDS, MOST_SECONDS = 0.002, 0.1
MAX_ROUNDS = 32
"""So many others each node measures its links to at most."""

Pair = tuple[NodeId, NodeId]


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """How ``node`` reaches ``peer`` at one of its addresses, as it travels."""

    node: NodeId
    peer: NodeId
    host: str = ""
    """Empty: no address was tried."""
    bytes_per_second: float = 0.0
    round_trip_seconds: float = 0.0
    """The median of some."""
    error: str = ""
    """Why it doesn't."""
    walled: str = ""
    """The cure, where the machine of ``node`` itself lets nothing out."""
    trains: str = ""
    """It was not measured, since this job has processes at one end."""

    @property
    def where(self) -> str:
        return f"{self.node} > {self.peer}"


def rounds(nodes: Sequence[NodeId], most: int = MAX_ROUNDS) -> list[list[Pair]]:
    """All pairs, in rounds in which each node has one partner at most: who measures two links at
    once measures neither. The circle method of tournaments."""
    circle: list[NodeId | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    found: list[list[Pair]] = []
    for _ in range(min(len(circle) - 1, most)):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        found.append([(one, other) for one, other in pairs if one and other])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return found


def judged_links(links: Sequence[LinkSeen]) -> list[CheckResult]:
    """Each of them, compared with the others."""
    speeds = [each.bytes_per_second for each in links if not (each.error or each.trains)]
    usual = median(speeds) if speeds else 0.0
    return [CheckResult.of(LINK, each.where, _link(each, usual)) for each in links]


def _link(link: LinkSeen, usual: float) -> ProbeFinding:
    if link.trains:
        cure = "Ask again when it has ended, or say --busy: for a moment that slows the job down"
        return warned(f"not measured: {link.trains} runs there", cure)
    at = f"{link.host}: " if link.host else ""
    if link.error:
        return failed(f"{at}{link.error}", link.walled or _unreached(link))
    value = f"{at}{_speed(link.bytes_per_second)}, {link.round_trip_seconds * 1000:.2f} ms"
    verdicts = [_bandwidth(link, value, usual), _latency(link, value)]
    return next(
        (each for want in ("fail", "warn") for each in verdicts if each.verdict == want),
        verdicts[0],
    )


def _unreached(link: LinkSeen) -> str:
    if not link.host:
        return f"Look at both daemons: 'elasticctl doctor' on {link.node} and on {link.peer}"
    return (
        f"See that {link.peer} is on, and its cable in. Then let {link.node} in by the firewall of"
        f" {link.peer}, at the TCP ports 20000 to 31999: there the ranks of a ring listen"
    )


def _bandwidth(link: LinkSeen, value: str, usual: float) -> ProbeFinding:
    speed = link.bytes_per_second
    cure = (
        f"See how {link.node} and {link.peer} are connected: a cable and no Wi-Fi, of 1 Gbit/s or"
        " more at each plug and switch ('elasticctl nodes' lists the addresses)"
    )
    if speed < LEAST_BYTES:
        return failed(value, cure)
    if speed < SLOW_BYTES:
        return warned(value, cure)
    if speed < usual * _OF_MEDIAN:
        return warned(f"{value}, where half of the links carry {_speed(usual)}", cure)
    return passed(value)


def _latency(link: LinkSeen, value: str) -> ProbeFinding:
    cure = (
        f"Connect {link.node} and {link.peer} by a cable in one network; if they are, see what"
        " keeps one of them busy"
    )
    if link.round_trip_seconds > MOST_SECONDS:
        return failed(value, cure)
    return warned(value, cure) if link.round_trip_seconds > LATE_SECONDS else passed(value)


def _speed(count: float) -> str:
    return f"{count / 1e6:.0f} MB/s"
