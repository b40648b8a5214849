"""Simulated time, the nodes of a cluster, and what they share: rings and chance."""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.context import Station, Timing
from elasticd.core.node import Node
from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord, World
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, NodeId, NodeRole

from .addresses import Addresses
from .ageing import Ageing
from .chance import Chances
from .chips import Chips
from .environments import Environments
from .longer import Longer
from .measured import Measured
from .mixture import Mixture
from .poison import Poison, Poisons
from .renewals import Renewals
from .strangers import Strangers

if TYPE_CHECKING:
    from .checkers import Checkers
    from .host import Host
    from .network import Network
    from .ring import Ring

MAX_EVENTS = 2_000_000
LOAD_SECONDS = 60.0
"""A state here has no gigabytes: what waits longer waits for nothing but heartbeats."""


@dataclass(frozen=True, slots=True)
class JobShape:
    """What of a job.toml matters to the control plane."""

    steps: int = 20
    grains: int = 8
    every: int = 5
    replicas: int = 2
    keep: int = 3
    world_min: int = 1
    world_max: int = 0
    spare: str = "script"
    user_code_seconds: float = 60.0
    verify_every: int = 50
    on_divergence: str = "restore"
    drop_slow: bool = False
    stops_at: int = 0
    """After this step the script asks to stop; 0: it doesn't."""
    stops_on: str = ""
    """Only on this node; empty: on all."""
    breaks: bool = False
    """It does so by leaving its loop, on all."""
    by_rank: bool = False
    """The script tracks a thing as the same on all ranks, and it isn't."""
    calls: int = 0
    """A body makes up to so many calls of run.on_main above its update, and below."""

    outside: str = ""
    """The script keeps state outside of the run, which a "grain" shows, or only what its "body"
    leaves."""

    def may_end_at(self) -> tuple[int, ...]:
        """The steps that may be the last. Whether one node alone was there to ask is chance."""
        if not 0 < self.stops_at < self.steps:
            return (self.steps,)
        asked = (self.stops_at, self.stops_at + 1, self.steps)
        return asked if self.stops_on else asked[:1]

    foreseen: tuple[NodeId, ...] = ()
    """Nodes that it is to do without from the start: its preflight has failed there."""


@dataclass(frozen=True, slots=True)
class Strike:
    """A planned fault. Where it strikes is drawn from (seed, number), whatever came before."""

    number: int
    at_seconds: float
    """From when faults begin."""
    kind: str


@dataclass(frozen=True, slots=True)
class Mishap:
    """What befalls one message: the ``number``-th that ``sender`` sends to ``to``."""

    sender: NodeId
    to: NodeId
    number: int
    kind: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Weather:
    """Which part of all messages meets with what, while faults last."""

    lost: float = 0.0
    duplicated: float = 0.0
    reordered: float = 0.0
    """It comes late and is overtaken."""
    delayed: float = 0.0
    """It comes late, and so does all behind it, as with a packet that TCP sends again."""
    delay_seconds: tuple[float, float] = (0.02, 0.4)

    def draw(self, chance: random.Random) -> str:
        """The kind of mishap that a message meets with, or nothing."""
        dice = chance.random()
        for kind in ("lost", "duplicated", "reordered", "delayed"):
            dice -= getattr(self, kind)
            if dice < 0:
                return kind
        return ""


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that a run depends on besides the code."""

    seed: int
    nodes: int = 3
    jobs: tuple[JobShape, ...] = (JobShape(),)
    fault_seconds: float = 0.0
    """For how long faults are injected, from the first formed world on; 0: never."""
    fault_kinds: tuple[str, ...] = ()
    more_kinds: tuple[str, ...] = ()
    """Of each of these one strike besides; none of the others is another for it."""
    mean_fault_seconds: float = 2.0
    strikes: tuple[Strike, ...] | None = None
    """These faults and no others; None: drawn from the seed."""
    weather: Weather = Weather()
    mishaps: tuple[Mishap, ...] | None = None
    """These messages meet with something and no others; None: as the weather has it."""
    drift: float = 0.0
    """By how much the nodes' clocks go fast or slow at most."""
    message_seconds: tuple[float, float] = (0.0005, 0.003)
    grain_seconds: tuple[float, float] = (0.01, 0.03)
    trainer_start_seconds: tuple[float, float] = (0.8, 2.0)
    reducer_start_seconds: tuple[float, float] = (0.3, 0.6)
    reap_seconds: tuple[float, float] = (0.002, 0.005)
    """From a child's end until its daemon knows; it hears before that what the child still said."""
    notice_seconds: tuple[float, float] = (0.0005, 0.005)
    """From a reducer's end until its trainer sees the socket closed."""
    export_seconds: tuple[float, float] = (0.0005, 0.02)
    """Until a state that is given to another node is written, and has come there."""
    end_seconds: tuple[float, float] = (0.01, 0.2)
    """From the end of a script's loop until its process ends: it may have files to write."""
    slowness: tuple[float, ...] = ()
    """By host in order of names: how many times as long as on others a grain takes; else 1."""
    wire_seconds: float = 0.0
    """What it takes a rank to send one vector."""
    write_seconds: tuple[float, ...] = ()
    """By host in order of names: what it takes to write its part of a checkpoint, or to copy
    another's, beyond the usual."""
    log_limit: int = 12
    """So many updates fill a trainer's log."""
    script_state: bool = False
    """The scripts' own code changes the state between steps, so updates don't make it."""
    limit_seconds: float = 0.0
    """The jobs must have ended this long after the last fault; 0: see run.py."""
    addresses: int = 1
    """Of each node."""
    bad: tuple[tuple[int, str, float], ...] = ()
    """Nodes by number whose environment is bad from the start: how, and until when faults have
    lasted for so long."""
    lost: tuple[tuple[int, float], ...] = ()
    """Jobs by number whose files are gone with the node that took them: until when faults have
    lasted for so long; 0: for good."""
    poison: Poison | None = None
    longer: Longer | None = None
    past_jobs: int = 0
    """Jobs that each home holds the records and files of, since before the story."""
    releases: tuple[str, ...] = ()
    """What each node runs at first, by name of the build; none: all the present one, for good."""
    partition: str = "available"
    roles: tuple[NodeRole, ...] = ()
    """Of each node by number; none: all train."""
    chips: Chips = field(default_factory=Chips)
    measured: bool = False
    """Leaders are told how fast nodes are, when a job begins."""
    on_the_wire: bool = False
    """Encode and decode every message, as the daemons do."""
    timing: Timing = field(default_factory=lambda: Timing(load_seconds=LOAD_SECONDS))
    node_type: type[Node] = Node

    def grain_seconds_of(self, step: int) -> tuple[float, float]:
        """What a grain of that step takes on a node that isn't slow: least and most."""
        longer = self.longer
        meets = longer and not longer.reducing and longer.meets(step)
        return (longer.seconds,) * 2 if longer and meets else self.grain_seconds

    def reduce_seconds_of(self, step: int) -> float:
        """What a reduction of that step takes beyond the usual."""
        longer = self.longer
        return longer.seconds if longer and longer.reducing and longer.meets(step) else 0.0


def words(moment: tuple[float, str, object]) -> str:
    """A line of the transcript."""
    seconds, who, what = moment
    match what:
        case e.Emit():
            what = f"event {what.kind}: {what.reason}"
        case e.Log():
            what = f"{what.level}: {what.text} {what.fields}"
    return f"{seconds:10.4f} {who:8} {what}"


class Violation(AssertionError):
    """An invariant does not hold."""


class Cluster:
    """The scheduler and the root of everything simulated."""

    def __init__(self, setup: Setup, verbose: bool = False) -> None:
        self.setup = setup
        self.chances = Chances(setup.seed)
        self.now = 0.0
        self.verbose = verbose
        self.moments: list[tuple[float, str, object]] = []
        """The transcript, not yet put into words."""
        self.marks: list[tuple[float, str, str]] = []
        """Views and commits, of which there are too many for a transcript."""
        self.hosts: dict[NodeId, Host] = {}
        self.rings: dict[str, Ring] = {}
        self.addresses = Addresses(self)
        self.specs: dict[JobId, JobSpec] = {}
        self.shapes: dict[JobId, JobShape] = {}
        self.requests: dict[int, str] = {}
        """What operators asked for."""
        self.answers: dict[int, dict[str, Any]] = {}
        self.environments = Environments(self)
        self.renewals = Renewals()
        self.poisons = Poisons(self)
        self.ageing = Ageing(self)
        self.mixture = Mixture(self)
        self.measured = Measured(self)
        self.strangers = Strangers(self)
        self.missing_archives: set[JobId] = set()
        """Jobs whose files are on none of the nodes that are there."""
        self.network: Network
        self.checkers: Checkers
        self.world_hooks: list[Callable[[NodeId, World], None]] = []
        self.faults: Counter[str] = Counter()
        """What was done to the nodes, by kind."""
        self.seen: Counter[str] = Counter()
        """What else befell them, so that a soak can say that it did."""
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def persisted(self, host: Host, record: Any) -> None:
        """The record is on the host's disk."""
        for each in (self.mixture, self.ageing, self.measured):
            each.persisted(host, record)

    def drawn_role(self, node: NodeId) -> NodeRole:
        """What a node does at most, by a build that knows of roles."""
        return dict(zip(self.hosts, self.setup.roles, strict=False)).get(node, "train")

    def role_of(self, node: NodeId) -> NodeRole:
        """What it does at most, by the build that runs there."""
        return self.drawn_role(node) if self.hosts[node].release.knows_roles else "train"

    def station_of(self, node: NodeId) -> Station:
        """What its elasticd.toml says that it is, and what it computes with."""
        return Station(role=self.role_of(node), chip=f"chip {self.chip_of(node)}")

    def write_seconds_of(self, node: NodeId) -> float:
        """What its disk takes for shards, beyond the usual."""
        return dict(zip(self.hosts, self.setup.write_seconds, strict=False)).get(node, 0.0)

    def chip_of(self, node: str) -> int:
        return self.setup.chips.of([*self.hosts].index(NodeId(node)))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run ``action`` that many simulated seconds from now; ties in the order of asking."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + seconds, self._count, action))

    def when(self, ready: Callable[[], bool], action: Callable[[], object]) -> None:
        """Do ``action`` as soon as ``ready()``, looked at every millisecond of simulated time."""

        def look() -> None:
            if ready():
                action()
            else:
                self.after(0.001, look)

        self.after(0.0, look)

    def say(self, who: str, what: object) -> None:
        """A moment for the transcript; ``what`` is put into words when somebody reads it."""
        moment = (self.now, who, what)
        self.moments.append(moment)
        if self.verbose:
            print(words(moment))

    def mark(self, who: str, what: str) -> None:
        """A view or a commit, for those who compare runs."""
        self.marks.append((self.now, who, what))

    def transcript(self) -> list[str]:
        return [words(moment) for moment in self.moments]

    def digest(self) -> str:
        """Two histories are the same if their digests are: it is over the transcript, the number
        of events, and the state of every stream of chance after them."""
        told = hashlib.blake2b("\n".join(self.transcript()).encode(), digest_size=16)
        told.update(f"{self._count} {self.chances.state()}".encode())
        return told.hexdigest()

    @property
    def events(self) -> int:
        """How many were scheduled so far."""
        return self._count

    def run(self, until: Callable[[], bool], limit: float) -> bool:
        """Run until ``until()``; False if the limit on simulated time came first."""
        while not until():
            if not self._heap or self._heap[0][0] > limit:
                return False
            if self._count > MAX_EVENTS:
                raise Violation(f"{MAX_EVENTS} events and no end")
            self.now, _, action = heapq.heappop(self._heap)
            action()
        return True

    def living(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.node is not None]

    def record_of(self, job: JobId) -> JobRecord | None:
        """What the first living node knows of a job."""
        for host in self.living():
            if host.node is not None and job in host.node.records:
                return host.node.records[job]
        return None

    def last_manifests(self, record: JobRecord) -> list[Manifest]:
        """Of the state with which a job has ended, as living nodes have them."""
        found = (m for host in self.living() for m in host.disk.finals.values())
        return [m for m in found if (m.job, m.step) == (record.id, record.step)]


def spec_of(name: str, shape: JobShape) -> JobSpec:
    return JobSpec.from_dict(
        {
            "job": {"name": name, "entrypoint": "train.py"},
            "world": {"min": shape.world_min, "max": shape.world_max},
            "batch": {"global": shape.grains * 2, "micro": 2},
            "train": {"steps": shape.steps},
            "checkpoint": {
                "every_steps": shape.every,
                "replicas": shape.replicas,
                "keep": shape.keep,
            },
            "recovery": {
                "spare": shape.spare,
                "user_code_seconds": shape.user_code_seconds,
                "verify_every": shape.verify_every,
                "on_divergence": shape.on_divergence,
                "drop_slow": shape.drop_slow,
            },
        }
    )
