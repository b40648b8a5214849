"""``elasticctl cluster rotate``: has it begun, and tells how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from elasticd.cli.options import Common
from elasticd.cli.screen import print_json, say, warn
from elasticd.core.words.codec import from_plain
from elasticd.core.words.requests.nodes import RotateCertificates, RotationTold
from elasticd.counting import counted
from elasticd.errors import NoDaemonError, OperationError

PATIENCE_SECONDS = 60.0
"""The command ends when nothing has changed for so long. What it has begun goes on."""
GOES_ON = "it goes on by itself; 'elasticctl cluster rotate' shows how far it is"


def run(options: Common, clock: Callable[[], float] = time.monotonic) -> None:
    """Return once old certificates are refused.

    Raises:
        OperationError: some node that is there has not renewed its own, or no daemon tells any
            more.
        NoDaemonError: no daemon answers.
    """
    told = None
    try:
        for told in _changes(options.client.stream(RotateCertificates()), clock):
            if not options.json:
                say(worded(told), flush=True)
    except NoDaemonError as error:
        if told is None:
            raise
        raise OperationError(f"{error}; {GOES_ON}") from None
    except KeyboardInterrupt:
        if told is not None:
            warn(GOES_ON)
        raise
    if told is None:
        raise OperationError("the daemon does not say how far it is")
    if options.json:
        print_json(
            {
                "renewed": list(told.renewed),
                "waiting": list(told.waiting),
                "away": list(told.away),
                "old_refused": told.refused,
                "old_until_unix": told.wanted_unix,
            }
        )
    if not told.refused:
        raise OperationError(
            f"nothing has changed for {PATIENCE_SECONDS:g} s: {_names(told.waiting) or 'no node'}"
            f" waits, see its log. Old certificates are taken until then; {GOES_ON}"
        )


def _changes(
    frames: Iterator[dict[str, Any]], clock: Callable[[], float]
) -> Iterator[RotationTold]:
    """What is new, until it is over or nothing has changed for a while."""
    last, since = None, clock()
    for frame in frames:
        told: RotationTold = from_plain(RotationTold, frame)
        if told != last:
            last, since = told, clock()
            yield told
        elif clock() - since > PATIENCE_SECONDS:
            return


def worded(told: RotationTold) -> str:
    """How far it is, in one line."""
    every = len(told.renewed) + len(told.waiting) + len(told.away)
    text = f"{len(told.renewed)} of {every} renewed"
    if told.waiting:
        text += f"; {_names(told.waiting)} still to come"
    for node in told.away:
        text += f"; {node} is away, it is renewed when it is back"
    if told.refused:
        text += "; old certificates are refused from now on"
    return text


def _names(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:3])
    return shown if len(nodes) <= 3 else f"{shown} and {counted(len(nodes) - 3, 'other')}"
