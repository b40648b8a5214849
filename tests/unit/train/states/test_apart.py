"""What lies in several places of the state is several things behind a body."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

from elasticd.train.states.apart import set_apart
from elasticd.train.states.namespace import Namespace
from elasticd.train.states.ranks import Ranks
from elasticd.train.states.state import TrainingState
from elasticd.types import Lineage, Point, Stamp


def model() -> Any:
    made: Any = nn.Linear(2, 2)
    made.centers = mx.zeros(3)
    return made


def test_an_array_of_the_model_and_of_run_state_become_two() -> None:
    net, kept = model(), Namespace()
    kept.last, before = net.centers, net.centers
    set_apart([net, kept])
    net.centers[0] = 5
    assert net.centers is before
    assert kept.last.tolist() == [0, 0, 0]


def test_so_do_a_tracked_tree_s_and_those_of_an_optimizer() -> None:
    net, optimizer = model(), optim.SGD(0.1, momentum=0.9)
    optimizer.init(net.trainable_parameters())
    optimizer.state["weight"]["slow"] = net.weight
    tracked: dict[str, Any] = {"all": ({"w": net.weight}, 1), "own": [mx.zeros(2)]}
    own = tracked["own"]
    set_apart([net, optimizer, tracked])
    net.weight += 1
    assert not mx.any(optimizer.state["weight"]["slow"] == net.weight).item()
    assert not mx.any(tracked["all"][0]["w"] == net.weight).item()
    assert tracked["own"] is own


def test_containers_by_two_names_become_two() -> None:
    kept, optimizer = Namespace(), optim.SGD(0.1, momentum=0.9)
    optimizer.init({"w": mx.zeros(2)})
    kept.all = kept.lately = ["a"]
    kept.first = kept.all, {"all": kept.all}
    kept.moments = optimizer.state
    set_apart([optimizer, kept])
    kept.all.append("b")
    optimizer.state["w"]["v"] += 1
    assert kept.lately == ["a"] and kept.first == (["a"], {"all": ["a"]})
    assert kept.moments["w"]["v"].tolist() == [0, 0]


def test_numpy_s_arrays_may_show_parts_of_one() -> None:
    kept, table = Namespace(), np.zeros((2, 2))
    kept.table, kept.row = table, table[0]
    set_apart([kept])
    kept.table[0, 0] = 5
    assert kept.table is table and kept.row.tolist() == [0, 0]


def test_what_is_in_one_place_stays_the_same_object() -> None:
    kept, history, scale = Namespace(), [1, [2]], mx.zeros(2)
    kept.history, kept.scale = history, scale
    for _ in range(2):
        set_apart([kept, history])
    assert kept.history is history and kept.scale is scale


def test_a_module_in_two_places_stays_one() -> None:
    net, teacher = nn.Sequential(nn.Linear(2, 2)), nn.Sequential()
    net.layers.append(net.layers[0])
    teacher.layers = net.layers
    set_apart([net, teacher])
    assert net.layers[0] is net.layers[1] and teacher.layers is net.layers


def test_what_each_rank_has_of_its_own_is_set_apart_too() -> None:
    net, ranks = model(), Ranks()
    mine = {"last": net.centers}
    ranks.track("mine", mine)
    set_apart([net, ranks])
    net.centers += 1
    assert mine["last"].tolist() == [0, 0, 0]


def test_what_holds_itself_is_left_to_who_refuses_it() -> None:
    kept, ring = Namespace(), list[Any]()
    kept.ring = ring
    ring += [ring] * 5
    set_apart([kept])


def test_they_are_apart_where_a_state_was_taken() -> None:
    net = model()
    net.freeze()
    state, kept = TrainingState(net, optim.SGD(0.1)), {"last": net.centers}
    state.track("kept", kept)
    state.capture(Point(Lineage("l"), 0, Stamp("s")), 0, 0)
    net.centers[0] = 5
    assert kept["last"].tolist() == [0, 0, 0]
