"""The leader's account of one job's checkpoints: from shards on disks to a consistent checkpoint.

A checkpoint is announced when each shard and the manifest are durable on as many living nodes as
the job wants. Where a node's disk refuses, or takes nothing for too long, its part is copied to
another; with no other left the checkpoint makes do with fewer replicas, and says so. The newest one
is looked after: a copy that went with its node is made again elsewhere. A leader that comes later
learns from the members which shards and manifests they have, and finishes what its predecessor
began. Only checkpoints of the line that is trained now count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import InitVar, dataclass, field

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.context import Context
from elasticd.core.jobs.nodes import NodeDuties
from elasticd.core.saving import telling
from elasticd.core.saving.checkpoint import Checkpoint, Key
from elasticd.core.saving.descent import Descent, Reports
from elasticd.core.saving.errands import Errands
from elasticd.core.saving.replicas import Replicas
from elasticd.core.saving.rhythm import Rhythm
from elasticd.core.saving.shelf import Shelf
from elasticd.core.saving.survey import Survey
from elasticd.core.words.records import View, World
from elasticd.core.words.shards import (
    Consistent,
    ManifestStored,
    ShardsFailed,
    ShardsWritten,
)
from elasticd.recovery.lineages import Left, remaining
from elasticd.settings.job import JobSpec
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Point, Stamp, Tag


@dataclass(slots=True)
class Checkpoints:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    spec: JobSpec
    view: InitVar[View]
    descent: Descent = field(default_factory=Descent)
    shelf: Shelf = field(default_factory=Shelf)
    replicas: Replicas = field(init=False)
    survey: Survey = field(init=False)
    errands: Errands = field(init=False)
    rhythm: Rhythm = field(init=False)
    doubted: dict[NodeId, Tag] = field(default_factory=dict)
    """Whose state was not the others', and the last world in which it was not."""

    def __post_init__(self, view: View) -> None:
        descent, shelf = self.descent, self.shelf
        self.replicas = Replicas(self.spec, descent, shelf, view)
        self.survey = Survey(descent, shelf, self.replicas)
        self.errands = Errands(self.ctx, self.job, self.spec, descent, shelf, self.replicas)
        self.rhythm = Rhythm(self.ctx, self.job, self.spec)

    # --- what others see of it --------------------------------------------------------------------

    @property
    def newest(self) -> Manifest | None:
        """The newest consistent checkpoint of the line that is trained."""
        return self.shelf.newest

    @property
    def open(self) -> dict[Key, Checkpoint]:
        """The checkpoints that are not consistent yet."""
        return self.shelf.open

    @property
    def parents(self) -> dict[Lineage, Point | None]:
        """Where lineages were opened."""
        return self.descent.parents

    @property
    def spoilt(self) -> Left:
        return self.descent.spoilt

    def news(self) -> bool:
        """Whether another one became the newest since somebody asked."""
        return self.shelf.news()

    # --- the line that is trained -----------------------------------------------------------------

    def enter(self, world: World) -> None:
        """A world was formed or adopted: what is not of its line is none of its checkpoints."""
        self.descent.enter(world)
        self.rhythm.enter(world)
        if self.newest is not None and not self.descent.has(self.newest.point):
            self.shelf.demote()
        self.shelf.drop(lambda one: not self.descent.has(one.key.point) or self._is_over(one))
        for one in self.open.values():
            same = (one.step, one.stamp) == (world.step, world.stamp)
            if same and world.checkpointed < world.step:
                one.write_again()
        base = self._of_manifest(world.manifest) if world.manifest is not None else None
        if base is not None and self.newest is None:
            self._promote(base)
        self.learn(self.survey.reports)

    def forget_world(self) -> None:
        """It is not known which one trains, or will."""
        self.descent.forget_world()

    def spoil(self, agreed: Point, of: World) -> None:
        """Nobody knows whose state after ``agreed`` is right, or what the odd one has added to it:
        no checkpoint counts from there on, on the line ``of`` that world, be it announced."""
        self.descent.spoil(agreed, of)
        self._drop_spoilt()

    def recall(self, spoilt: Left) -> None:
        """A member was in a world whose leader knew of what is spoilt."""
        if self.descent.recall(spoilt):
            self._drop_spoilt()

    def _drop_spoilt(self) -> None:
        self.shelf.drop(lambda one: self.descent.is_spoilt(one.lineage, one.step))
        if self.newest is not None and self.is_spoilt(self.newest):
            self.shelf.demote()
        self.learn(self.survey.reports)

    def is_spoilt(self, manifest: Manifest) -> bool:
        """Whether the odd one may have added to it."""
        return self.descent.is_spoilt(manifest.lineage, manifest.step)

    def is_of_spoilt(self, world: World) -> bool:
        """Whether all that the world has made since it began is spoilt."""
        return self.descent.is_of_spoilt(world)

    def doubt(self, odd: Collection[NodeId], generation: Tag) -> None:
        """The others' state is another in this world: what these wrote of theirs is no part of a
        checkpoint, nor are copies of it."""
        self.doubted |= dict.fromkeys(odd, generation)
        self.shelf.doubt(odd, generation)

    def on_view(self, view: View, gone: Iterable[NodeId]) -> None:
        self.survey.hear({})
        self.replicas.follow(view)
        nodes = tuple(gone)
        for checkpoint in self.shelf.all():
            checkpoint.restart(nodes)

    def locate(self, node: NodeId, domain: str) -> None:
        """What fails together with ``node``, if that is known."""
        self.replicas.locate(node, domain)

    def place(self, standing: NodeDuties) -> None:
        """Some nodes are to have copies rather than others, some none."""
        self.replicas.place(standing)

    # --- what is heard ----------------------------------------------------------------------------

    def learn(self, reports: Reports) -> None:
        """What all members have of finished checkpoints; the newest may be half announced."""
        self.survey.hear(remaining(reports, self.spoilt))
        for checkpoint in self.shelf.all() if reports else ():
            # What a node has no more does not count, though a newer one may be whole already.
            if checkpoint.manifest is not None:
                checkpoint.compare(self.survey.reports)
        choice, ours = self.descent.newest(self.survey.reports), set(self.open)
        found = self._found(choice.manifest) if choice is not None else None
        # One that an earlier leader has finished, it has announced; ours is announced by advance().
        theirs = found is not None and found.key not in ours
        if found is not None and theirs and found.complete and self.replicas.durable(found):
            self._promote(found)
        if self.descent.world is None:
            return
        whole = choice.manifest.step if choice is not None else -1
        for manifest in self.survey.manifests:
            # What is missing of it may be on nodes that have written it and have no manifest yet.
            if manifest.step > whole and self.descent.has(manifest.point):
                self._found(manifest)

    def _found(self, manifest: Manifest) -> Checkpoint | None:
        """Take a checkpoint in that disks have, if it is newer than the newest."""
        checkpoint = None if self.shelf.over(manifest.step) else self._of_manifest(manifest)
        if checkpoint is not None:
            checkpoint.compare(self.survey.reports)
        return checkpoint

    def _of_manifest(self, manifest: Manifest) -> Checkpoint | None:
        checkpoint = self.shelf.of_manifest(manifest, self.ctx.now)
        if checkpoint is not None:
            self.parents.setdefault(manifest.lineage, manifest.parent)
        return checkpoint

    def _checkpoint(self, said: ShardsWritten | ShardsFailed) -> Checkpoint | None:
        """The checkpoint that a member speaks of; None if it is over or of another line."""
        key, shelf = Key.of(said), self.shelf
        if shelf.home is not None and shelf.home.key == key:
            return shelf.home
        if self._is_over(said) or self.descent.is_spoilt(said.lineage, said.step):
            return None
        if key not in shelf.open:
            if not self.descent.has(key.point) or not shelf.supersede(key.point, said.generation):
                return None
            shelf.begin(key, said.generation, self.ctx.now)
            shelf.bound(key, self.replicas.worth)
        return shelf.open.get(key)

    def _is_over(self, one: Checkpoint | ShardsWritten | ShardsFailed) -> bool:
        """Whether nothing is to be done for it: a newer one is consistent. As long as it is not
        known which line is trained that says nothing of other lines: nobody tells of theirs
        again."""
        newest = self.newest
        alike = newest is not None and newest.lineage == one.lineage
        return self.shelf.over(one.step) and (self.descent.world is not None or alike)

    def _promote(self, checkpoint: Checkpoint) -> None:
        """It is consistent; what is older need not become so."""
        self.shelf.promote(checkpoint)
        self.shelf.drop(self._is_over)

    def on_shards(
        self,
        node: NodeId,
        written: ShardsWritten,
        majority: bool = True,
        excused: Callable[[Mapping[NodeId, str], int], bool] = lambda models, step: False,
    ) -> None:
        """``majority``: where writers differ, most of them decide; else nothing is decided.
        ``excused``: whether writers of these models of a step differ though none computes
        wrongly."""
        checkpoint = self._checkpoint(written)
        if checkpoint is None:
            return
        if checkpoint.manifest is None and checkpoint.generation != written.generation:
            if written.generation < checkpoint.generation:
                return
            # A later world writes all of it again: of a member that had diverged nothing may stay.
            checkpoint = self.shelf.begin(checkpoint.key, written.generation, self.ctx.now)
        differ = self._take(checkpoint, node, written)
        # What the script itself makes otherwise on each rank is told of when all have spoken.
        told = checkpoint.said.unlike is None and not (
            differ and excused(checkpoint.said.models, checkpoint.step)
        )
        for index in differ if told else ():
            telling.diverged(self.ctx, self.job, checkpoint, node, index, self.descent.world)
        odd = checkpoint.said.outvoted()
        if odd and majority:
            self.doubt(odd, checkpoint.generation)

    def _take(self, checkpoint: Checkpoint, node: NodeId, written: ShardsWritten) -> list[int]:
        """Which shards of a writer are not what others have said. Without a manifest nothing counts
        that is of a state of its own, or was copied from one."""
        if checkpoint.manifest is None:
            if not written.check and checkpoint.copied_in_vain(node):
                return []
            if written.check and written.generation <= self.doubted.get(node, NO_TAG):
                return checkpoint.refuse(node, written, self.ctx.now)
        return checkpoint.wrote(node, written, self.ctx.now)

    def on_failed(self, node: NodeId, failed: ShardsFailed) -> None:
        """A member has not stored its part, or a copy that it was asked for."""
        checkpoint = self._checkpoint(failed)
        if checkpoint is None:
            return
        checkpoint.hear(node)
        checkpoint.rots(failed.rotten)
        keeps = self.errands.not_copied(checkpoint, node)
        if failed.refused:
            self.errands.do_without(checkpoint, node, failed.reason, keeps)

    def on_stored(self, node: NodeId, stored: ManifestStored) -> None:
        key = Key.of(stored)
        for checkpoint in self.shelf.all():
            if checkpoint.key != key or node not in checkpoint.filing.asked:
                continue
            if stored.ok:
                checkpoint.stored(node)
            else:
                self.errands.not_stored(checkpoint, node, stored)

    # --- what is to be done -----------------------------------------------------------------------

    def advance(self) -> None:
        """Go on with every checkpoint as far as can be."""
        chosen: set[tuple[int, Stamp]] = set()
        order = sorted(self.open.values(), key=lambda e: (e.manifest is None, e.step, e.key))
        for checkpoint in order:
            name = (checkpoint.step, checkpoint.stamp)
            if self._is_over(checkpoint):
                self.open.pop(checkpoint.key, None)
            if self.shelf.over(checkpoint.step):
                continue
            self.errands.expire(checkpoint)
            if not checkpoint.complete or name in chosen:
                continue
            chosen.add(name)
            if self.errands.further(checkpoint) and self.replicas.durable(checkpoint):
                self._announce(checkpoint)
        for home in self._at_home():
            self.errands.expire(home)
            if not self.replicas.listed(home):
                self.errands.further(home)

    def _at_home(self) -> list[Checkpoint]:
        """The newest one, where something can be done for it."""
        home = self.shelf.home
        if home is None or not home.complete or not self.survey.reports:
            return []
        return [home]

    def deadlines(self) -> list[float]:
        """When to call :meth:`advance` though nothing was heard: of what that looks at."""
        open_ = [one for one in self.open.values() if not self.shelf.over(one.step)]
        looked_at = [*self._at_home(), *open_]
        return [time for one in looked_at for time in self.errands.deadlines(one)]

    def _announce(self, checkpoint: Checkpoint) -> None:
        self._promote(checkpoint)
        telling.committed(self.ctx, self.job, checkpoint, self.spec.checkpoint.replicas)
        for node in self.replicas.view.members:
            self.ctx.send(node, Consistent(self.job, checkpoint.lineage, checkpoint.step))
        self.rhythm.choose(checkpoint.step, checkpoint.said.measured, self.descent.world)
