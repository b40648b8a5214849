"""The checks of nodes: one table, which judges what each says of itself beside what others say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low

from elasticd.counting import gibibytes
from elasticd.pasting import pasted
from elasticd.preflight.finding import ProbeFinding, ProbeVerdict, failed, passed, warned
from elasticd.preflight.power import (
    NOMINAL,
    THERMAL,
    firewall_is_off,
    let_in,
    low_power,
    stays_awake,
)
from elasticd.preflight.seen import NodeFacts, NodeSeen, NodeUnseen
from elasticd.preflight.subnets import islands, network

LEAST_MLX = (0, 32, 4)
LEAST_FREE_BYTES, LOW_FREE_BYTES = 1 << 30, 10 << 30
LEAST_FREE_FILES = 1000
"""A job's folder alone may have as many."""
SKEW_SECONDS, MOST_SKEW_SECONDS = 2.0, 60.0
LOW_BATTERY = 20.0
"""Per cent."""
SET_CLOCK = (
    "Let that machine set its clock by the network: System Settings > General > Date & Time,"
    " or 'timedatectl set-ntp true' on Linux"
)
ANSWERS, ENERGY, HEAT = "answers", "energy", "heat"
SLOWING = (ENERGY, HEAT)
"""What may be why a node computes slowly."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """``where``: a node, or a link between two."""

    check: str
    where: str
    verdict: ProbeVerdict
    value: str
    cure: str = ""

    @staticmethod
    def of(check: str, where: str, found: ProbeFinding) -> CheckResult:
        return CheckResult(check, where, found.verdict, found.value, found.cure)


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """``judge`` is given one node, and all of them."""

    name: str
    judge: Callable[[NodeSeen, Sequence[NodeSeen]], ProbeFinding]


def answers(seen: Sequence[NodeSeen], unseen: Sequence[NodeUnseen]) -> Iterator[CheckResult]:
    """Which nodes tell what they are."""
    asked: list[NodeSeen | NodeUnseen] = [*seen, *unseen]
    for each in asked:
        yield CheckResult.of(ANSWERS, each.node, _answers(each))


def judged(seen: Sequence[NodeSeen], only: Collection[str] = ()) -> Iterator[CheckResult]:
    """All checks of all nodes, check by check; or ``only`` those."""
    for check in NODE_CHECKS:
        for each in seen if not only or check.name in only else ():
            yield CheckResult.of(check.name, each.node, check.judge(each, seen))


def numbers(version: str) -> tuple[int, ...]:
    """Of a version, to compare it with another; which build it is says nothing there."""
    release = version.partition("+")[0]
    return tuple(int(part) for part in release.split(".") if part.isdigit())


def _answers(each: NodeSeen | NodeUnseen) -> ProbeFinding:
    if isinstance(each, NodeSeen):
        return passed("it answers")
    if each.older:
        cure = "Upgrade elasticd there, and restart its daemon: 'elasticctl service restart'"
        return warned("it is of an earlier version, which can't be asked", cure)
    if each.away:
        cure = (
            "Start its daemon: 'elasticctl service start' there; or, if it is gone for good,"
            f" 'elasticctl nodes forget {each.node}'"
        )
        return warned("it is not here, so nothing of it was looked at", cure)
    cure = "Look at its daemon: 'elasticctl doctor' and 'elasticctl service status' there"
    return failed(f"it doesn't answer: {each.reason}", cure)


def _usual(values: Iterable[str]) -> str:
    """What most have; of several that are as frequent the newest."""
    counts = Counter(values)
    return max(counts, key=lambda each: (counts[each], numbers(each), each))


def _release(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    own, usual = each.facts.elasticd, _usual(other.facts.elasticd for other in all_)
    if own == usual:
        return passed(own)
    cure = f"Install elasticd {usual} there, and restart its daemon: 'elasticctl service restart'"
    if own.partition("+")[0] == usual.partition("+")[0]:
        # Which of two builds is the newer one their names don't say.
        cure = (
            "Install the same build of elasticd on all nodes, and restart the daemons that ran"
            " another: 'elasticctl service restart'"
        )
    return warned(f"{own}, where most have {usual}", cure)


def _python(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    own = each.facts.python
    usual = _usual(_minor(other.facts.python) for other in all_)
    if _minor(own) == usual:
        return passed(own)
    cure = (
        f"Install elasticd there with Python {usual}: scripts may compute something else in {own}"
    )
    return warned(f"{own}, where most have {usual}", cure)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _mlx(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    own, usual = each.facts.mlx, _usual(other.facts.mlx for other in all_)
    if not own:
        return failed("MLX is not installed", "Install it: pip install -U mlx")
    if numbers(own) < LEAST_MLX:
        least = ".".join(map(str, LEAST_MLX))
        return failed(own, f"Install MLX {least} or newer: pip install -U mlx")
    if own != usual:
        cure = (
            f"Install the same everywhere, as another computes other bits: pip install mlx=={usual}"
        )
        return failed(f"{own}, where most have {usual}", cure)
    return passed(own)


def _system(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    usual = _usual(_kind(other.facts) for other in all_)
    own = f"{each.facts.system} {each.facts.release}"
    if _kind(each.facts) == usual:
        return passed(own)
    cure = (
        "Nothing has to be done if different bits are no matter ('status' says exact: false)."
        " Else have the same system everywhere, or drain that node"
    )
    return warned(f"{own}, where most have {usual}", cure)


def _kind(facts: NodeFacts) -> str:
    """A system's name and first number: within it the same bits are computed, as far as known. Of
    Linux the kernel's number is no matter."""
    number = f" {numbers(facts.release)[0]}" if _is_mac(facts) and numbers(facts.release) else ""
    return f"{facts.system}{number} ({facts.machine})"


def _is_mac(facts: NodeFacts) -> bool:
    return facts.system == "macOS"


def _chip(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    usual = _usual(_brand(other.facts.chip) for other in all_)
    own = each.facts.chip or "not known"
    if _brand(each.facts.chip) == usual:
        return passed(own)
    cure = (
        "Nothing has to be done: the bits of another chip may differ, which is noticed when a job"
        " starts, and 'status' says it. [world] require_exact = true refuses such a job"
    )
    return warned(f"{own}, where most have {usual or 'another'}", cure)


def _brand(chip: str) -> str:
    return chip.partition(",")[0]


def _memory(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    facts = each.facts
    if facts.memory_low:
        return failed(facts.memory_low, "End what else takes memory on it, or drain that node")
    if facts.memory_warned:
        cure = (
            "If it stays so, end what else takes memory on it: no spare trainer is kept meanwhile"
        )
        return warned(facts.memory_warned, cure)
    return passed(f"{gibibytes(facts.memory_bytes)}, no pressure")


def _disk(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    free = each.facts.free_bytes
    cure = (
        "Free space on the disk of its home: 'elasticctl disk' says what takes it,"
        " 'elasticctl forget JOB' and 'elasticctl checkpoints prune JOB' remove"
    )
    value = f"{gibibytes(free)} free"
    files = each.facts.free_files
    if files is not None and files < LEAST_FREE_FILES:
        return failed(f"no more files, or few ({files}), though {value}", _fewer_files(each.facts))
    if free < LEAST_FREE_BYTES:
        return failed(value, cure)
    return warned(value, cure) if free < LOW_FREE_BYTES else passed(value)


def _fewer_files(facts: NodeFacts) -> str:
    return (
        f"Remove many small files on the disk of {facts.home or 'its home'}, whatever their size:"
        " 'df -i' counts them, 'elasticctl forget JOB' removes a job's"
    )


def _clock(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    ahead = each.skew_seconds - median_low(other.skew_seconds for other in all_)
    if abs(ahead) < SKEW_SECONDS:
        return passed("as the others', to 2 s")
    value = f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the others"
    return (warned if abs(ahead) < MOST_SKEW_SECONDS else failed)(value, SET_CLOCK)


def _power(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    charge = each.facts.battery
    if charge is None:
        return passed("no battery")
    if each.facts.plugged:
        return passed(f"plugged in, battery {charge:.0f} %")
    value = f"on battery, {charge:.0f} %"
    cure = "Plug it in: on battery it is slower, and ends when that is empty"
    return failed(value, cure) if charge < LOW_BATTERY else warned(value, cure)


def _sleep(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    facts = each.facts
    if not _is_mac(facts):
        return passed("not asked: no Mac")
    if not facts.power:
        return warned("pmset tells nothing", "Run 'pmset -g' on it and see what is wrong with it")
    portable = facts.battery is not None
    return stays_awake(facts.power, "On it: ", portable=portable, locked=facts.locked)


def _energy(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    if not _is_mac(each.facts):
        return passed("not asked: no Mac")
    if name := low_power(each.facts.power):
        cure = (
            f"On it: {pasted('sudo pmset -a', name, '0')}. Or set it in System Settings > Battery,"
            " or > Energy of a Mac without one"
        )
        return warned(f"Low Power Mode is on ({name} 1): its GPU may be half as fast", cure)
    return passed("Low Power Mode is off" if each.facts.power else "pmset tells nothing")


def _heat(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    facts = each.facts
    if not _is_mac(facts):
        return passed("not asked: no Mac")
    if not facts.thermal:
        command = " ".join(THERMAL)
        return warned("macOS doesn't say", f"Run '{command}' on it and see what is wrong with it")
    if facts.thermal == NOMINAL:
        return passed(facts.thermal)
    cure = "Give it air, let it cool down, and end what else computes on it"
    return warned(f"{facts.thermal}: it is hot, and slows itself down", cure)


def _firewall(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    facts = each.facts
    if facts.walled:
        address, why, cure = (*facts.walled[0].split(": ", 2), "", "")[:3]
        cure = cure[:1].upper() + cure[1:]
        return failed(f"it finds no route to {address}: {why}", cure or "See to its firewall")
    if not _is_mac(facts):
        return passed("not asked: no Mac")
    if not facts.firewall:
        return warned("it says nothing", "See its System Settings > Network > Firewall")
    if firewall_is_off(facts.firewall):
        return passed(facts.firewall)
    return warned(facts.firewall, let_in(facts.program, facts.firewall))


def _subnet(each: NodeSeen, all_: Sequence[NodeSeen]) -> ProbeFinding:
    own = {network(address) for address in each.facts.addresses}
    if not own:
        return passed("not told")
    told = {other.node: other.facts.addresses for other in all_ if other.facts.addresses}
    most = islands(told)[0]
    if each.node in most:
        return passed(", ".join(sorted(own)))
    usual = _usual(network(address) for node in most for address in told[node])
    cure = (
        f"Give it an address in {usual}, by cable or by System Settings > Network; if it has one,"
        " have its daemon tell that: 'elasticctl configure --advertise ADDRESS' there. What goes by"
        " a router is slow, and a router may let the ranks' ports through to nobody"
    )
    return warned(f"{', '.join(each.facts.addresses)}, where most are in {usual}", cure)


NODE_CHECKS = (
    NodeCheck("elasticd", _release),
    NodeCheck("python", _python),
    NodeCheck("mlx", _mlx),
    NodeCheck("system", _system),
    NodeCheck("chip", _chip),
    NodeCheck("memory", _memory),
    NodeCheck("disk", _disk),
    NodeCheck("clock", _clock),
    NodeCheck("power", _power),
    NodeCheck("sleep", _sleep),
    NodeCheck(ENERGY, _energy),
    NodeCheck(HEAT, _heat),
    NodeCheck("firewall", _firewall),
    NodeCheck("subnet", _subnet),
)
