"""For scripts with a group of their own: what its ranks tell one another before they go on.

A rank that sums something else than the others gets wrong numbers, or none ever. So each call of a
helper begins with one short message of all ranks, always of the same length: in which helper they
are, and a digest of what they have. Where these differ, all ranks know, and say what differs.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from blake3 import blake3

from elasticd.errors import UsageError

WORDS = 2
"""Of 32 bits, which are told of a digest: its first."""
_TEXT_WORDS = 64
_HELPERS = ("check_weights", "average_gradients", "all_reduce_grads")
_CALLS = (*_HELPERS, "one with what it does not take (its own error says what)")

Words = list[int]
Gather = Callable[[Words], Sequence[Words]]
"""What each rank has said, by rank; each says as many words."""


def group_of(helper: str, group: Any) -> mx.distributed.Group:
    """Whose ranks are meant.

    Raises:
        UsageError: ``group`` is no group.
    """
    group = mx.distributed.init() if group is None else group
    if not callable(getattr(group, "size", None)):
        raise UsageError(
            f"{helper}: group= must be a group of mx.distributed, not a {type(group).__name__}"
        )
    return group  # type: ignore[no-any-return]


def gathering(group: mx.distributed.Group) -> Gather:
    """How the ranks of a group tell each other."""

    def gather(words: Words) -> Sequence[Words]:
        own = mx.array(words, mx.uint32)[None]
        found: Any = mx.distributed.all_gather(own, group=group, stream=mx.cpu).tolist()
        return list(found)

    return gather


def greeted(helper: str, one: bytes, other: bytes, gather: Gather) -> list[tuple[bytes, bytes]]:
    """What each rank has to say at the beginning of ``helper``: twice eight bytes.

    Raises:
        UsageError: a rank is in another helper; on every rank.
    """
    told = gather([_HELPERS.index(helper), *as_words(one), *as_words(other)])
    if len({words[0] for words in told}) > 1:
        where = by_content([_CALLS[words[0]] for words in told], "called")
        raise UsageError(f"{where}: every rank must call the same, as often and in the same order")
    return [(as_bytes(words[1 : 1 + WORDS]), as_bytes(words[1 + WORDS :])) for words in told]


@contextmanager
def heard(group: mx.distributed.Group) -> Iterator[None]:
    """What is raised before the ranks greet each other is known to all of them, in :func:`greeted`:
    else they would wait for this one."""
    try:
        yield
    except UsageError:
        if group.size() > 1:
            gathering(group)([len(_HELPERS)] + [0] * 2 * WORDS)
        raise


def unlike(rows: Sequence[str], gather: Gather) -> str:
    """What ranks have that have other ``rows``: the first place where they differ."""
    most = max(words[0] for words in gather([len(rows)]))
    digests = [digest(row.encode()) for row in rows] + [bytes(4 * WORDS)] * (most - len(rows))
    at, _ = all_differing(gather([word for each in digests for word in as_words(each)]))[0]
    text = rows[at] if at < len(rows) else "nothing more"
    padded = text.encode()[: 4 * _TEXT_WORDS].ljust(4 * _TEXT_WORDS, b"\0")
    told = gather(as_words(padded))
    return by_content([as_bytes(w).rstrip(b"\0").decode(errors="ignore") for w in told], "has")


def by_content(texts: Sequence[str], verb: str) -> str:
    """Which ranks have which of the ``texts``, those of the most last."""
    groups = [(text, ranks_of(texts, text)) for text, _ in reversed(Counter(texts).most_common())]
    have = {"has": "have"}.get(verb, verb)
    return ", ".join(
        f"{ranks_named(ranks)} {verb if len(ranks) == 1 else have} {text}" for text, ranks in groups
    )


def ranks_of(said: Sequence[Any], wanted: Any) -> list[int]:
    """The ranks that have said that."""
    return [rank for rank, each in enumerate(said) if each == wanted]


def ranks_named(ranks: Sequence[int]) -> str:
    """Such as ``rank 1`` or ``ranks 0, 2``."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"


def all_differing(told: Sequence[Words]) -> list[tuple[int, list[tuple[int, ...]]]]:
    """Each digest that isn't the same on all ranks: its place, and how each rank has it."""
    places = range(0, len(told[0]), WORDS)
    by_place = [[tuple(words[at : at + WORDS]) for words in told] for at in places]
    return [(at, seen) for at, seen in enumerate(by_place) if len(set(seen)) > 1]


def form_of(name: str, array: mx.array) -> str:
    """What an array is but for its values, in words."""
    kind = str(array.dtype).rpartition(".")[2]
    shape = f"{kind}, {'x'.join(map(str, array.shape))}" if array.shape else kind
    return f"{name} ({shape})" if name else f"an array ({shape})"


def digest(content: bytes | memoryview) -> bytes:
    """Eight bytes that are others where the content is."""
    return blake3(content).digest(length=4 * WORDS)


def as_words(content: bytes) -> Words:
    """The inverse of :func:`as_bytes`."""
    return list(struct.unpack(f"<{len(content) // 4}I", content))


def as_bytes(words: Sequence[int]) -> bytes:
    """Words of 32 bits as bytes."""
    return struct.pack(f"<{len(words)}I", *words)
