"""Names of files and folders, and who writes which shard when. Pure.

``HOME/checkpoints/<job>/<step>-<stamp[:12]>/shard-<index>-of-<count>.safetensors``; the folder's
name ends in ``.partial`` until the checkpoint is committed.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence

from elasticd.types import Stamp

PARTIAL = ".partial"
MANIFEST_NAME = "manifest.msgpack"
DAMAGED = ".damaged"
"""How the name of a shard ends that is not what was written and that no peer could replace, and
that of a checkpoint which nobody can complete and whose name another one needs."""
_ASIDE = 9
"""So many of one name may lie aside."""
STAMP_DIGITS = 12
"""Of a stamp, in a folder's name: for people and for uniqueness; the manifest holds the whole."""

_FOLDER = re.compile(r"(\d{8,})-([0-9a-f]{1,%d})(\.partial)?" % STAMP_DIGITS)  # noqa: UP031
_SHARD = re.compile(r"shard-(\d{5,})-of-(\d{5,})\.safetensors")


def final_name(step: int, stamp: Stamp) -> str:
    """The folder of a committed checkpoint."""
    return f"{step:08d}-{stamp[:STAMP_DIGITS]}"


def partial_name(step: int, stamp: Stamp) -> str:
    """The folder of a checkpoint that is being written."""
    return final_name(step, stamp) + PARTIAL


def parse_folder(name: str) -> tuple[int, str, bool] | None:
    """(step, first digits of the stamp, partial) of a folder's name; None if it isn't one of
    ours."""
    match = _FOLDER.fullmatch(name)
    if match is None or f"{int(match[1]):08d}" != match[1]:
        return None
    return int(match[1]), match[2], match[3] is not None


def shard_name(index: int, count: int) -> str:
    """The file of shard ``index``, from 0, of ``count``."""
    return f"shard-{index:05d}-of-{count:05d}.safetensors"


def parse_shard(name: str) -> tuple[int, int] | None:
    """(index, count) of a shard's file name; None if it is not one."""
    match = _SHARD.fullmatch(name)
    if match is None or shard_name(int(match[1]), int(match[2])) != name:
        return None
    index, count = int(match[1]), int(match[2])
    return (index, count) if index < count else None


def aside_names(name: str) -> list[str]:
    """The names under which what had ``name`` may lie aside, in the order in which they are
    taken."""
    return [name + DAMAGED, *(f"{name}{DAMAGED}-{n}" for n in range(2, _ASIDE + 1))]


def split(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    """Cut tensors, given by their size in bytes, into ``count`` shards of nearly equal size.

    The largest goes first, onto the lightest shard; ties go to the earlier name and the lower
    shard, so every rank that holds the same tensors finds the same shards. A shard may be empty;
    names in a shard are sorted.
    """
    if count < 1:
        raise ValueError(f"{count} shards")
    shards: list[list[str]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        load, index = loads[0]
        shards[index].append(name)
        heapq.heapreplace(loads, (load + sizes[name], index))
    return [sorted(names) for names in shards]


def writes(rank: int, size: int, count: int, replicas: int) -> list[int]:
    """The shards that ``rank`` of ``size`` writes; ``min(replicas, size)`` ranks write each."""
    return [shard for shard in range(count) if (rank - shard) % size < min(replicas, size)]


def placement(domains: Sequence[str], replicas: int) -> tuple[tuple[int, ...], ...]:
    """Per shard the ranks that write it, where rank r is in failure domain ``domains[r]``.

    There are as many shards as ranks; shard s is written by rank s and by the ranks behind it, as
    :func:`writes` says, but by ranks of other domains first, and by those first that write least.
    An empty name is a domain of its own.
    """
    size = len(domains)
    named = [domain for domain in domains if domain]
    if len(set(named)) == len(named):
        mine = [writes(rank, size, size, replicas) for rank in range(size)]
        return tuple(tuple(r for r in range(size) if s in mine[r]) for s in range(size))
    loads = [0] * size
    placed = []
    for shard in range(size):
        chosen = [shard]
        loads[shard] += 1
        while len(chosen) < min(replicas, size):
            used = {domains[rank] for rank in chosen} - {""}
            rank = min(
                (r for r in range(size) if r not in chosen),
                key=lambda r: (domains[r] in used, loads[r], (r - shard) % size),
            )
            chosen.append(rank)
            loads[rank] += 1
        placed.append(tuple(sorted(chosen)))
    return tuple(placed)


def due(step: int, every: int, steps: int) -> bool:
    """Whether a committed step is checkpointed: 0, multiples of ``every``, the last of
    ``steps``."""
    return step % every == 0 or step == steps
