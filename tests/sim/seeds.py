"""What a seed means: the cluster, the jobs and the faults that are drawn from it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from elasticd.types import NodeRole

from .chips import Chips
from .cluster import JobShape, Setup, Weather
from .longer import Longer
from .poison import Poison
from .releases import LADDER
from .strikes import (
    ABSENCE_KINDS,
    AGEING_KINDS,
    CHIPS,
    KINDS,
    LOADING_KINDS,
    RENEWAL_KINDS,
    ROT_KINDS,
    STRANGER_KINDS,
    TOLD_KINDS,
    VERSION_KINDS,
)

Bad = tuple[tuple[int, str, float], ...]
"""As Setup has them."""

_WEATHERS = (
    Weather(),
    Weather(lost=0.02, duplicated=0.02, reordered=0.02, delayed=0.02),
    Weather(lost=0.05, duplicated=0.05, reordered=0.05, delay_seconds=(0.002, 0.05)),
    Weather(lost=0.2, duplicated=0.1),
    Weather(duplicated=0.1, reordered=0.2, delay_seconds=(0.001, 1.5)),
    Weather(delayed=0.05, delay_seconds=(0.05, 1.0)),
)

_POISON = 0.04
"""The share of runs in which a step kills who computes it."""
_LONGER = 0.03
"""The share of runs with steps that take longer than others, or longer to be reduced."""
_LONG_CODE_SECONDS = 120.0
_FALLS = 0.02
"""Of those that are left: a step takes the machine down that computes it."""
_STRICT = 0.2
"""The share of clusters of which one side at most may train."""
_AGED = 0.1
"""The share of clusters that have lived before."""
_MIXED = 0.12
"""The share of clusters whose nodes run several versions."""
_TOLD = 0.06
"""The share of runs in which all daemons are killed shortly after it was told who diverged."""
_STRANGE = 0.1
"""The share of runs in which somebody connects to rings that come up."""
_CHOKES = 0.1
"""The share of runs in which a trainer hangs while it takes a state."""
_RENEWED = 0.06
"""The share of runs in which all nodes get another MLX."""
_ROTS = 0.1
"""The share of runs in which the newest checkpoints are rotten on all disks."""
_AWAY = 0.1
"""The share of runs in which a node is away for long, while nothing else happens."""
_MEASURED = 0.2
"""The share of clusters whose nodes have measured how fast they are."""
_LONG_ENDS = 0.15
"""Of the seeds: scripts that take seconds to end."""
_BREAKS = 0.4
"""Of scripts that all ask to stop, so many do it by leaving their loop."""
_UNLIKE = 0.08
"""The share of clusters whose machines are of two kinds."""
_BESIDE = 8
"""So many other kinds of faults at most strike such a cluster."""
_UNABLE = 0.08
"""The share of clusters that have a job which can't run, for good or for a while."""
_WIRED = 0.1
"""The share of clusters in which what is sent takes time."""
_SLOWLY_WRITTEN = 0.05
"""The share of clusters of which disks are slow all the time."""
_ROLES = 0.08
"""The share of clusters of which some nodes don't train."""
_MORE_ROLES = 0.2
"""The same of those clusters that have bad nodes, several versions, or a step that kills."""
_BY_RANK = 0.04
"""The share of scripts that keep otherwise on each rank what is to be the same."""


def _stopping(seed: int, shape: JobShape) -> JobShape:
    """Some scripts ask to stop."""
    chance = random.Random(f"stops {seed}")
    if chance.random() >= 0.2:
        return shape
    asks = chance.choice(("", "", "n0", "n1"))
    breaks = not asks and random.Random(f"breaks {seed}").random() < _BREAKS
    return replace(shape, stops_at=chance.randrange(1, shape.steps), stops_on=asks, breaks=breaks)


def _keeping(seed: int, shape: JobShape) -> JobShape:
    """Some scripts keep state where nobody looks. Who joins is left out then, so one must do."""
    chance = random.Random(f"keeps {seed}")
    if chance.random() >= 0.1:
        return shape
    return replace(shape, outside=chance.choice(("grain", "body")))


def _calling(seed: int, shape: JobShape) -> JobShape:
    """Some scripts call run.on_main."""
    chance = random.Random(f"calls {seed}")
    return shape if chance.random() >= 0.25 else replace(shape, calls=chance.choice((1, 2, 3)))


def _bad(seed: int, nodes: int, least: int) -> Bad:
    """Some nodes are not fit from the start; enough are."""
    chance = random.Random(f"bad {seed}")
    most = nodes - max(1, least)
    if chance.random() >= 0.15 or not most:
        return ()
    numbers = chance.sample(range(nodes), chance.randint(1, most))
    how = chance.choice(("unmounted", "other"))
    if how == "other":  # as many of these as of those, and nobody knows which are right
        numbers = numbers[: (nodes - 1) // 2]
    return tuple((n, how, chance.choice((1.0, 5.0, 100.0))) for n in sorted(numbers))


def _unable(seed: int, nodes: int, jobs: tuple[JobShape, ...]) -> dict[str, Any]:
    """Some clusters have one more job, which can't run: it needs more nodes than there are, or its
    files are gone."""
    chance = random.Random(f"unable {seed}")
    if chance.random() >= _UNABLE:
        return {}
    how, before = chance.choice(("many", "gone", "away")), chance.random() < 0.7
    one = JobShape(steps=6, world_min=nodes + 1 if how == "many" else 1)
    number = 1 if before else len(jobs) + 1
    until = chance.choice((1.0, 5.0, 100.0)) if how == "away" else 0.0
    lost = () if how == "many" else ((number, until),)
    return {"jobs": (one, *jobs) if before else (*jobs, one), "lost": lost}


def _chips(seed: int, nodes: int, share: float) -> Chips:
    """A ``share`` of clusters have machines of two kinds."""
    chance = random.Random(f"chips {seed}")
    if chance.random() >= share:
        return Chips()
    of_nodes, show = tuple(chance.choice((0, 0, 1)) for _ in range(nodes)), chance.random() < 0.6
    return Chips(of_nodes, show, random.Random(f"cpu {seed}").random() < 0.5)


def _roles(seed: int, nodes: int, shape: JobShape, bad: Bad, beside: bool) -> tuple[NodeRole, ...]:
    """Some clusters have nodes that don't train; enough do, and enough of these are not bad.
    ``beside``: it isn't the only thing that is odd about the cluster."""
    chance = random.Random(f"more roles {seed}" if beside else f"roles {seed}")
    least = max(1, shape.world_min)
    share, most = _MORE_ROLES if beside else _ROLES, nodes - least
    if chance.random() >= share or most < 1 or shape.outside or shape.by_rank:
        return ()
    idle = set(chance.sample(range(nodes), chance.randint(1, min(most, 2))))
    drawn: list[NodeRole] = [chance.choice(("store", "witness")) for _ in range(nodes)]
    spoilt = [how for n, how, _ in bad if n not in idle]
    fit = nodes - len(idle) - len(spoilt)
    if fit < least or ("other" in spoilt and len(spoilt) >= fit):
        return ()
    return tuple(role if n in idle else "train" for n, role in enumerate(drawn))


def _releases(seed: int, nodes: int, share: float) -> tuple[str, ...]:
    """Some clusters are upgraded: from one version to another, or some nodes have it already."""
    chance = random.Random(f"releases {seed}")
    if chance.random() >= share:
        return ()
    usual = chance.choice(LADDER).name
    if chance.random() < 0.5:
        return (usual,) * nodes
    return tuple(chance.choice(LADDER).name for _ in range(nodes))


def _poison(seed: int, nodes: int, steps: int) -> Poison | None:
    """In some runs a step kills, on all nodes or on one."""
    chance = random.Random(f"poison {seed}")
    if chance.random() >= _POISON:
        return _falls(seed, nodes, steps)
    everywhere = tuple(range(nodes))
    return Poison(
        step=chance.randint(1, steps),
        how=chance.choice(("kill", "crash", "hang", "memory")),
        nodes=chance.choice((everywhere, everywhere, (chance.randrange(nodes),))),
        short=chance.random() < 0.3,
        whole=chance.random() < 0.3,
    )


def _longer(seed: int, shape: JobShape, slowness: tuple[float, ...]) -> dict[str, Any]:
    """In some runs a few steps take far longer than those before, though no node takes for one of
    them what scripts may."""
    chance = random.Random(f"longer {seed}")
    if chance.random() >= _LONGER:
        return {}
    first = chance.randint(1, shape.steps)
    every = chance.choice((1, 3)) if first > shape.steps - 4 else shape.steps // 3
    reducing = chance.random() < 0.4
    parts = 1.0 if reducing else shape.grains * max((1.0, *slowness))
    longer = Longer(first, _LONG_CODE_SECONDS / parts * chance.uniform(0.03, 0.6), every, reducing)
    return {"longer": longer, "jobs": (replace(shape, user_code_seconds=_LONG_CODE_SECONDS),)}


def _falls(seed: int, nodes: int, steps: int) -> Poison | None:
    """In some runs a step takes machines down, all that compute it or one."""
    chance = random.Random(f"falls {seed}")
    if chance.random() >= _FALLS:
        return None
    everywhere = tuple(range(nodes))
    where = chance.choice((everywhere, everywhere, (chance.randrange(nodes),)))
    return Poison(chance.randint(1, steps), "node", where, whole=chance.random() < 0.3)


def _more(seed: int) -> tuple[str, ...]:
    """What strikes besides."""
    told = TOLD_KINDS if random.Random(f"told {seed}").random() < _TOLD else ()
    strange = STRANGER_KINDS if random.Random(f"strangers {seed}").random() < _STRANGE else ()
    chokes = LOADING_KINDS if random.Random(f"chokes {seed}").random() < _CHOKES else ()
    renewed = RENEWAL_KINDS if random.Random(f"renewed {seed}").random() < _RENEWED else ()
    rots = ROT_KINDS if random.Random(f"rots {seed}").random() < _ROTS else ()
    away = ABSENCE_KINDS if random.Random(f"away {seed}").random() < _AWAY else ()
    return (*told, *strange, *chokes, *renewed, *rots, *away)


def _measured(seed: int) -> bool:
    """Whether somebody has measured how fast nodes are."""
    return random.Random(f"measured {seed}").random() < _MEASURED


def _ends(seed: int) -> dict[str, Any]:
    """How long scripts take to end, if that is long."""
    long = random.Random(f"ends {seed}").random() < _LONG_ENDS
    return {"end_seconds": (0.01, 4.0)} if long else {}


def _wire(seed: int) -> float:
    """What sending a vector takes: up to about as long as a step's work."""
    chance = random.Random(f"wire {seed}")
    return chance.choice((0.002, 0.02, 0.1)) if chance.random() < _WIRED else 0.0


def _writes(seed: int, nodes: int) -> tuple[float, ...]:
    """Some clusters have slow disks."""
    chance = random.Random(f"writes {seed}")
    return slow_disks(chance, nodes) if chance.random() < _SLOWLY_WRITTEN else ()


def slow_disks(chance: random.Random, nodes: int) -> tuple[float, ...]:
    """What writing takes: up to many times the interval between checkpoints, on all nodes alike, or
    on each something else."""
    slowest = chance.choice((1.0, 4.0, 15.0))
    others = chance.choice(((slowest,), (0.0,), (0.0, 1.0, slowest)))
    first = chance.randrange(nodes)
    return tuple(slowest if n == first else chance.choice(others) for n in range(nodes))


def _durations(seed: int, nodes: int) -> dict[str, Any]:
    """Of what is slow in some clusters."""
    return {"wire_seconds": _wire(seed), "write_seconds": _writes(seed, nodes), **_ends(seed)}


def _diverging(seed: int, shape: JobShape) -> JobShape:
    policy = random.Random(f"divergence {seed}").choice(("restore", "restore", "continue"))
    return replace(shape, on_divergence=policy)


def _by_rank(seed: int, shape: JobShape) -> JobShape:
    return replace(shape, by_rank=random.Random(f"by rank {seed}").random() < _BY_RANK)


def _odd(setup: Setup) -> Setup:
    """Some have a job that can't run, some others steps that take longer."""
    seed, jobs = setup.seed, setup.jobs
    if more := _unable(seed, setup.nodes, jobs):
        return replace(setup, **more)
    # Jobs that somebody submits meanwhile have less time for a step.
    kinds = tuple(kind for kind in setup.fault_kinds if kind != "submit")
    more = _longer(seed, jobs[0], setup.slowness) if kinds else {}
    return replace(setup, fault_kinds=kinds, **more) if more else setup


def setup_of(seed: int, kinds: tuple[str, ...] | None = None, nodes: int = 0) -> Setup:
    """A varied run: 1 to 5 nodes, one or two jobs, some or all kinds of faults.

    With ``kinds`` only those, none of messages, and nodes without a past; with ``nodes`` so many.
    """
    chance, given = random.Random(f"setup {seed}"), kinds is not None
    unlike = _UNLIKE if kinds is None else float(CHIPS in kinds)
    kinds = kinds and tuple(kind for kind in kinds if kind != CHIPS)
    drawn = chance.choice((1, 2, 2, 3, 3, 3, 4, 5))
    nodes = nodes or drawn
    shape = JobShape(
        steps=chance.choice((6, 20, 40)),
        grains=chance.choice((1, 3, 8, 13)),
        every=chance.choice((3, 5, 10)),
        replicas=chance.choice((1, 2, 2, 3)),
        keep=chance.choice((1, 3)),
        world_min=chance.choice((1, 1, 1, min(2, nodes))),
        world_max=chance.choice((0, 0, 0, 2)),
        spare=chance.choice(("script", "script", "interpreter", "none")),
        user_code_seconds=chance.choice((20.0, 60.0)),
    )
    if shape.world_max and shape.world_max < shape.world_min:
        shape = replace(shape, world_max=shape.world_min)
    shape = replace(shape, verify_every=chance.choice((0, 4, 50)))
    shape = _by_rank(seed, _diverging(seed, _keeping(seed, _calling(seed, _stopping(seed, shape)))))
    jobs = (shape,) if chance.random() < 0.8 else (shape, replace(shape, steps=6))
    weather = chance.choice(_WEATHERS) if kinds is None else Weather()
    bad = _bad(seed, nodes, shape.world_min) if kinds is None else ()
    poison = _poison(seed, nodes, shape.steps) if kinds is None else None
    kinds = KINDS if kinds is None else kinds
    if chance.random() < 0.5:
        kinds = tuple(chance.sample(kinds, min(len(kinds), chance.randint(1, 4))))
    aged = random.Random(f"aged {seed}")
    past = aged.choice((20, 60, 300)) if aged.random() < _AGED and not given else 0
    kinds = (*kinds, *AGEING_KINDS) if past else kinds
    share = _MIXED if not given else float(any(kind in VERSION_KINDS for kind in kinds))
    releases = _releases(seed, nodes, share)
    if releases and not given:
        few = random.Random(f"beside {seed}").sample(kinds, min(len(kinds), _BESIDE))
        kinds = (*few, *VERSION_KINDS, "later_words", "later_words")
    slow = chance.random() < 0.2
    setup = Setup(
        seed=seed,
        nodes=nodes,
        jobs=jobs,
        fault_seconds=chance.uniform(2.0, 12.0),
        fault_kinds=kinds,
        more_kinds=() if given else _more(seed),
        mean_fault_seconds=chance.choice((0.5, 1.5, 4.0)),
        weather=weather,
        drift=chance.choice((0.0, 0.0001, 0.01)),
        message_seconds=(0.001, 0.05) if slow else (0.0003, 0.003),
        grain_seconds=chance.choice(((0.005, 0.01), (0.01, 0.03), (0.05, 0.2))),
        measured=_measured(seed) and not given,
        on_the_wire=seed % 8 == 0,
        **_durations(seed, nodes),
        log_limit=chance.choice((1, 12, 12, 40)),
        script_state=chance.random() < 0.15,
        slowness=(chance.choice((2.0, 5.0)),) if chance.random() < 0.3 else (),
        addresses=chance.choice((1, 1, 2)),
        bad=bad,
        poison=poison,
        past_jobs=past,
        releases=releases,
        roles=() if given else _roles(seed, nodes, shape, bad, bool(releases or bad or poison)),
        chips=_chips(seed, nodes, 0.0 if releases else unlike),
        partition="strict" if chance.random() < _STRICT else "available",
    )
    return setup if given or poison else _odd(setup)
