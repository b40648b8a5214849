"""A job id that another process says, or a disk, is one that a daemon could give: it comes to file
names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoints import manifest
from elasticd.core.recall import KINDS
from elasticd.core.words.codec import Words, from_plain, to_plain
from elasticd.errors import StateError
from elasticd.types import JobId, is_job_id
from tests.fuzz.samples import NAMES, sample
from tests.unit.checkpoints.test_manifest import MANIFEST
from tests.unit.core.words.conversations import WORDS
from tests.unit.core.words.test_node_ids import EVIL, namings, refused

NAMED = NAMES[JobId]
NO_JOBS = ("", "../x", "a" * 300, *EVIL)


def test_most_conversations_name_jobs() -> None:
    assert namings(NAMED) > 60


@pytest.mark.parametrize(("words", "kind"), WORDS)
def test_no_word_names_a_job_as_none_may_be_called(words: Words[Any], kind: type[Any]) -> None:
    refused(words.decode, words.encode(sample(kind, True)), NAMED, NO_JOBS)


@pytest.mark.parametrize("kind", [pytest.param(v, id=k) for k, v in KINDS.items()])
def test_no_record_of_a_journal_does(kind: type[Any]) -> None:
    refused(partial(from_plain, kind), to_plain(sample(kind, True)), NAMED, NO_JOBS)


@given(
    st.from_regex("[a-z0-9][a-z0-9-]{0,40}", fullmatch=True),
    st.integers(1, 999_999_999),
    st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=4, max_size=4),
)
def test_each_that_a_daemon_gives_is_taken(name: str, number: int, nonce: str) -> None:
    job = f"{name}-{number}-{nonce}"
    assert is_job_id(job) and from_plain(JobId, job) == job


@pytest.mark.parametrize("evil", NO_JOBS)
def test_no_manifest_is_of_such_a_job(evil: str) -> None:
    with pytest.raises(StateError, match="a job's id is"):
        manifest.encode(replace(MANIFEST, job=JobId(evil)))
