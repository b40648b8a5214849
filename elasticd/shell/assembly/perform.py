"""Which part performs which effect of the control plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

import structlog

from elasticd.core.node import InvariantError
from elasticd.core.words import effects as e
from elasticd.core.words.engines import EngineEffect
from elasticd.core.words.records import JobRecord, World
from elasticd.errors import DiskError
from elasticd.shell.assembly.talk import Talk
from elasticd.shell.children.children import Children
from elasticd.shell.control.firstshares import FirstShares
from elasticd.shell.control.queries import Queries
from elasticd.shell.network.stream import aside
from elasticd.shell.storage.durable import no_room
from elasticd.shell.storage.forgetting import Forgetting
from elasticd.shell.storage.outputkeeper import OutputKeeper
from elasticd.shell.storage.records import StableRecords
from elasticd.shell.storage.states import States

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Performers:
    """Who does the work; each is done with an effect before the next one comes."""

    talk: Talk
    records: StableRecords
    children: Children
    states: States
    keeper: OutputKeeper
    forgetting: Forgetting
    queries: Queries
    first: FirstShares

    def __call__(self, effect: e.Outward) -> None:
        children, states = self.children, self.states
        if isinstance(effect, EngineEffect):
            children.engines.perform(effect)
            return
        match effect:
            case e.Transmit():
                self.talk.transmit(effect)
            case e.Persist():
                raise InvariantError("what is to be journalled was to be performed unwritten")
            case e.Reached():
                self.records.mark(effect)
            case e.Emit():
                self.talk.emit(effect)
            case e.Log(level, text, fields):
                getattr(log, level)(text, **fields)
            case e.StartTrainer():
                children.start_trainer(effect)
            case e.StartReducer():
                children.start_reducer(effect)
            case e.KillChild():
                children.kill(effect)
            case e.TellTrainer():
                children.tell_trainer(effect)
            case e.EnterWorld():
                children.enter_world(effect, states.store.folder(effect.world.job))
            case e.FormReducer():
                children.form_reducer(effect)
            case e.PrepareState():
                states.prepare_state(effect)
            case e.FetchState():
                states.fetch_state(effect)
            case e.EnsureArchive():
                states.ensure_archive(effect)
            case e.CommitManifest():
                states.commit_manifest(effect)
            case e.PruneStore():
                states.prune_store(effect)
                self.keeper.follow(effect.job)  # there is a checkpoint
            case e.FetchShards():
                states.fetch_shards(effect)
            case e.Reply():
                self.queries.reply(effect)
            case _:
                assert_never(effect)

    async def persist(self, effects: Sequence[e.Persist]) -> None:
        """Durable when it returns, all or none. The loop goes on meanwhile. Where people have jobs
        forgotten since the disk is full, that has room for it once files of those are gone.

        Raises:
            DiskError: as :meth:`Journal.append` and :meth:`Journal.compact`.
        """
        records = [(effect.kind, effect.record) for effect in effects]
        for _, record in records:
            if isinstance(record, World):
                counter = record.generation.counter
                await self.keeper.enters(record.job, counter, record.members)
        gone = [r for _, r in records if isinstance(r, JobRecord) and r.forgotten]
        try:
            await aside(partial(self._persist, records))
        except DiskError as error:
            if not (gone and no_room(error)):
                raise
            await self.forgetting.make_room(gone)
            await aside(partial(self._persist, records))
        if gone:
            self.forgetting.forget(gone)
        for _, record in records:
            if not isinstance(record, JobRecord) or record.forgotten:
                continue
            if record.state == "running":
                self.first.job_begins(record.id)
            elif record.ended:
                # A script may write behind its loop.
                self.keeper.ended.add(record.id, record.number)

    def _persist(self, records: Sequence[tuple[str, Any]]) -> None:
        # What the journal knows of has happened: its history is not to begin behind that.
        self.talk.events.settled()
        self.records.persist_all(records)
