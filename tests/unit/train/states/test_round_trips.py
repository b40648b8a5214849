"""Whatever a state takes it gives back as it was, types included; all else is refused by name."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elasticd.errors import UsageError
from elasticd.train.states.attributes import Attributes
from elasticd.train.states.namespace import Namespace
from elasticd.train.states.ranks import NEW, Ranks
from elasticd.train.states.state import Loaded, TrainingState
from elasticd.train.states.trees import DEEPEST, MOST_BITS, put_together, take_apart
from elasticd.train.steps.results import packed, unpacked
from elasticd.types import Lineage, Point, Stamp

POINT = Point(Lineage("l"), 3, Stamp("abc"))

# What is accepted.

MLX = [
    mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.int8, mx.int16, mx.int32, mx.int64,
    mx.float16, mx.bfloat16, mx.float32, mx.complex64,
]  # fmt: skip

numbers: Any = hnp.boolean_dtypes() | hnp.integer_dtypes(endianness="?")
numbers |= hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64))
numbers |= hnp.complex_number_dtypes(endianness="?", sizes=(64, 128))
times = hnp.datetime64_dtypes() | hnp.timedelta64_dtypes()
texts = hnp.unicode_string_dtypes(max_len=4) | hnp.byte_string_dtypes(max_len=4)
shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


@st.composite
def mlx_arrays(draw: Any) -> mx.array:
    shape = draw(shapes)
    size = math.prod(shape) if shape else 1
    flat = mx.array(draw(st.lists(st.integers(0, 100), min_size=size, max_size=size)))
    return flat.astype(draw(st.sampled_from(MLX))).reshape(shape)


def scalars_of(arrays: Any) -> Any:
    return arrays.filter(lambda a: a.size).map(lambda a: a.reshape(-1)[0])


plain = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 200), 1 << 200)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from([-0.0, math.inf, math.nan, 0, False, 1, True])
)
keys = (
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(-(1 << 60), 1 << 60)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from(["", ".", "/", "a.b", "a/", "'"])
)  # fmt: skip
number_arrays = hnp.arrays(numbers, shapes)
leaves = plain | mlx_arrays() | number_arrays | scalars_of(number_arrays)
state_leaves = (
    leaves
    | hnp.arrays(times, shapes)
    | scalars_of(hnp.arrays(times, shapes))
    | hnp.arrays(texts, shapes)
)


def nested(of: Any) -> Any:
    return st.recursive(
        of,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(keys, inner, max_size=3)
        ),
        max_leaves=8,
    )


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, mx.array):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and (one.size == 0 or bool(mx.array_equal(one, other)))
    if isinstance(one, (np.ndarray, np.generic)):
        alike = one.dtype.str == other.dtype.str and one.shape == other.shape
        return bool(alike and one.tobytes() == other.tobytes())
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


# The ways that a value goes.


def by_state(value: Any) -> Any:
    kept = Namespace()
    kept.thing = value
    tensors: dict[str, mx.array] = {}
    text = json.dumps(take_apart(kept.state_dict(), "user/elasticd.state/", tensors))
    found = Namespace()
    found.load_state_dict(put_together(json.loads(text), tensors))
    return found.thing


def by_track(value: Any) -> Any:
    mine, theirs = {"thing": value}, {"thing": 0}
    one, other = (TrainingState(nn.Linear(1, 1), None) for _ in range(2))
    one.track("seen", mine)
    other.track("seen", theirs)
    other.install(through_a_file(one))
    return theirs["thing"]


def through_a_file(state: TrainingState) -> Loaded:
    snapshot = state.capture(POINT, 0, 1)
    return Loaded.from_files(snapshot.tensors, snapshot.metadata())


def by_rank(value: Any) -> Any:
    mine, theirs = {"thing": value}, {"thing": 0}
    one, other = Ranks(), Ranks()
    one.track("seen", mine)
    one.hold()
    one.take_place([NEW], 0)
    one.believe(one.hear([one.message]))
    other.track("seen", theirs)
    other.load_state_dict(one.state_dict())
    other.take_place([NEW], 0)
    return theirs["thing"]


def by_attribute(value: Any) -> Any:
    found = []
    mine: Any = nn.Linear(1, 1)
    theirs: Any = nn.Linear(1, 1)
    for module in (mine, theirs):
        vars(module)["thing"] = "first"
        found.append(Attributes())
        found[-1].watch("model", module)
    vars(mine)["thing"] = value
    tensors: dict[str, mx.array] = {}
    found[1].install(json.loads(json.dumps(found[0].capture(tensors))), tensors)
    return theirs.thing


def by_main(value: Any) -> Any:
    return unpacked(packed(value))


WAYS = [by_state, by_track, by_rank, by_attribute]


@pytest.mark.parametrize("way", WAYS)
@given(value=nested(state_leaves))
@settings(max_examples=150, deadline=None)
def test_what_a_state_takes_comes_back(way: Callable[[Any], Any], value: Any) -> None:
    assert same(way(value), value)


@given(nested(leaves | st.binary(max_size=8) | st.text(max_size=4)))
@settings(max_examples=300, deadline=None)
def test_what_main_returns_comes_back(value: Any) -> None:
    assert same(by_main(value), value)


# What is refused.


class Mode(enum.IntEnum):
    ON = 1


class Name(enum.StrEnum):
    X = "x"


class Color(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    a: int
    b: int


class Text(str):
    pass


class Real(float):
    pass


@dataclasses.dataclass
class Config:
    rate: float = 0.5


RECORD = np.zeros(2, [("a", "i4"), ("b", "f8")])
MATRIX = np.ma.masked_array([1, 2], [True, False])


def too_deep() -> Any:
    value: Any = 0
    for _ in range(DEEPEST + 2):
        value = [value]
    return value


def in_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


REFUSED: dict[str, tuple[Any, str, str]] = {
    "an IntEnum": (Mode.ON, "a Mode", "turn it into an int"),
    "a StrEnum": (Name.X, "a Name", "turn it into a str"),
    "an Enum": (Color.RED, "a Color", "keep its value"),
    "a str's child": (Text("x"), "a Text", "turn it into a str"),
    "a float's child": (Real(1), "a Real", "turn it into a float"),
    "a str of NumPy": (np.str_("x"), "a str_", "turn it into a str"),
    "a defaultdict": (collections.defaultdict(int), "a defaultdict", "turn it into a dict"),
    "a Counter": (collections.Counter("aab"), "a Counter", "turn it into a dict"),
    "an OrderedDict": (collections.OrderedDict(a=1), "an OrderedDict", "turn it into a dict"),
    "a namedtuple": (Pair(1, 2), "a Pair", "turn it into a tuple"),
    "a deque": (collections.deque([1]), "a deque", "keep numbers"),
    "records": (RECORD, "an ndarray of dtype [('a'", "keep each of its fields"),
    "a record": (RECORD[0], "a void of dtype [('a'", "keep each of its fields"),
    "raw bytes": (np.zeros(2, "V3"), "an ndarray of dtype |V3", "plain array"),
    "objects": (np.array([None]), "an ndarray of dtype object", "plain array"),
    "long doubles": (np.zeros(1, np.longdouble), "an ndarray of dtype", "plain array"),
    "a masked array": (MATRIX, "a MaskedArray", "plain array"),
    "a set": ({1}, "a set", "a sorted list"),
    "a frozenset": (frozenset(), "a frozenset", "a sorted list"),
    "a complex": (1j, "a complex", "np.complex128"),
    "bytes": (b"x", "a bytes", "np.frombuffer"),
    "a dataclass": (Config(), "a Config", "dataclasses.asdict"),
    "a date": (datetime.date(2026, 1, 1), "a date", "turn it into a str"),
    "a time": (datetime.datetime(2026, 1, 1), "a datetime", "turn it into a str"),
    "a path": (pathlib.Path("x"), "a PosixPath", "turn it into a str"),
    "a Decimal": (decimal.Decimal(1), "a Decimal", "keep numbers"),
    "a range": (range(3), "a range", "keep numbers"),
    "a function": (len, "a builtin_function_or_method", "keep numbers"),
    "a generator": (random.Random(), "a Random", "a name of run.state"),
    "half a letter": ("\ud800", "no valid Unicode", "encode it otherwise"),
    "half a letter for a key": ({"\ud800": 1}, "no valid Unicode", "encode it otherwise"),
    "a long number": (1 << MOST_BITS, f"more than {MOST_BITS} bits", "parts"),
    "a tuple for a key": ({(1, 2): 3}, "a key of type tuple", "use strings or numbers"),
    "an IntEnum for a key": ({Mode.ON: 3}, "a key of type Mode", "turn it into an int"),
    "a float of NumPy for a key": ({np.float64(1): 3}, "a key of type float64", "into a float"),
    "what is deep": (too_deep(), "is nested deeper than", "make it flat"),
    "what is in itself": (in_itself(), "is nested deeper than", "make it flat"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("go", [by_state, by_track, by_rank])
def test_what_would_come_back_otherwise_is_refused(go: Callable[[Any], Any], name: str) -> None:
    value, what, how = REFUSED[name]
    thing = "run.state.thing" if go is by_state else "run.track('seen'): thing"
    for inside in ([value], {"x": (0, value)}):
        with pytest.raises(UsageError) as caught:
            go(inside)
        text = str(caught.value)
        assert what in text and how in text and thing in text, text


@pytest.mark.parametrize("name", REFUSED)
def test_an_attribute_that_would_come_back_otherwise_is_named(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is no part of the state is as the script makes it."""
    for inside in (REFUSED[name][0], [REFUSED[name][0]], {"x": REFUSED[name][0]}):
        try:
            assert by_attribute(inside) == "first"
        except UsageError as error:
            assert str(error).startswith("model.thing"), error
        else:
            assert "model.thing can no longer be stored" in capsys.readouterr().err


@pytest.mark.parametrize(
    "value", [np.float64(0.25), np.float32(2), np.arange(3), 0.5, None], ids=range(5)
)
def test_what_an_optimizer_has_in_its_state_comes_back(value: Any) -> None:
    def made(value: Any) -> TrainingState:
        model, optimizer = nn.Linear(1, 1), optim.SGD(0.1)
        optimizer.init(model.trainable_parameters())
        optimizer.state["kept"] = value
        return TrainingState(model, optimizer)

    one, other = made(value), made(None if value is None else value * 0)
    other.install(through_a_file(one))
    assert other.optimizer is not None and same(other.optimizer.state["kept"], value)
    last = one.own()
    assert one.optimizer is not None
    one.optimizer.state["kept"] = new = 7 if value is None else value + 1
    changes = last.changed_to(one.own())
    if changes is not None:
        other.put_own(changes)
        assert same(other.optimizer.state["kept"], new)


@pytest.mark.parametrize("kind", [collections.Counter, collections.defaultdict, dict])
def test_what_is_tracked_itself_keeps_its_type(kind: Any) -> None:
    mine, theirs = kind(), kind()
    one, other = (TrainingState(nn.Linear(1, 1), None) for _ in range(2))
    one.track("seen", mine)
    other.track("seen", theirs)
    mine["a"] = 2
    mine["b"] = theirs["b"] = 3
    other.install(through_a_file(one))
    assert type(theirs) is kind and list(theirs.items()) == [("a", 2), ("b", 3)]


def test_a_generator_that_can_not_be_made_again_is_refused() -> None:
    kept = Namespace()
    with pytest.raises(UsageError, match=r"run\.state\.dice is a SystemRandom.*random\.Random"):
        kept.dice = random.SystemRandom()

    class Bits(np.random.PCG64):
        pass

    with pytest.raises(UsageError, match=r"run\.state\.rng is a generator of Bits"):
        kept.rng = np.random.Generator(Bits(1))
    with pytest.raises(UsageError, match=r"run\.state\.all\.0 is a Random.*name of run\.state"):
        kept.all = [random.Random()]


NO_RESULTS = {
    **{
        n: v
        for n, (v, _, _) in REFUSED.items()
        if n not in ("bytes", "half a letter", "a long number", "what is deep")
    },
    "a long number for a key": {1 << 70: 1},
}
NO_RESULTS.pop("half a letter for a key")


@pytest.mark.parametrize("name", NO_RESULTS)
def test_what_main_can_not_return_is_refused(name: str) -> None:
    for value in (NO_RESULTS[name], [NO_RESULTS[name]]):
        with pytest.raises(UsageError, match=r"run\.on_main\(\): .* (returned|nested)"):
            packed(value)


ODD = {"half": "\ud800", "key": {"\ud800": "\udfff"}, "long": 1 << 20_000, "less": -(1 << 20_000)}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_odd_texts_and_long_numbers_come_from_main(value: Any) -> None:
    assert unpacked(packed(value)) == value


@pytest.mark.parametrize("before, now", [(1, True), (1, 1.0), (0.0, -0.0), ("", None)])
def test_an_attribute_that_only_looks_the_same_has_changed(before: Any, now: Any) -> None:
    module: Any = nn.Linear(1, 1)
    module.thing = before
    attributes = Attributes()
    attributes.watch("model", module)
    assert attributes.capture({}) == {}
    module.thing = now
    (found,) = attributes.capture({}).values()
    assert same(found, now)
