"""What the fuzzer sends: each kind of each conversation, right in form."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.core.words.bulk import WANTS
from elasticd.core.words.children import FROM_REDUCER, FROM_TRAINER, TO_REDUCER, TO_TRAINER
from elasticd.core.words.codec import Words
from elasticd.core.words.requests import REQUESTS
from tests.fuzz.samples import frames


@pytest.mark.parametrize(
    "words", [REQUESTS, WANTS, FROM_TRAINER, FROM_REDUCER, TO_TRAINER, TO_REDUCER]
)
def test_every_kind_is_among_them(words: Words[Any]) -> None:
    assert {type(words.decode(frame)) for frame in frames(words)} == set(words.kinds)
    left_out = words.kinds[0]
    rest = {type(words.decode(frame)) for frame in frames(words, without=(left_out,))}
    assert rest == set(words.kinds[1:])
