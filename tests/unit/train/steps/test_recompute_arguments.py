"""Whatever a block is given, and gives back, it computes the same when it recomputes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import pytest

from elasticd.train.states.trees import arrays, same_bits
from elasticd.train.steps.recompute import Unwritten, switch_off, switch_on

Walk = Callable[[list[Any], mx.array], Any]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(8, 16), nn.Linear(16, 8), nn.Dropout(0.3)
        self.calls = 0

    def change(self, x: mx.array) -> mx.array:
        self.calls += 1
        return self.drop(self.down(nn.tanh(self.up(x))))


class Net(nn.Module):
    """``walk`` is given the blocks and what goes into the first one."""

    def __init__(self, kind: type[Block], walk: Walk) -> None:
        super().__init__()
        self.first, self.blocks = nn.Linear(4, 8), [kind() for _ in range(3)]
        self._walk = [walk]

    def __call__(self, x: mx.array) -> Any:
        return self._walk[0](self.blocks, self.first(x))


class ListBlock(Block):
    def __call__(self, x: mx.array, balance: list[mx.array]) -> mx.array:
        balance.append(mx.square(self.up(x)).mean())
        return x + self.change(x)


def into_a_list(blocks: list[Any], x: mx.array) -> Any:
    balance: list[mx.array] = []
    for block in blocks:
        x = block(x, balance)
    return x.sum() + sum(balance)


class DictBlock(Block):
    def __call__(self, x: mx.array, *, info: dict[str, Any]) -> mx.array:
        info["aux"] = info.get("aux", 0.0) + mx.square(self.up(x)).mean()
        return x + self.change(x)


def into_a_dict_by_name(blocks: list[Any], x: mx.array) -> Any:
    info: dict[str, Any] = {}
    for block in blocks:
        x = block(x, info=info)
    return x.sum() + info["aux"]


class InTuple(Block):
    def __call__(self, x: mx.array, given: tuple[Any, list[mx.array]]) -> mx.array:
        given[1].append(mx.square(x).mean())
        return x + self.change(x)


def into_a_list_in_a_tuple(blocks: list[Any], x: mx.array) -> Any:
    seen: list[mx.array] = []
    for block in blocks:
        x = block(x, (1, seen))
    return x.sum() + sum(seen)


@dataclass
class Residuals:
    seen: list[mx.array] = field(default_factory=list)

    def next(self, x: mx.array) -> mx.array:
        self.seen.append(x)
        return sum(self.seen) / len(self.seen)  # type: ignore[return-value]


class ResidualBlock(Block):
    def __call__(self, x: mx.array, residuals: Residuals) -> mx.array:
        return self.change(residuals.next(x))


def into_an_object_that_is_read(blocks: list[Any], x: mx.array) -> Any:
    residuals = Residuals()
    for block in blocks:
        x = block(x, residuals)
    return residuals.next(x).sum()


class SharedBlock(Block):
    def __call__(self, x: mx.array, shared: nn.Linear) -> mx.array:
        return x + shared(self.change(x))


def a_module(blocks: list[Any], x: mx.array) -> Any:
    mx.random.seed(9)
    shared = nn.Linear(8, 8)
    for block in blocks:
        x = block(x, shared)
    return x.sum()


class Gains(NamedTuple):
    one: mx.array
    two: mx.array


class GainBlock(Block):
    def __call__(self, x: mx.array, gains: Gains) -> mx.array:
        return x * gains.one + self.change(x) * gains.two


def a_tuple_with_names(blocks: list[Any], x: mx.array) -> Any:
    for block in blocks:
        x = block(x, Gains(x.mean(), x.max()))
    return x.sum()


class PlacedBlock(Block):
    def __call__(
        self, x: mx.array, gains: tuple[Any, ...] = (), *, scale: mx.array, kind: str = ""
    ) -> mx.array:
        assert kind == "causal" and gains[2:] == ((None, 3),)
        gained: mx.array = x * gains[0] + scale * self.change(x) * gains[1]
        return gained


def arrays_in_tuples_and_by_name(blocks: list[Any], x: mx.array) -> Any:
    gain = mx.array(0.7)
    for block in blocks:
        x = block(x, (gain, gain + 0.1, (None, 3)), scale=gain - 0.2, kind="causal")
    return x.sum()


class InPlace(Block):
    def __call__(self, x: mx.array, bias: mx.array) -> mx.array:
        bias += mx.abs(x).mean()
        x += self.change(x) + bias
        x[0] = x[0] * 2.0
        return x


def into_arrays_in_place(blocks: list[Any], x: mx.array) -> Any:
    bias, seen = x.mean(), []
    for block in blocks:
        seen.append(x)
        x = block(x, bias)
    return x.sum() + sum(mx.square(each).mean() for each in seen) + bias


class TwiceBlock(Block):
    def __call__(self, x: mx.array, same: mx.array) -> mx.array:
        x += 1.0
        return same + self.change(x)


def one_array_twice(blocks: list[Any], x: mx.array) -> Any:
    for block in blocks:
        x = block(x, x)
    return x.sum()


class Cacheless(Unwritten):
    def __init__(self, mask: mx.array) -> None:
        self.mask = mask


class MaskedBlock(Block):
    def __call__(self, x: mx.array, cache: Cacheless) -> mx.array:
        masked: mx.array = x + self.change(x) * cache.mask
        return masked


def an_object_that_stays_as_it_is(blocks: list[Any], x: mx.array) -> Any:
    cache = Cacheless(mx.array([1.0, 0.0] * 4))
    for block in blocks:
        x = block(x, cache)
    return x.sum()


class Said:
    def __init__(self, x: mx.array) -> None:
        self.x = x


class ObjectBlock(Block):
    def __call__(self, x: mx.array) -> Said:
        return Said(x + self.change(x))


def an_object_that_comes_back(blocks: list[Any], x: mx.array) -> Any:
    for block in blocks:
        x = block(x).x
    return x.sum()


class ManyBlock(Block):
    def __call__(self, x: mx.array, bias: mx.array) -> Any:
        y = x + self.change(x)
        gains = Gains(y.mean(), y.max())
        return y, bias, gains, OrderedDict(y=y), {"none": None, "list": [y, 1.5]}


def containers_that_come_back(blocks: list[Any], x: mx.array) -> Any:
    bias, total = x.mean(), mx.array(0.0)
    for block in blocks:
        x, same, gains, ordered, rest = block(x, bias)
        assert same is bias and isinstance(ordered, OrderedDict) and rest["none"] is None
        total += gains.one * gains.two + ordered["y"].mean() + rest["list"][0].max()
        x += rest["list"][1]
    return x.sum() + total + bias


class SkipBlock(Block):
    def __call__(self, x: mx.array) -> mx.array:
        return x + self.change(x)


def what_is_used_outside_too(blocks: list[Any], x: mx.array) -> Any:
    seen = []
    for block in blocks:
        seen.append(x)
        x = block(x)
    return x.sum() + sum(mx.square(each).mean() for each in seen)


CASES: list[tuple[type[Block], Walk, bool, float]] = [
    (ListBlock, into_a_list, False, 0),
    (DictBlock, into_a_dict_by_name, False, 0),
    (InTuple, into_a_list_in_a_tuple, False, 0),
    (ResidualBlock, into_an_object_that_is_read, False, 0),
    (SharedBlock, a_module, False, 0),
    (GainBlock, a_tuple_with_names, False, 0),
    (PlacedBlock, arrays_in_tuples_and_by_name, True, 0),
    (InPlace, into_arrays_in_place, True, 1e-4),
    (TwiceBlock, one_array_twice, True, 0),
    (MaskedBlock, an_object_that_stays_as_it_is, True, 0),
    (ObjectBlock, an_object_that_comes_back, False, 0),
    (ManyBlock, containers_that_come_back, True, 1e-4),
    (SkipBlock, what_is_used_outside_too, True, 1e-4),
]
"""Whether they recompute, and how far gradients may be apart: where what goes into a block is used
outside of it, too, MLX adds them up in another order."""


def trained(kind: type[Block], walk: Walk, recompute: bool) -> tuple[dict[str, mx.array], int]:
    mx.random.seed(5)
    model = Net(kind, walk)
    if recompute:
        assert switch_on(model) == 3
    grad = nn.value_and_grad(model, lambda m, x: m(x))
    found: dict[str, mx.array] = {}
    for number in range(3):
        mx.random.seed(number)
        loss, gradients = grad(model, mx.random.normal((6, 4)))
        mx.eval(loss, gradients, model.state)
        found |= {f"{number}/{path}": array for path, array in arrays(gradients).items()}
        found[f"{number}/loss"] = loss
    return found, sum(block.calls for block in model.blocks)


@pytest.mark.parametrize(
    ("kind", "walk", "again", "apart"), CASES, ids=[case[1].__name__ for case in CASES]
)
def test_a_block_computes_the_same_whatever_it_is_given(
    kind: type[Block], walk: Walk, again: bool, apart: float
) -> None:
    plain, once = trained(kind, walk, recompute=False)
    recomputed, calls = trained(kind, walk, recompute=True)
    assert calls == once * (2 if again else 1)
    assert plain.keys() == recomputed.keys()
    for name, array in plain.items():
        if apart and not name.endswith("loss"):
            assert mx.allclose(array, recomputed[name], apart, apart).item(), name
        else:
            assert same_bits(array, recomputed[name]), name


def test_who_keeps_its_activations_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    class Teller(ListBlock):
        pass

    class ByName(DictBlock):
        pass

    class Inside(InTuple):
        pass

    trained(Teller, into_a_list, recompute=True)
    trained(ByName, into_a_dict_by_name, recompute=True)
    trained(Inside, into_a_list_in_a_tuple, recompute=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(", into")[0].partition("its argument ")[::2] for line in lines] == [
        (f"elasticd: {name} keeps its activations, also where memory is short: ", what)
        for name, what in (
            ("Teller", "balance is of type list"),
            ("ByName", "info is of type dict"),
            ("Inside", "given holds one of type list"),
        )
    ]


def test_blocks_that_recompute_already_do_it_once() -> None:
    """As with a recipe's grad_checkpoint, when memory runs out besides; and when it is back."""
    model = Net(PlacedBlock, arrays_in_tuples_and_by_name)
    counts = []
    for switch in (switch_on, switch_on, switch_off):
        switch(model)
        for block in model.blocks:
            block.calls = 0
        mx.eval(nn.value_and_grad(model, lambda m, x: m(x))(model, mx.ones((6, 4))))
        counts.append([block.calls for block in model.blocks])
    assert counts == [[2] * 3] * 3
