"""What a running daemon does with a changed elasticd.toml (settings/changing.py), and the parts
that look at what it knows: losses, notices, the preflight."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticd.core.jobs.notices import Around
from elasticd.core.node import Node
from elasticd.settings.config import NodeConfig
from elasticd.settings.plain import PLAIN
from elasticd.shell.assembly.talk import Talk
from elasticd.shell.children.children import Children
from elasticd.shell.clock import monotonic_seconds
from elasticd.shell.control.foresight import Foresight
from elasticd.shell.control.linkdesk import LinkDesk
from elasticd.shell.control.noticedesk import NoticeDesk
from elasticd.shell.control.ownfacts import OwnFacts
from elasticd.shell.control.ownneeds import OwnNeeds
from elasticd.shell.control.preflightdesk import PreflightDesk
from elasticd.shell.control.queries import Queries
from elasticd.shell.control.settingswatch import SettingsWatch
from elasticd.shell.control.speeddesk import SpeedDesk
from elasticd.shell.control.stepdesk import StepDesk
from elasticd.shell.control.trialdesk import TrialDesk
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.eventreading import EventReading
from elasticd.shell.storage.losses import Losses
from elasticd.shell.storage.outputkeeper import OutputKeeper
from elasticd.shell.storage.scratch import Scratch
from elasticd.shell.storage.scrub import Scrubber
from elasticd.shell.storage.tidying import Tidying
from elasticd.types import JobId, NodeId, NodeRole


def follow(
    home: Path,
    file: Path,
    running: NodeConfig,
    tidying: Tidying,
    keeper: OutputKeeper,
    scrubber: Scrubber,
    talk: Talk,
    notices: NoticeDesk,
) -> SettingsWatch:
    """To be started. ``running``: what ``file`` said when the daemon read it."""

    peers = frozenset(running.peers)
    keeper.ended.beyond = tidying.beyond

    def take(settings: NodeConfig) -> None:
        nonlocal peers
        tidying.rules = settings.keep
        keeper.limit_bytes = settings.copied_bytes
        scrubber.keep_within(settings.quota_bytes)
        notices.rules = settings.notify
        talk.notifies(settings.notify.told)
        talk.peers.dial(settings.peers)
        talk.peers.may_forget(peers.difference(settings.peers))
        peers = frozenset(settings.peers)

    return SettingsWatch(home, file, running, take, talk.happened, talk.refuses)


def losses_of(home: Path, node: Node) -> Losses:
    """What keeps the losses of jobs, as their leaders tell them."""

    def running() -> dict[JobId, Mapping[str, Any]]:
        jobs, told = node.tables.jobs.queue(), node.tables.summaries
        # Of a plain job's rounds there is no loss to keep.
        found = (each for each in jobs if each.id in told and each.spec["job"].get("mode") != PLAIN)
        return {each.id: told[each.id] for each in found}

    def known(job: JobId) -> Mapping[str, Any] | None:
        record = node.records.get(job)
        return None if record is None or record.forgotten else node.job_status(job)

    return Losses(home, running, known, monotonic_seconds)


def notices_of(settings: NodeConfig, node: Node, talk: Talk) -> NoticeDesk:
    """What tells people, as ``settings`` say."""

    def around() -> Around:
        view, infos = node.views.view, talk.infos
        members = (node.me,) if view is None else view.members
        told = {name: infos[name].notifies for name in members if name in infos}
        return Around(node.me, None if view is None else view.leader, told)

    reading = EventReading(talk.events)
    return NoticeDesk(settings.notify, settings.cluster, reading, around, talk.happened)


def preflight_of(
    home: Path, node: Node, talk: Talk, neighbours: Neighbours, queries: Queries, children: Children
) -> PreflightDesk:
    """What looks at all nodes; what it has found counts when a job is submitted."""

    def chip() -> str:
        own = talk.infos.get(node.me)
        return "" if own is None else own.chip

    def trains() -> list[JobId]:
        return [job.id for job in node.tables.jobs.queue() if children.runs(job.id)]

    def away() -> list[NodeId]:
        return sorted(queries.node_names() - {*node.liveness.living(), node.me})

    def told() -> tuple[str, ...]:
        own = talk.infos.get(node.me)
        return () if own is None else own.addresses

    def duty(name: NodeId) -> tuple[NodeRole, bool]:
        return node.tables.nodes.role_of(name), node.tables.nodes.draining(name)

    own = OwnFacts(home, chip, talk.peers.walled, told=told)
    links = LinkDesk(neighbours, talk.peers.paths_of, lambda: children.hosts, trains)

    def used(digest: str) -> bool:
        return any(record.archive == digest for record in node.records.values())

    needs, speeds = OwnNeeds(home, os.environ), SpeedDesk(home, neighbours, os.environ, trains)
    archives = queries.files.archives
    steps = StepDesk(neighbours, archives, children.files, Scratch(home), os.environ, trains, used)
    trials = TrialDesk(steps)
    desk = PreflightDesk(home, neighbours, own, needs, links, speeds, steps, trials, away, duty)
    queries.submissions.foresee = Foresight(desk, talk.emit).foresee
    return desk
