"""What ranks show one another, without a ring."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.reducer.greeting import DIGEST_BYTES, Greeting, StrangerError, Toward
from elasticd.types import Secret

SECRET, GENERATION = Secret(bytes(range(32))), bytes(16)


def greeting(
    rank: int, size: int, secret: Secret = SECRET, generation: bytes = GENERATION
) -> Greeting:
    return Greeting(secret, generation, rank, size, 3.0, lambda error: None, lambda: "h:1")


def shown(size: int, secret: Secret = SECRET) -> list[bytes]:
    """To the left, by rank."""
    return [greeting(rank, size, secret).digest(rank, Toward.LEFT) for rank in range(size)]


def test_each_digest_is_good_in_one_place_only() -> None:
    """Also where both neighbours are the same rank, and in a later world of the same ranks."""
    places = [
        (rank, toward, size, secret, generation)
        for size in (2, 3, 4)
        for rank in range(size)
        for toward in Toward
        for secret in (SECRET, Secret(bytes(32)))
        for generation in (GENERATION, b"\1" * 16)
    ]
    digests = {greeting(r, size, s, g).digest(r, way) for r, way, size, s, g in places}
    assert len(digests) == len(places) and {len(each) for each in digests} == {DIGEST_BYTES}


@given(st.data())
def test_whatever_is_changed_on_its_way_is_noticed_and_placed(data: st.DataObject) -> None:
    """What comes through a stranger is wrong from some rank on, as seen to the right."""
    size = data.draw(st.integers(2, 8))
    rank, beyond = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size - 1))
    rows = shown(size)
    greeting(rank, size).check(rows)
    for distance in range(beyond, size):
        place = (rank + distance) % size
        other = data.draw(
            st.one_of(
                st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES),
                st.sampled_from([row for row in shown(size) if row != rows[place]]),
                st.just(greeting(place, size).digest(place, Toward.RIGHT)),
            )
        )
        rows[place] = other
    with pytest.raises(StrangerError) as caught:
        greeting(rank, size).check(rows)
    assert (caught.value.at, caught.value.wrong) == ((rank + beyond) % size, True)
