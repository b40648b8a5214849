"""Manifests of final checkpoints that can't be read, replaced by a peer's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from elasticd.checkpoints import layout
from elasticd.checkpoints.manifest import Manifest
from elasticd.checkpoints.port import Problem
from elasticd.errors import ElasticdError, OperationError
from elasticd.shell.storage.pins import GoingError
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId


class ManifestMender:
    """Without its manifest a checkpoint is none on this node, though its shards are there."""

    def __init__(self, states: States, nodes: Callable[[], list[NodeId]]) -> None:
        """``nodes``: the other nodes that answer now."""
        self._states, self._nodes = states, nodes
        self._unmended: set[Path] = set()

    @property
    def waits(self) -> bool:
        """There is one that no peer had so far."""
        return bool(self._unmended)

    async def mend(self) -> None:
        """Look for all, and replace what a peer has."""
        damaged = await asyncio.to_thread(self._damaged)
        self._unmended &= {problem.path for _, problem in damaged}
        for job, problem in damaged:
            await self._mend(job, problem)

    def _damaged(self) -> list[tuple[JobId, Problem]]:
        store = self._states.store
        return [
            (job, problem)
            for job in store.jobs()
            for problem in store.problems(job)
            if problem.shard is None
        ]

    async def _mend(self, job: JobId, problem: Problem) -> None:
        folder = problem.path.parent
        step = (layout.parse_folder(folder.name) or (0,))[0]
        fields = {"step": step, "cause": problem.reason}
        try:
            found = await self._peers(job, folder.name)
            with self._states.pins.held(job, found.step, found.stamp):
                await self._fill(found)
                await self._states.keep_manifest(found)
        except GoingError:
            return
        except ElasticdError as error:
            if folder.is_dir() and problem.path not in self._unmended:
                self._unmended.add(problem.path)
                text = f"the manifest of step {step} can't be read; {error}"
                self._states.tell("checkpoint_damaged", job, text, fields)
            return
        self._unmended.discard(problem.path)
        text = f"the manifest of step {step} could not be read; replaced from a peer"
        self._states.tell("checkpoint_repaired", job, text, fields)
        await self._states.changed(job)

    async def _peers(self, job: JobId, name: str) -> Manifest:
        """The manifest of the folder of that name, as a peer has it."""
        for node in self._nodes():
            with contextlib.suppress(ElasticdError):
                stored = await asyncio.to_thread(self._states.store_of(node).stored, job)
                for m in (item.manifest for item in stored):
                    if layout.final_name(m.step, m.stamp) == name:
                        return m
        raise OperationError("no peer that answers has it")

    async def _fill(self, found: Manifest) -> None:
        """Have what this node is to hold of it; what is here is of that state or replaced."""
        store = self._states.store
        for index in found.held_by(self._states.me):
            where = (found.job, found.step, found.stamp, index, found.count)
            if not await asyncio.to_thread(store.is_right, *where, found.shards[index].digest):
                await self._states.copies.replace(found, index, tuple(self._nodes()))
