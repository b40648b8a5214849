"""What must always hold, watched from outside of the code under test.

The numbers are those of DESIGN.md's invariants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from elasticd.core.jobs.status import job_status
from elasticd.core.taking_part import trainers
from elasticd.core.taking_part.elastic import Elastic
from elasticd.core.words import effects as e
from elasticd.core.words.messages import Message
from elasticd.core.words.records import JobRecord, World
from elasticd.core.words.shards import Digest, ShardsWritten
from elasticd.core.words.views import Heartbeat
from elasticd.core.words.worlds import Form, Holding, MemberStatus, Progress
from elasticd.recovery import fitness
from elasticd.recovery.exactness import FORGOTTEN
from elasticd.recovery.relief import cut
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Point, Stamp, Tag, next_stamp

from .agreement import Generations, Order, Views, durable_before, forgotten, unconnected
from .byrank import ByRank
from .chips import Places
from .cluster import Cluster, Violation
from .histories import Commits, Ledger, OneSide
from .kept_copies import lost_copies
from .newcomers import Newcomers
from .origins import Origins
from .pace import FORMED, Pace
from .proving import counts, overlooks, unlike, was_unlike
from .restings import forgotten_steps
from .roles import misplaced, out_of_role
from .scriptends import ScriptEnds
from .states import loss_of
from .taints import Taints
from .tellings import Tellings
from .writers import Writers

if TYPE_CHECKING:
    from .host import Host
    from .ring import Arrival
    from .trainer import Trainer

_DIFFERS = "parameters differ"
_ALIKE = ("as when the job began", FORGOTTEN)  # why jobs are not exact whose members are alike


class Checkers:
    """All checkers of one run, fed by the simulated shell."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.ledgers: dict[JobId, Ledger] = {}
        self.commits: dict[JobId, Commits] = {}
        self.paces: dict[str, Pace] = {}
        self.events: list[tuple[float, str, e.Emit]] = []
        self.forms: dict[str, World] = {}
        self.members: dict[str, tuple[NodeId, ...]] = {}
        """Of each node's view, as far as its effects have been carried out."""
        self.order, self.views, self.generations = Order(), Views(), Generations()
        self.sides: dict[JobId, OneSide] = {}
        self.writers = Writers()
        self.stored: dict[tuple[JobId, Lineage, Stamp], str] = {}
        """Of states that are written, what calls of run.on_main have returned that led to them."""
        self.chain, self.taints, self.by_rank = OneSide(), Taints(), ByRank()
        self.script_ends = ScriptEnds()
        self.unpromised: set[JobId] = set()  # whose bits may depend on members, as was told
        self.tellings, self.newcomers, self.places = Tellings(), Newcomers(), Places()
        self.doubted = 0
        """So often has a leader told that states differ."""
        self.origins = Origins()

    def broken(self, text: str) -> NoReturn:
        self.cluster.say("checker", text)
        raise Violation(text)

    def _require(self, problem: str) -> None:
        if problem:
            self.broken(problem)

    # --- what the simulated processes do ----------------------------------------------------------

    def collective(
        self, world: World, key: tuple[str, int], arrived: Mapping[int, Arrival]
    ) -> None:
        kind, step = key
        found = (a.reducer.trainer for a in arrived.values())
        trainers = [trainer for trainer in found if trainer is not None]
        if len({str(t.built) for t in trainers if t.built}) > 1:
            self.broken(f"{world.generation} mixes trainers that have built different things")
        if kind == "step":
            parts = {rank: (a.point, a.share) for rank, a in arrived.items()}
            taints = [trainer.taint for trainer in trainers]
            if world.job not in self.taints.told | self.unpromised:
                outside = self.cluster.shapes[world.job].outside
                self._require(unlike(outside, world, step, trainers))
            self.reduced(world, step, parts, frozenset().union(*taints))
            self.cluster.renewals.reduced(world, step, parts[0][0], trainers)
            seen = {t.name: t.calls.seen for t in trainers}
            if len(set(seen.values())) > 1:
                self.broken(f"step {step} of {world.generation} after other results: {seen}")
            return
        points = {arrival.point for arrival in arrived.values()}
        if len(points) != 1:
            self.broken(f"a barrier of {world.generation} mixes {points}")
        self._alone(world)
        (point,) = points
        commits = self.commits.setdefault(world.job, Commits())
        self._require(commits.resumed(world, point))

    def reduced(
        self,
        world: World,
        step: int,
        parts: Mapping[int, tuple[Point, frozenset[int]]],
        taint: frozenset[int],
    ) -> None:
        self._alone(world)
        batch = self.cluster.specs[world.job].batch
        grains = cut(batch.global_, batch.micro, world.relief).grains
        ledger = self.ledgers.setdefault(world.job, Ledger())
        self._require(ledger.reduced(world, grains, step, parts))
        parent = parts[0][0].stamp
        self.taints.reduced(parent, next_stamp(parent, world.generation, step), taint)
        self.cluster.say("ring", f"{world.job} step {step} in {world.generation}")

    def _alone(self, world: World) -> None:
        if self.cluster.setup.partition == "strict":
            side = self.sides.setdefault(world.job, OneSide())
            self._require(side.reduced(world, self._stored()))

    def _stored(self) -> set[Lineage]:
        """The lineages of which living nodes have checkpoints."""
        disks = (host.disk.finals.values() for host in self.cluster.living())
        return {manifest.lineage for finals in disks for manifest in finals}

    def committed(self, trainer: Trainer, point: Point) -> None:
        commits = self.commits.setdefault(trainer.job, Commits())
        self._require(commits.committed(self.cluster.now, point))
        self.cluster.mark(trainer.name, f"commits {trainer.job} {point.lineage}/{point.step}")

    def stores(self, trainer: Trainer, point: Point, seen: str) -> None:
        """Invariant 1: what is written under one name is one state; ``seen`` is what the calls of
        run.on_main have returned that led to it."""
        if self.stored.setdefault((trainer.job, point.lineage, point.stamp), seen) != seen:
            self.broken(f"{trainer.name} writes {point} with results of other calls")

    def loads(self, trainer: Trainer, world: World) -> None:
        held, calls = trainer.point, trainer.cluster.shapes[trainer.job].calls
        apart = self.cluster.setup.chips.differ
        if trainer.doubts or trainer.fresh or calls or apart or not counts(trainer):
            return  # its state is another than its stamp says, or may be
        if was_unlike(self.cluster.record_of(trainer.job), trainer.host.name):
            return
        holds = held is not None and (held.step, held.stamp) == (world.step, world.stamp)
        if holds and trainer.calls.is_past(world.step):  # else others have made a call without it
            self.broken(f"{trainer.name} is to load step {world.step}, which it holds")

    # --- what the daemons do ----------------------------------------------------------------------

    def steps(self, host: Host, event: e.Event) -> None:
        """A node is about to take an event in."""
        if isinstance(event, e.Received) and not isinstance(event.message, Heartbeat):
            sender = host.session_boot(event.node)
            self._require(self.order.received(sender, host.boot, event.message))
            self.writers.hears(host.name, event.node, event.message)

    def speaks(self, host: Host, message: Message) -> None:
        """A message leaves a node."""
        if missing := durable_before(message, host.disk):
            self.broken(f"{host.name} tells of {missing}, which its disk does not have")

    def persists(self, host: Host, kind: str, record: Any) -> None:
        """A node is about to write into its journal."""
        disks = {name: each.disk for name, each in self.cluster.hosts.items()}
        if kind in FORMED:
            self.members[host.name] = record.members
            self.cluster.mark(host.name, f"{kind} {record.epoch} {list(record.members)}")
            self._require(self.views.formed(host.name, record, disks))
        elif kind == "view_attempt":
            self._require(self.views.promised(host.name, record.epoch, host.disk))
        elif isinstance(record, World):
            self._require(self.generations.entered(host.name, record, host.disk, host.release))

    def stepped(self, host: Host, event: e.Event, effects: Sequence[e.Effect]) -> None:
        pace = self.paces.setdefault(host.name, Pace())
        self._require(pace.stepped(self.cluster.now, event, effects))
        self._require(out_of_role(host.name, self.cluster.role_of(host.name), effects))
        if isinstance(event, e.Received) and isinstance(event.message, Progress):
            self._require(self.newcomers.progressed(host.node, event.message.job))
        for effect in effects:
            match effect:
                case e.Emit(kind="fault_detected", fields=fields):
                    for text in fields["evidence"]:
                        if _DIFFERS in text:
                            self._doubted(host, effect, text)
                case e.Emit(kind="exact_lost", job=job, reason=why) if job is not None:
                    self._require(self.cluster.renewals.told(why))
                    if "differ" in why:
                        self.taints.told.add(job)
                    self.unpromised |= set() if any(t in why for t in _ALIKE) else {job}
                case e.Emit(kind="job_paused"):
                    self._require(forgotten_steps(self.cluster, host, effect))
                case e.Send(to, message):
                    if not isinstance(message, Heartbeat):
                        boot = host.session_boot(to)
                        heard = self.cluster.mixture.heard(host, boot, to, message)
                        self.order.sent(host.boot, boot, heard)
                    if isinstance(message, Form):
                        self._formed(host, message.world)
                    elif isinstance(message, MemberStatus):
                        problem = forgotten(message, host.disk)
                        self._require(problem and f"{host.name} {problem}")
                    self._tells(host, message)
                case e.Emit(kind="state_chosen", job=job) if job is not None:
                    self.tellings.chose(job)
                case e.StartTrainer(job=job):
                    self._begins(host, job)
                case e.EnterWorld(world=world):
                    self.tellings.enters(host.name, world)
                    self._formed(host, world)
                case e.Persist("primary_formed", view):
                    self._require(self.chain.formed(view))

    def _begins(self, host: Host, job: JobId) -> None:
        """No script is begun where too few nodes are known to be there to train it."""
        assert host.node is not None
        view = host.node.views.view
        there = {*view.members} if view is not None else {host.name}
        tables, least = host.node.tables, self.cluster.specs[job].world.min
        out = {*fitness.left_out(tables.jobs.records[job].unfit)}
        if host.release.knows_roles:
            out |= {node for node in there if self.cluster.role_of(node) != "train"}
        if len(usable := there - out) < least:
            self.broken(f"{host.name} begins {job} though only {sorted(usable)} may train it")

    def _tells(self, host: Host, message: Message) -> None:
        match message:
            case Digest():
                self.tellings.tells(host.name, host.boot, message)
            case ShardsWritten():
                self.tellings.tells(host.name, host.boot, message.own())
            case Holding(job=job):
                self.tellings.tells(host.name, host.boot, None)
                self.tellings.answers(host.name, job)

    def _doubted(self, host: Host, emit: e.Emit, text: str) -> None:
        """A leader has found a member's state to differ, be it beside a fault that is nearer. Where
        nobody knows who is right it trusts no state of that time, whoever has it."""
        assert host.node is not None and emit.job is not None
        self.doubted += 1
        driver = host.node.drivers.by_job[emit.job]
        alone = "no majority" not in text and "all go back" not in text
        # What speaks against another than the culprit begins with its name.
        name = next((n for n in self.cluster.hosts if text.startswith(f"{n}: ")), None)
        named = self.cluster.hosts[name or emit.fields["culprit"]]
        policy, world = self.cluster.specs[emit.job].recovery.on_divergence, driver.world
        if not alone:
            self.origins.differed.add(self._entered(named, emit.job))
        if world is not None and (policy == "restore" or not alone):
            there = [self._trainer_of(self.cluster.hosts[n], emit.job) for n in world.members]
            self.taints.found(driver, [t.taint for t in there if t is not None])
        for each in [named] if alone else self.cluster.hosts.values():
            child = self._trainer_of(each, emit.job)
            # A daemon that is away may take over any of them.
            for one in [child] if child is not None else each.trainers():
                one.doubts.append((driver, alone))

    def _distrusted(self, asked: Iterable[NodeId], job: JobId) -> Tag:
        """Since which world no state is trusted, as these know from an earlier leader."""
        nodes = [self.cluster.hosts[name].node for name in asked]
        members = [node.members.by_job.get(job) for node in nodes if node is not None]
        worlds = [one.reports.world for one in members if one is not None]
        return max((world.distrusted for world in worlds if world is not None), default=NO_TAG)

    def _entered(self, host: Host, job: JobId) -> Tag | None:
        """The newest world in which its trainer has had the right state."""
        trainer = self._counted_on(host, job)
        return trainer.entered if trainer is not None else None

    def _counted_on(self, host: Host, job: JobId) -> trainers.Trainer | None:
        """As its daemon knows it."""
        serving = host.node.members.by_job.get(job) if host.node is not None else None
        part = serving.part if serving is not None else None
        return part.crew.trainer if isinstance(part, Elastic) else None

    def _trainer_of(self, host: Host, job: JobId) -> Trainer | None:
        """The one that its daemon counts on."""
        trainer = self._counted_on(host, job)
        number = trainer.child if trainer is not None else 0
        return next((t for t in host.trainers() if t.child == number and t.alive), None)

    def _formed(self, host: Host, world: World) -> None:
        """A leader made a world: nobody who could be asked held more, and nobody keeps a state
        which it knows to be another than the others'."""
        self._require(self.generations.formed(world, host.release) or misplaced(host, world))
        self._require(unconnected(world) or self.cluster.environments.formed(host, world))
        if str(world.generation) in self.forms or world.generation.leader != host.name:
            return
        self.forms[str(world.generation)] = world
        self.cluster.say(
            host.name,
            f"world {world.generation} {world.rung} from {world.lineage}/{world.step} of "
            f"{list(zip(world.members, world.sources, strict=True))}",
        )
        node = host.node
        assert node is not None and node.views.view is not None
        driver = node.drivers.by_job.get(world.job)
        if problem := self.taints.trusted(driver, world.job, world.stamp):
            self.broken(f"{world.generation} starts from step {world.step}, which {problem}")
        sources = dict(zip(world.members, world.sources, strict=True))
        keep = [self.cluster.hosts[n] for n in sources if sources[n] == "keep"]
        kept = (self._trainer_of(each, world.job) for each in keep)
        self._require(overlooks(node.records[world.job], world, kept))
        if (mine := node.members.by_job.get(world.job)) is not None:
            self.tellings.leads(host.name, world.job, mine.reports.told.states.told)
        self._require(self.tellings.formed(world, sources))
        # A restore must not overlook anybody; a regroup none of those that it takes along.
        asked = world.members if "keep" in world.sources else node.views.view.members
        out = fitness.left_out(node.records[world.job].unfit)  # what these hold counts for nothing
        told = self._distrusted(asked, world.job)
        differ = self.origins.differ(world, [self._entered(host, world.job) for host in keep])
        for name in asked:
            member = self.cluster.hosts[name]
            trainer = self._trainer_of(member, world.job)
            if trainer is None or trainer.stops or member.paused or name in out:
                continue
            if member.node is None or member.node.views.epoch != node.views.epoch:
                continue  # it has gone over to another view, and takes no order of this one
            point = trainer.point
            entered = self._entered(member, world.job)
            recalled = entered is not None and entered <= told
            doubts = [alone for doubt, alone in trainer.doubts if recalled or doubt is driver]
            if doubts:
                keeps = sources.get(name) == "keep"
                # Of states of which nobody knows who is right one may have to do.
                if keeps and (any(doubts) or differ):
                    self.broken(
                        f"{name} keeps a state in {world.generation} that is not the others'"
                    )
                elif keeps:
                    trainer.doubts.clear()
            elif point is not None and point.step > world.step and counts(trainer):
                if self.cluster.poisons.goes_back(world, point):
                    continue
                side = self.sides.get(world.job)
                if side is not None and side.is_over(point.lineage, self._stored()):
                    continue  # one side trains at a time, and another history has had its turn
                self.broken(
                    f"generation {world.generation} starts from step {world.step} although "
                    f"{name} holds step {point.step}"
                )

    def emitted(self, host: Host, emit: e.Emit) -> None:
        self.events.append((self.cluster.now, host.name, emit))
        self._require(self.cluster.environments.told(host, emit, self.members[host.name]))
        if emit.kind == "checkpoint_committed":
            self._checkpointed(host, emit)
        if emit.job is not None:
            shape = self.cluster.shapes[emit.job]
            self._require(self.by_rank.emitted(emit, shape, self.cluster.faults))
            self._require(self.script_ends.emitted(emit, self.forms.values()))
        diverged = emit.kind == "fault_detected" and emit.fields["fault"] == "divergence"
        if diverged and not self.cluster.faults["diverge"]:
            self.broken(f"all states are alike, and {host.name} tells: {emit.reason}")

    def _checkpointed(self, host: Host, emit: e.Emit) -> None:
        """Invariant 5."""
        assert emit.job is not None
        # One event may announce a checkpoint and then bring another view.
        members = self.members[host.name]
        spec = self.cluster.specs[emit.job]
        wanted = min(spec.checkpoint.replicas, len(members))
        step = emit.fields["step"]
        last = step in self.cluster.shapes[emit.job].may_end_at()
        disks = [h.disk for h in self.cluster.hosts.values()]
        # What was stored counts, though retention may have removed it meanwhile. Two sides of a
        # partition may have used the same counter: one of them has to be whole.
        counter = emit.generation
        found = [
            [(m, held) for m, held in disk.committed if m.job == emit.job and m.step == step]
            for disk in disks
        ]
        of_members = [
            [m for m, _ in here]
            for name, here in zip(self.cluster.hosts, found, strict=True)
            if name in members
        ]
        fewest = 0
        announced = [m for here in found for m, _ in here if m.generation.counter == counter]
        if not announced:  # the leader before had stored it here already
            announced = [m for m, _ in host.disk.committed if (m.job, m.step) == (emit.job, step)]
        for manifest in announced:
            # Another side may have one of the same name; what its members have is announced here.
            if any(manifest in own for own in of_members):
                self._require(self.writers.announced(host.name, members, manifest))
            driver = host.node.drivers.by_job.get(emit.job) if host.node is not None else None
            if problem := self.taints.trusted(driver, emit.job, manifest.stamp):
                self.broken(f"checkpoint {step} is announced, which {problem}")
            same = [[held for m, held in here if m.same_state(manifest)] for here in found]
            # Two sides that ended the job at one state have it under two names, and a disk takes
            # one: only the last checkpoint may make do with that.
            there = [
                any(m.stamp == manifest.stamp and (last or m.same_state(manifest)) for m, _ in here)
                for here in found
            ]
            nodes = sum(there)
            holding = [
                {*disk.was_durable(manifest), *(index for held in helds for index in held)}
                for disk, helds in zip(disks, same, strict=True)
            ]
            copies = [
                sum(
                    s.index in held or (last and has)
                    for held, has in zip(holding, there, strict=True)
                )
                for s in manifest.shards
            ]
            fewest = max(fewest, min(nodes, *copies))
        # A disk that is full is done without where no other node can take its part.
        able = [
            n
            for n in members
            if self.cluster.drawn_role(n) != "witness"
            and all(key[:2] != (emit.job, step) for key in self.cluster.hosts[n].disk.refused)
        ]
        wanted = max(1, min(wanted, len(able)))
        if fewest < wanted:
            self.broken(f"checkpoint {step} is announced, but {fewest} nodes have some part of it")

    # --- at the end -------------------------------------------------------------------------------

    def ended(self) -> None:
        """Every node tells the same end, and the history is whole."""
        for job in self.cluster.specs:
            records = [
                host.node.records.get(job)
                for host in self.cluster.living()
                if host.node is not None
            ]
            if not self.cluster.mixture.same(records):
                self.broken(f"the nodes' records of {job} differ: {records}")
            self._require(lost_copies(self.cluster, job))
            record = records[0]
            if record is not None and record.state == "finished":
                self._whole(job, record.step)
                self._require(self.places.ended(self.cluster, record))
                self._require(self.cluster.renewals.ended(self.cluster, record))
                if not record.forgotten:  # [keep] may be quick, and shows it no more
                    self._shown(record)
                sizes = {w.generation: len(w.members) for w in self.forms.values()}
                self._require(self.by_rank.ended(job, sizes))

        for request, answer in self.cluster.answers.items():
            self._answered(self.cluster.requests.get(request, ""), answer)

    def _answered(self, asked: str, answer: dict[str, Any]) -> None:
        """What an operator was told is so in the end."""
        job = answer.get("id")
        record = self.cluster.record_of(job) if job is not None else None
        if not asked or "error" in answer:
            return
        if asked.startswith(("drain", "undrain", "dismiss")):
            tables = [
                h.node.tables.nodes.records for h in self.cluster.living() if h.node is not None
            ]
            name = NodeId(str(job))
            if not self.cluster.mixture.same([table.get(name) for table in tables]):
                self.broken(f"{asked} was answered {answer}, and the nodes' records differ")
            return
        if record is None:
            self.broken(f"{asked} was answered {answer}, and no node knows of it")
        if asked.startswith("forget") and not record.forgotten:
            self.broken(f"{job} was forgotten, and a node remembers it")
        if asked.startswith("cancel") and answer["state"] == "cancelled" != record.state:
            self.broken(f"{job} was cancelled, and is {record.state}")

    def _shown(self, record: JobRecord) -> None:
        """Who made the last step may be gone; then no loss is known, or an earlier one."""
        loss = record.account.get("loss")
        if loss is not None and loss != loss_of(record.step):
            self.broken(f"{record.id} finished with step {record.step}, and shows the loss {loss}")
        shown = job_status(record, {})
        if record.inexact and shown["exact"]:
            self.broken(f"{record.id} is shown as exact, and its record says: {record.inexact}")

    def _whole(self, job: JobId, steps: int) -> None:
        if steps not in self.cluster.shapes[job].may_end_at():
            self.broken(f"{job} ended with step {steps}")
        commits, ledger = self.commits[job], self.ledgers.setdefault(job, Ledger())
        ends = [(lin, stamp) for (lin, step), stamp in commits.stamps.items() if step == steps]
        if not ends:
            self.broken(f"{job} finished, but step {steps} was never committed")
        for _, stamp in ends:
            if ledger.steps_to(stamp) != list(range(1, steps + 1)):
                self.broken(f"{job} went through steps {ledger.steps_to(stamp)}")
