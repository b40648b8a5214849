"""The next world, made as its plan says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from elasticd.checkpoints.layout import placement
from elasticd.core.leading import calling, planning, poison, routing
from elasticd.core.leading.council import Plan
from elasticd.core.leading.office import Office
from elasticd.core.leading.stopping import asked_before, last_kept
from elasticd.core.words.records import GOING_BACK, World, keeps_own
from elasticd.recovery.exactness import forgotten
from elasticd.recovery.fitness import showing_outside
from elasticd.recovery.restore import Resume
from elasticd.types import NO_SECRET, NodeId, Secret, Tag


@dataclass(frozen=True, slots=True)
class Seating:
    """Who is to be in it, and where each has its state from."""

    resume: Resume
    hosts: tuple[str, ...]
    caller: NodeId
    calls: calling.Counts

    @property
    def kept(self) -> list[NodeId]:
        """Who goes on with what it holds."""
        pairs = zip(self.resume.members, self.resume.sources, strict=True)
        return [node for node, source in pairs if keeps_own(source)]


def seated(office: Office, plan: Plan) -> Seating:
    """The members in order, once all have the same results of ``run.on_main``."""
    resume, hosts = routing.laid(office.roster, plan.start.resume, plan.holdings)
    caller, calls, resume = calling.arranged(resume, plan.holdings)
    return Seating(resume, hosts, caller, calls)


def make_world(office: Office, plan: Plan, seating: Seating, cause: str) -> World:
    """A world of a new generation; ``cause`` says why the last one is left if nothing broke it."""
    ctx, last, start = office.ctx, office.world, plan.start
    cut, point, rung = office.relief.cut(), start.resume.point, start.rung
    generation = ctx.next_tag()
    lost = max(0, office.course.committed - point.step) if rung in GOING_BACK else 0
    office.account.planned(rung, point.step, lost)
    before = office.relief.cut(last.relief) if last is not None else cut
    resume, caller = seating.resume, seating.caller
    held = [plan.holdings[node] for node in resume.members]
    kept = planning.shares_kept(last, resume, before, cut)
    speeds = office.balance.speeds
    weights = speeds.weights(resume.members)
    usual = planning.deal(cut, kept, resume.members, weights, speeds.settled_wire)
    deal = poison.deal(office, cut, resume, usual)
    count = office.checkpoints.survey.cut_of(point)
    unproven = _unproven(office, plan, resume)
    # What others hold may have other bits then, which their first steps have not shown.
    whole = office.roster.may_differ_in_chips(resume.members)
    return World(
        job=office.job,
        generation=generation,
        epoch=office.view.epoch,
        lineage=point.lineage,
        parent=start.parent,
        step=point.step,
        stamp=point.stamp,
        members=resume.members,
        sources=_from_one(resume, unproven) if whole else resume.sources,
        hosts=seating.hosts,
        shares_now=deal.now,
        shares=deal.later,
        rung=rung,
        reason="; ".join(text for text in (resume.reason, cause, deal.why) if text),
        recoveries=office.account.recoveries,
        lost_steps=office.account.lost_steps,
        exact=office.exactness.kept,
        checkpointed=point.step if office.checkpoints.survey.covers(point, start.parent) else -1,
        manifest=start.manifest,
        holders=start.holders,
        diverged=tuple(sorted(office.trust.diverged.items())),
        relief=office.relief.level,
        relief_turn=office.relief.turn,
        count=count,
        writers=() if count else _writers(office, resume.members),
        given=tuple(n for n in resume.members if plan.holdings[n].given),
        unproven=unproven,
        last=_last(office, plan, seating, generation),
        caller="" if caller == resume.members[0] else caller,
        calls=seating.calls,
        alone=deal.alone,
        distrusted=office.trust.distrusted,
        walks=len(held) > 1 and all(each.walks for each in held),
        chains=len(held) > 1 and all(each.chains for each in held),
        stores=last is not None and last.generation <= office.trust.apart,
        on_cpu=office.exactness.on_cpu.holds_for(start) and all(each.on_cpu for each in held),
        whole=whole,
        spoilt=office.checkpoints.spoilt,
        tried=office.trust.ladder.carried(ctx.now),
        fruitless=office.account.fruitless,
        furthest=office.account.furthest,
    )


def _last(office: Office, plan: Plan, seating: Seating, generation: Tag) -> int:
    """The last step, if it is known; -1: it is not."""
    start, point = plan.start, plan.start.resume.point
    if office.course.last >= point.step:
        return office.course.last
    known = last_kept(office.world, point, start.rung, start.manifest)
    pairs = zip(seating.resume.members, seating.resume.sources, strict=True)
    ran = [n for n, source in pairs if source == "keep" and not plan.holdings[n].given]
    why = asked_before(point, ran, office.roster.asking(ran))
    if known >= 0 or not why:
        return known
    text = f"step {point.step} is the last: {why}"
    office.ctx.emit("job_stops", text, office.job, generation.counter, step=point.step)
    return point.step


def secret_of(office: Office, plan: Plan, world: World) -> Secret:
    """What its members alone are told. Nothing where one has a reducer of before, which could not
    show that it knows it."""
    proven = len(world.members) > 1 and all(plan.holdings[n].proves for n in world.members)
    return office.ctx.secret() if proven else NO_SECRET


def _from_one(resume: Resume, unproven: Collection[NodeId]) -> tuple[str, ...]:
    """The sources, where who takes the state from a peer takes that of the member with which it is
    compared in its first step."""
    pairs = zip(resume.members, resume.sources, strict=True)
    kept = (node for node, source in pairs if source == "keep" and node not in unproven)
    keeper = next(kept, None)
    if keeper is None:
        return resume.sources
    return tuple(
        f"peer:{keeper}" if source.startswith("peer:") else source for source in resume.sources
    )


def _unproven(office: Office, plan: Plan, resume: Resume) -> tuple[NodeId, ...]:
    """Who has to show in the first step that it computes what those do who stay: who have shown it
    before, or else the first who has lived through the last step."""
    pairs = zip(resume.members, resume.sources, strict=True)
    stay = [n for n, source in pairs if source == "keep"]
    sure = _sure(plan, resume) or set(stay[:1])
    if not sure or not office.exactness.promised:
        return ()
    return tuple(n for n in resume.members if n not in sure)


def _sure(plan: Plan, resume: Resume) -> set[NodeId]:
    """Who goes on with what it holds, and has shown before that it computes what the others do, or
    has never had to."""
    pairs = zip(resume.members, resume.sources, strict=True)
    return {n for n, source in pairs if source == "keep" and not plan.holdings[n].unproven}


def forgets(office: Office, plan: Plan, seating: Seating) -> str:
    """Why the job's bits aren't what they would have been: it is known that the script keeps state
    outside of its run, and nobody who had it goes on. Nothing else; at step 0 nobody has any."""
    node = showing_outside(office.fitness.entries)
    if node is None or plan.start.resume.point.step == 0 or _sure(plan, seating.resume):
        return ""
    return forgotten(node, plan.start.resume.point.step)


def _writers(office: Office, members: tuple[NodeId, ...]) -> tuple[tuple[int, ...], ...]:
    """Who writes which shard, if any member's failure domain is known, or stores are there, which
    copy what the members need not write twice."""
    domains, copies = office.roster.domains(members), office.checkpoints.replicas.written(members)
    usual = copies == office.spec.checkpoint.replicas and not any(domains)
    return () if usual else placement(domains, copies)
