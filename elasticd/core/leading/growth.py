"""How a trainer outside a world gets the world's state while that trains on.

    lend ──every member has said──▶ fetch ──prepared──▶ follow ──a step behind at most──▶ enter
      ▲                               │                   │
      └────── it was dropped ◀────────┴───────────────────┘

Members keep the state of one step by reference, and every reduced gradient from there on (no more
bytes than a state has). The newcomer takes that state, a part from each member, then the gradients
of the steps that it missed, and applies them with its own optimizer. It enters when it is a step
behind, and takes the last gradient in the world's forming, so nobody ever waits for a state.

A join that breaks costs the others nothing: all of this belongs to one generation, and is forgotten
with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from elasticd.core.context import Context
from elasticd.core.words.records import Wanted, World
from elasticd.core.words.worlds import Lend, Lent, Prepare, Prepared, Progress
from elasticd.types import JobId, NodeId, Point

_AHEAD_STEPS = 2
"""A state is asked for of a step that nobody has reached when the order comes."""
_NEAR_STEPS = 1
_TRIES = 3
"""After so many states that could not be had, the world stops and gives one."""
_ROUNDS = 12
"""After so many rounds of following, what is still missing is taken in the forming."""


@dataclass(slots=True)
class Newcomer:
    stage: Literal["waits", "lent", "fetching", "follows", "plain"] = "waits"
    """lent: a state is, for it; plain: the world has to stop for it."""
    since: float = 0.0
    point: Point | None = None
    tries: int = 0
    rounds: int = 0

    @property
    def is_prepared(self) -> bool:
        """Whether members keep a state or gradients for it."""
        return self.stage in ("lent", "fetching", "follows")


@dataclass(slots=True)
class Growth:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    world: World | None = None
    newcomers: dict[NodeId, Newcomer] = field(default_factory=dict)
    step: int = -1
    """The step whose state is lent; -1: none."""
    answers: dict[NodeId, Lent] = field(default_factory=dict)
    ahead_steps: int = _AHEAD_STEPS
    stopped_at: float = 0.0
    """When the members were last asked to leave their world."""
    told: World | None = None
    plain_reason: str = ""
    """Why states can't be had in this job while it trains."""
    compared: set[NodeId] = field(default_factory=set)
    """Members of the view whose states were compared with the others'."""

    def enter(self, world: World) -> None:
        """Another world runs: what was lent in the last one is let go by itself."""
        self.world, self.newcomers = world, {}
        self.step, self.answers, self.ahead_steps = -1, {}, _AHEAD_STEPS

    def stopped(self) -> None:
        """The members are asked to leave their world."""
        self.stopped_at = self.ctx.now

    def compare(self, nodes: Iterable[NodeId]) -> None:
        """The states of these were compared with the others'."""
        self.compared.update(nodes)

    def follow(self) -> None:
        """A new view: messages may have been lost, so begin again."""
        self.compared.clear()
        if self.world is not None:
            self.enter(self.world)

    # --- the leader asks --------------------------------------------------------------------------

    def ready(
        self, candidates: Sequence[NodeId], progress: Mapping[NodeId, Progress], last_step: int
    ) -> list[NodeId]:
        """Those of ``candidates`` (trainers that may enter) for which the world should stop now."""
        world = self.world
        if world is None or progress.keys() != set(world.members):
            return []
        for gone in [n for n in self.newcomers if n not in candidates]:
            del self.newcomers[gone]
        for node in candidates:
            self.newcomers.setdefault(node, Newcomer(since=self.ctx.now))
        if not any(each.is_prepared for each in self.all()):
            self._let_go(log=bool(candidates))
        if not candidates:
            return []
        if self.plain_reason:
            return list(candidates)
        newest = max(p.step for p in progress.values())
        self._maybe_lend(world, newest, last_step)
        for node, newcomer in self.newcomers.items():
            self._follow(node, newcomer, progress)
        plain = [n for n, each in self.newcomers.items() if each.stage == "plain"]
        near = [n for n, each in self.newcomers.items() if self._is_near(each, newest)]
        if plain:
            return [n for n in candidates if n in plain or n in near]
        # One stop for all: those who are near go on following until the others are, too.
        busy = [n for n in self.newcomers if n not in near]
        late = self.ctx.now - self.ctx.timing.together_seconds
        patient = all(self.newcomers[n].since > late for n in near)
        return [] if busy and patient else [n for n in candidates if n in near]

    def _is_near(self, newcomer: Newcomer, newest: int) -> bool:
        if newcomer.stage != "follows" or newcomer.point is None:
            return False
        return newest - newcomer.point.step <= _NEAR_STEPS or newcomer.rounds >= _ROUNDS

    def _maybe_lend(self, world: World, newest: int, last_step: int) -> None:
        if self.step >= 0 or newest + self.ahead_steps >= last_step:
            return
        waiting = [each for each in self.newcomers.values() if each.stage == "waits"]
        if not waiting:
            return
        self.step, self.answers = newest + self.ahead_steps, {}
        for each in waiting:
            each.stage = "lent"
        for member in world.members:
            self.ctx.send(member, Lend(self.job, world.generation, self.step, log=True))

    def _follow(
        self, node: NodeId, newcomer: Newcomer, progress: Mapping[NodeId, Progress]
    ) -> None:
        """Send a newcomer for the gradients that it lacks."""
        world, point = self.world, newcomer.point
        assert world is not None
        if newcomer.stage != "follows" or point is None or newcomer.rounds >= _ROUNDS:
            return
        lenders = [n for n in world.members if n in self.answers and not self.answers[n].reason]
        if not lenders:
            return
        holder = lenders[newcomer.rounds % len(lenders)]
        there = progress[holder]
        if there.step - point.step <= _NEAR_STEPS:
            return
        newcomer.rounds, newcomer.stage = newcomer.rounds + 1, "fetching"
        target = Point(world.lineage, there.step, there.stamp)
        wanted = Wanted(target, (holder,), since=point)
        self.ctx.send(node, Prepare(self.job, world.generation, wanted))

    # --- what comes of it -------------------------------------------------------------------------

    def on_lent(self, node: NodeId, lent: Lent) -> None:
        """A member's answer; ``never`` ends all attempts."""
        world = self.world
        if world is None or lent.generation != world.generation:
            return
        if lent.never:
            self.plain_reason = lent.reason
            self._tell(f"newcomers take the state while the others wait: {lent.reason}")
            return
        if lent.step != self.step:
            return
        self.answers[node] = lent
        if self.answers.keys() != set(world.members):
            return
        holders = [n for n in world.members if not self.answers[n].reason]
        if not holders:
            self._try_again(lent.reason)
            return
        stamp = self.answers[holders[0]].stamp
        point = Point(world.lineage, self.step, stamp)
        same = [n for n in holders if self.answers[n].stamp == stamp]
        wanted = Wanted(point, tuple(same[:1] if world.whole else same))
        entering = [n for n, newcomer in self.newcomers.items() if newcomer.stage == "lent"]
        for each in entering:
            self.newcomers[each].stage = "fetching"
            self.ctx.send(each, Prepare(self.job, world.generation, wanted))
        if entering:
            text = f"{', '.join(entering)} takes step {self.step} from {', '.join(wanted.holders)}"
            self.ctx.emit(
                "growth_started",
                f"{text}, which train meanwhile",
                self.job,
                world.generation.counter,
                entering=entering,
                holders=list(wanted.holders),
                step=self.step,
            )

    def _try_again(self, reason: str) -> None:
        """No member could lend that state: a later one may do."""
        self.ahead_steps *= 2
        self._tell(f"the state of step {self.step} is lent by nobody: {reason}")
        self._let_go(log=True)
        for node, newcomer in self.newcomers.items():
            if newcomer.stage == "lent":
                self._failed(node, newcomer, reason)

    def on_prepared(self, node: NodeId, prepared: Prepared) -> None:
        """A newcomer holds a state, or could not have it."""
        world, newcomer = self.world, self.newcomers.get(node)
        if world is None or prepared.generation != world.generation or newcomer is None:
            return
        if newcomer.stage != "fetching":
            return
        if prepared.point is None:
            self._failed(node, newcomer, prepared.reason)
        else:
            newcomer.stage = "follows" if prepared.replays else "plain"
            newcomer.point = prepared.point
            if newcomer.rounds == 0:
                newcomer.since = self.ctx.now
        if not any(n.stage in ("lent", "fetching") and n.rounds == 0 for n in self.all()):
            self._keep_log_only()

    def all(self) -> list[Newcomer]:
        """Every newcomer."""
        return list(self.newcomers.values())

    def _failed(self, node: NodeId, newcomer: Newcomer, reason: str) -> None:
        newcomer.tries += 1
        newcomer.stage = "waits" if newcomer.tries < _TRIES else "plain"
        newcomer.point, newcomer.rounds = None, 0
        self._tell(f"{node} could not be prepared, {newcomer.tries} of {_TRIES} times: {reason}")
        if newcomer.stage == "waits" and not any(n.stage == "fetching" for n in self.all()):
            self._let_go(log=True)

    def _keep_log_only(self) -> None:
        world = self.world
        if world is not None and self.step >= 0:
            for member in world.members:
                self.ctx.send(member, Lend(self.job, world.generation, None, log=True))

    def _let_go(self, log: bool) -> None:
        """End what was lent; the next state has to be another."""
        world = self.world
        if world is not None and self.step >= 0:
            self.step = -1
            for member in world.members:
                self.ctx.send(member, Lend(self.job, world.generation, None, log=log))

    def _tell(self, text: str) -> None:
        self.ctx.log("info", text, job=self.job)

    def entered(self, world: World) -> None:
        """A step is committed in ``world``: say, once, what letting somebody in has cost."""
        if world.rung != "grow" or self.told is world:
            return
        self.told = world
        pairs = list(zip(world.members, world.sources, strict=True))
        behind = [n for n, source in pairs if source.startswith("updates:")]
        whole = [n for n, source in pairs if source.startswith("peer:")]
        pause = self.ctx.now - self.stopped_at
        how = [f"{', '.join(behind)} took the last updates"] if behind else []
        how += [f"{', '.join(whole)} took the whole state meanwhile"] if whole else []
        text = f"{len(pairs)} members since step {world.step}; the others paused for {pause:.2f} s"
        self.ctx.emit(
            "growth_finished",
            "; ".join([text, *how]),
            self.job,
            world.generation.counter,
            members=list(world.members),
            resume_step=world.step,
            pause_seconds=round(pause, 4),
            whole_states=len(whole),
        )

    # --- time -------------------------------------------------------------------------------------

    def overdue(self) -> list[NodeId]:
        """Newcomers that have been at it for too long; each is told once."""
        limit = self.ctx.now - self.ctx.timing.load_seconds
        late = [n for n, each in self.newcomers.items() if each.since <= limit]
        for node in late:
            del self.newcomers[node]
        return late

    def deadlines(self) -> list[float]:
        timing = self.ctx.timing
        times = [each.since + timing.load_seconds for each in self.all()]
        return times + [n.since + timing.together_seconds for n in self.all() if n.point]
