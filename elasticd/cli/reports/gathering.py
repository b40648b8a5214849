"""What daemons tell of a job, asked for one after the other. The only I/O of a report."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elasticd.build import build
from elasticd.cli.keptlosses import KeptCurves, kept_curves
from elasticd.cli.plainjobs import is_plain
from elasticd.cli.reports.chronicle import Chronicle, Reader
from elasticd.cli.reports.facts import JobFacts
from elasticd.cli.reports.fields import maps, number
from elasticd.cli.reports.losses import LEAST_POINTS, LoggedCurve, curve, thinned
from elasticd.client.client import Client
from elasticd.client.connection import Connection
from elasticd.core.jobs.losses import Loss
from elasticd.core.words.requests.checkpoints import ListCheckpoints
from elasticd.core.words.requests.looking import OpenOutputs, ReadEvents, ShowStatus
from elasticd.counting import counted
from elasticd.errors import NoDaemonError, OperationError, ProtocolError
from elasticd.settings.rules import one_line
from elasticd.types import JobId, is_job_id

ANSWER_SECONDS = 30.0
"""Finding out who has the files of a job takes its time."""
MOST_OUTPUT_BYTES = 64 << 20
"""Files of a script that are more than that are not brought here for a curve."""
_MOST_LOG_BYTES = 8 << 20
_MOST_CURVES = 8
_LOGS = (".csv", ".jsonl", ".tsv", ".log", ".txt")


def gather(client: Client, job: JobId, now: float) -> JobFacts:
    """What daemons tell of a job. What can't be had is named in it.

    Raises:
        NoDaemonError: no daemon answers.
        OperationError: there is no such job.
    """
    status = client.request(ShowStatus(job, settings=True))
    found = maps(status, "jobs", 1)
    if not found or not is_job_id(str(found[0].get("id"))):
        raise ProtocolError(f"the daemon's answer names no job {one_line(job)}")
    job = JobId(str(found[0]["id"]))
    lacking: list[str] = []
    course = _course(client, job, now)
    stored: dict[str, Any] = {}
    try:
        stored = client.request(ListCheckpoints(job))
    except (OperationError, NoDaemonError) as error:
        lacking.append(f"Checkpoints: {error}")
    plain = is_plain(found[0])  # what was kept of one are the losses of rounds, which are none
    kept = KeptCurves() if plain else kept_curves(client, str(job))
    curves = _kept("loss by step, as the daemon kept it", kept.losses)
    named = [each for name, points in kept.named.items() for each in _kept(one_line(name), points)]
    try:
        curves += _curves(client, job, lacking)
    except (OperationError, NoDaemonError, ProtocolError, OSError) as error:
        lacking.append(f"The files that the script wrote: {error}")
    silent = stored.get("silent")
    return JobFacts(
        now,
        found[0],
        tuple(maps(status, "nodes")),
        course,
        tuple(maps(stored, "checkpoints")),
        silent if isinstance(silent, dict) else {},
        tuple(curves),
        tuple(kept.ranks),
        tuple(lacking),
        build(),
        tuple(named),
    )


def _kept(name: str, points: Sequence[Loss]) -> list[LoggedCurve]:
    finite = [(float(step), value) for step, value in points if math.isfinite(value)]
    return [LoggedCurve(name, tuple(thinned(finite)))] if len(finite) >= LEAST_POINTS else []


def _course(client: Client, job: JobId, now: float) -> Chronicle | None:
    reader = Reader()
    for event in client.stream(ReadEvents(job)):
        reader.take(event)
    return reader.result(now)


def _curves(client: Client, job: JobId, lacking: list[str]) -> list[LoggedCurve]:
    """Of the logs among the files of main's output folder."""
    with client.open(OpenOutputs(job)) as connection:
        head = connection.answer(ANSWER_SECONDS)
        size = number(head, "bytes") or 0
        if size > MOST_OUTPUT_BYTES:
            lacking.append(
                f"Curves of the script's own files: these are {size:.0f} bytes, more than the"
                f" {MOST_OUTPUT_BYTES} that are brought here for that."
            )
            return []
        curves: list[LoggedCurve] = []
        left = 0
        while not (frame := connection.answer(ANSWER_SECONDS)).get("end"):
            if "received" in frame:
                continue
            name, path = str(frame.get("name")), frame.get("path")
            if path is not None and name.lower().endswith(_LOGS):
                drawn = None
                if (number(frame, "bytes") or 0) > _MOST_LOG_BYTES:
                    lacking.append(f"A curve of {name}: it is longer than {_MOST_LOG_BYTES} bytes.")
                elif (text := _text(connection, Path(str(path)))) is not None:
                    drawn = curve(name, text)
                if drawn is not None and len(curves) < _MOST_CURVES:
                    curves.append(drawn)
                else:
                    left += drawn is not None
            connection.send({"taken": name})
    if left:
        lacking.append(f"Curves of {counted(left, 'more file')} of the script.")
    return curves


def _text(connection: Connection, path: Path) -> str | None:
    """What is in a file, if it is one and not too long."""
    # It may be a link or a pipe by now.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags), "rb") as file:
            connection.require_own(file.fileno(), path)
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(_MOST_LOG_BYTES + 1)
    except OSError:
        return None
    return data.decode(errors="replace") if len(data) <= _MOST_LOG_BYTES else None
