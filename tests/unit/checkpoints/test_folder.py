"""One checkpoint's folder: what is in it, what is wrong with it, and what has to go."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from blake3 import blake3

from elasticd.checkpoints import header, layout, manifest
from elasticd.checkpoints.disk import LOCAL_DISK
from elasticd.checkpoints.folder import CheckpointFolder, rot
from elasticd.checkpoints.integrity import head_digest, with_digests
from elasticd.checkpoints.manifest import Manifest, Shard
from elasticd.errors import LackError, StateError
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Stamp

ME, PEER = NodeId("me"), NodeId("peer")
CONTENT = (b"mine", b"another")


def _shard(index: int, content: bytes) -> Shard:
    return Shard(index, len(content), hashlib.blake2b(content, digest_size=32).hexdigest())


MADE = Manifest(
    *(JobId("job-1"), Lineage("line"), None, 5, Stamp("ab" * 16), NO_TAG, 320, 8, 2),
    *(tuple(map(_shard, (0, 1), CONTENT)), ((ME,), (PEER,)), "00", 0.0),
)


def folder_of(path: Path, *content: bytes | None, node: NodeId | None = ME) -> CheckpointFolder:
    """With these shards, None: not that one."""
    path.mkdir(exist_ok=True)
    made = CheckpointFolder(path, node, LOCAL_DISK)
    for index, data in enumerate(content):
        if data is not None:
            made.shard(MADE, index).write_bytes(data)
    return made


def names(folder: CheckpointFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def test_of_its_own_shards_the_missing_are_told_and_of_all_those_of_another_size(
    tmp_path: Path,
) -> None:
    made = folder_of(tmp_path, None, b"cut")
    assert made.present(MADE) == ()
    assert [(p.shard, p.reason) for p in made.missing(MADE)] == [
        (0, "is missing, though this node is a holder"),
        (1, "has 3 bytes, not 7"),
    ]
    assert folder_of(tmp_path, CONTENT[0], CONTENT[1]).missing(MADE) == []
    assert folder_of(tmp_path / "other", node=None).missing(MADE) == []


def test_rot_is_found_by_reading_and_in_those_shards_only_that_were_asked_for(
    tmp_path: Path,
) -> None:
    made = folder_of(tmp_path, b"MINE", CONTENT[1])
    read: list[int] = []
    assert made.missing(MADE) == []
    assert made.verify(MADE, (1,), read.append) == [] and read == [len(CONTENT[1])]
    (problem,) = made.verify(MADE, (0, 1))
    assert (problem.shard, problem.rotten, problem.path) == (0, True, made.shard(MADE, 0))


def test_without_a_readable_manifest_it_says_so(tmp_path: Path) -> None:
    made = folder_of(tmp_path)
    with pytest.raises(StateError, match=layout.MANIFEST_NAME) as caught:
        made.manifest()
    assert made.without_manifest(caught.value).path == tmp_path / layout.MANIFEST_NAME
    (tmp_path / layout.MANIFEST_NAME).write_bytes(manifest.encode(MADE))
    assert made.manifest() == MADE


def test_it_is_not_final_before_its_own_shards_are_there(tmp_path: Path) -> None:
    with pytest.raises(LackError, match="is missing, though this node is a holder"):
        folder_of(tmp_path).require_own(MADE)
    folder_of(tmp_path, CONTENT[0]).require_own(MADE)


def test_it_is_not_final_with_another_state_of_the_same_size(tmp_path: Path) -> None:
    def shard(number: int) -> bytes:
        data = number.to_bytes(8, "little")
        digests = [blake3(data).hexdigest()]
        return header.encode([("w", "U8", (8,))], with_digests({}, digests))[1] + data

    def made_of(number: int) -> Manifest:
        head = head_digest(shard(number)[:-8])
        return replace(MADE, shards=(Shard(0, len(shard(number)), head), MADE.shards[1]))

    folder = folder_of(tmp_path, shard(1))
    folder.require_own(made_of(1))
    with pytest.raises(LackError, match=r"shard-0.*: is of another state than its manifest"):
        folder.require_own(made_of(2))
    folder.shard(MADE, 0).write_bytes(b"\xff" * len(shard(1)))
    with pytest.raises(LackError, match="is of another state"):
        folder.require_own(made_of(1))


def test_only_right_shards_are_taken_in(tmp_path: Path) -> None:
    final, partial = tmp_path / "final", tmp_path / "partial"
    folder_of(final).take_in(folder_of(partial, b"MINE"), MADE)
    assert names(folder_of(final)) == []
    made = folder_of(final)
    made.take_in(folder_of(partial, CONTENT[0]), MADE)
    assert made.present(MADE) == (0,)


def test_what_is_no_right_copy_goes_and_so_does_another_cut(tmp_path: Path) -> None:
    made = folder_of(tmp_path, CONTENT[0], b"ANOTHER")
    (tmp_path / layout.shard_name(0, 3)).write_bytes(b"of three")
    made.remove_others(MADE)
    made.remove_strangers(MADE)
    assert names(made) == [layout.shard_name(0, 2)]
    made = folder_of(tmp_path, None, CONTENT[1])
    made.remove_others(MADE)
    assert made.present(MADE) == (0, 1), "a copy"


def test_nothing_of_it_is_left_when_it_is_discarded(tmp_path: Path) -> None:
    folder_of(tmp_path / "5", *CONTENT).discard()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    path = folder_of(tmp_path, CONTENT[0]).shard(MADE, 0)
    assert rot(path, MADE.shards[0].digest) == "" != rot(path, MADE.shards[1].digest)
