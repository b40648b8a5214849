"""A file of a copy that the disk has changed is taken from elsewhere.

Its digest was noted when it came. So any file with that digest will do: in another node's copy, in
the folder where main wrote it, or in the script's own folder here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import structlog

from elasticd.core.words.bulk import WantOutput
from elasticd.errors import ElasticdError
from elasticd.outputs import OutputFile, OutputSet, open_file, partial_name, shown
from elasticd.shell.storage.outputcopies import Copy
from elasticd.shell.storage.outputs import Outputs
from elasticd.types import JobId, NodeId

log = structlog.get_logger(__name__)


async def mend(outputs: Outputs, job: JobId, copy: Copy, damaged: Iterable[OutputFile]) -> bool:
    """Have files of this node's copy as they came; whether any is.

    Raises:
        OSError: the disk refuses.
    """
    mended, beside = False, copy.files.parent / partial_name()
    try:
        for file in damaged:
            if await find_sound(outputs, job, copy.made, file, beside):
                await asyncio.to_thread(os.replace, beside, copy.files / file.name)
                mended = True
                log.warning("a disk has changed an output file; mended", job=job, file=file.name)
            else:
                log.warning("output file lost", job=job, reason=said_lost(file))
    finally:
        beside.unlink(missing_ok=True)
    return mended


async def find_sound(
    outputs: Outputs, job: JobId, made: OutputSet, file: OutputFile, target: Path
) -> bool:
    """Write to ``target`` what a copy's file was when it came; False: nobody who answers has it."""
    name, noted = file.name, made.digests.get(file.name)
    if noted is None:
        return False
    own, copies = await asyncio.gather(outputs.own_of(job), outputs.copies_of(job))
    have = [(node, True) for node in copies if copies[node].digests.get(name) == noted]
    for node, other in own.items():
        found = other.listing.by_name().get(name)
        if found is not None and found.bytes == file.bytes:
            have.append((node, False))
    for node, copy in sorted(have, key=lambda each: each[0] != outputs.me):
        with contextlib.suppress(ElasticdError, OSError):
            await _bring(outputs, node, WantOutput(job, name, copy), file, target)
            if await asyncio.to_thread(made.has, name, target):
                return True
    return False


def said_lost(file: OutputFile) -> str:
    return (
        f"a disk has changed {shown(file.name)} since it was copied, and no node that answers has"
        " it as it was"
    )


async def _bring(
    outputs: Outputs, node: NodeId, wanted: WantOutput, file: OutputFile, target: Path
) -> None:
    """What a node has. Raises ElasticdError, OSError: it can't be had."""
    if node != outputs.me:
        await outputs.fetch(node, wanted, file, target)
        return
    folder = await asyncio.to_thread(outputs.own_folder, wanted.job, wanted.copy)
    await asyncio.to_thread(_copy, folder, file, target)


def _copy(folder: Path, file: OutputFile, target: Path) -> None:
    target.unlink(missing_ok=True)
    with open(open_file(folder, file.name), "rb") as old, target.open("xb") as new:
        shutil.copyfileobj(old, new)
    os.utime(target, ns=(file.mtime_ns, file.mtime_ns))
