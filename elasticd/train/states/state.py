"""The state of a training process: model, optimizer and what the script tracks, as named arrays.

A :class:`Snapshot` holds evaluated leaf arrays through handles of its own. MLX never writes into a
buffer that somebody references, so taking one copies nothing, no assignment of the script's reaches
it, and any thread may read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
from mlx.nn.layers.base import Module

from elasticd.checkpoints.codec import METADATA_KEY, Pace, model_check, model_digest, unpaced
from elasticd.errors import MismatchError, UsageError
from elasticd.train.states import containers
from elasticd.train.states.apart import set_apart
from elasticd.train.states.attributes import ATTRIBUTES, Attributes, changed_values
from elasticd.train.states.base import Base
from elasticd.train.states.containers import Beginning
from elasticd.train.states.lazy import LazyArrays
from elasticd.train.states.moments import Moments
from elasticd.train.states.stale import StaleTrees
from elasticd.train.states.structure import Structure
from elasticd.train.states.summed import Summed
from elasticd.train.states.tracked import Tracked
from elasticd.train.states.trees import (
    Slot,
    array_slots,
    arrays,
    changed,
    check_alike,
    named_in,
    put_together,
    share,
    take_apart,
)
from elasticd.types import Lineage, Point, Stamp

MODEL, OPTIMIZER, USER = "model/", "optimizer/", "user/"


def model_tree(model: Any, *, trainable: bool = False) -> dict[str, Any]:
    """The model's parameters, or those that are not frozen."""
    tree: dict[str, Any] = model.trainable_parameters() if trainable else model.parameters()
    return tree


_Paths = tuple[tuple[tuple[str, ...], int], tuple[str, ...], tuple[str, ...]]
"""What the model's arrays were when its parameters' paths were found, and which are trained."""


@dataclass(frozen=True)
class Own:
    """Model and optimizer, or some of their arrays and values, through handles of our own.
    ``plain``: the optimizer's values that are no arrays, by path; None without an optimizer.
    ``values``: what they keep beside that (attributes.py), by name."""

    tensors: Mapping[str, mx.array]
    plain: Mapping[str, Any] | None
    values: Mapping[str, Any] = field(default_factory=dict)

    def changed_to(self, now: Own) -> Own | None:
        """What is different ``now``; None if there are others than before."""
        tensors = changed(self._leaves(), now._leaves())
        kept = changed_values(self.values, self.tensors, now.values, now.tensors)
        if tensors is None or kept is None or (self.plain is None) != (now.plain is None):
            return None
        values, beside = kept
        before, after = self.plain or {}, now.plain or {}
        if before.keys() != after.keys():
            return None
        plain = {
            path: value
            for path, value in after.items()
            if before[path] != value or any(name in tensors for name in named_in(value))
        }
        return Own(tensors | beside, plain, values)

    def below(self, prefix: str) -> dict[str, mx.array]:
        """The arrays whose names begin so, by the rest of their names."""
        size = len(prefix)
        return {name[size:]: a for name, a in self.tensors.items() if name.startswith(prefix)}

    def _leaves(self) -> dict[str, mx.array]:
        return {n: a for n, a in self.tensors.items() if not n.startswith(ATTRIBUTES)}


@dataclass(frozen=True)
class Snapshot:
    """One state by reference; ``tensors`` are named as in docs/protocols.md. ``set_up``: the
    script's own code before its loop has run. ``base``: the digest of the frozen weights that
    belong to it and that nodes have from files of their own."""

    point: Point
    seed: int
    samples: int
    tensors: Mapping[str, mx.array]
    plain: Mapping[str, Any]
    parameters: tuple[str, ...]
    trainable: tuple[str, ...]
    set_up: bool = True
    base: str = ""

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.tensors.values())

    @property
    def own(self) -> Own:
        """Its model and optimizer."""
        kept = {n: array for n, array in self.tensors.items() if not n.startswith(USER)}
        return Own(kept, self.plain.get("optimizer"), self.plain.get("attributes", {}))

    @property
    def tracked(self) -> dict[str, mx.array]:
        """Its arrays of what the script tracks."""
        return {n: array for n, array in self.tensors.items() if n.startswith(USER)}

    def metadata(self) -> dict[str, str]:
        """What every file of this state carries; equal on every rank that holds it."""
        description: dict[str, Any] = {
            "step": self.point.step,
            "stamp": self.point.stamp,
            "lineage": self.point.lineage,
            "seed": self.seed,
            "layout": list(self.trainable),
            "hidden": self._hidden(),
            "random": "a function of (seed, step, grain)",
            "user": self.plain,
            "samples": self.samples,
            "set_up": self.set_up,
        }
        if self.base:
            description["base"] = self.base
        return {METADATA_KEY: json.dumps(description, sort_keys=True)}

    def _hidden(self) -> list[str]:
        """Tensors of the model that are not among its parameters."""
        shown, size = set(self.parameters), len(MODEL)
        model = [name[size:] for name in self.tensors if name.startswith(MODEL)]
        return sorted(path for path in model if path not in shown)

    def digest(self, pace: Pace = unpaced) -> str:
        """The model's digest, as ``status --json`` shows it; ``pace`` as for ``write_shard``."""
        return model_digest(self._model(), pace)

    def check(self, known: Mapping[str, str] = MappingProxyType({}), pace: Pace = unpaced) -> str:
        """What members compare of the model; ``known`` are digests of tensors by name."""
        size = len(MODEL)
        model = {name[size:]: d for name, d in known.items() if name.startswith(MODEL)}
        return model_check(self._model(), model, pace)

    def _model(self) -> dict[str, mx.array]:
        return {path: self.tensors[MODEL + path] for path in self.parameters}


@dataclass(frozen=True)
class Loaded:
    """A state as it was read from files."""

    point: Point
    tensors: Mapping[str, mx.array]
    plain: Mapping[str, Any]
    set_up: bool = True
    base: str = ""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Loaded:
        """What files of it would hold."""
        return cls(snapshot.point, snapshot.tensors, snapshot.plain, snapshot.set_up, snapshot.base)

    @classmethod
    def from_files(cls, tensors: Mapping[str, mx.array], metadata: Mapping[str, str]) -> Loaded:
        """Read what :meth:`Snapshot.metadata` wrote.

        Raises:
            MismatchError: the files are of another kind.
        """
        try:
            said = json.loads(metadata[METADATA_KEY])
            point = Point(Lineage(said["lineage"]), int(said["step"]), Stamp(said["stamp"]))
            # Before version 0.2 the code before the loop ran again over a state of step 0.
            set_up = bool(said.get("set_up", point.step > 0))
            base = str(said.get("base", ""))
            return cls(point, tensors, dict(said["user"]), set_up, base)
        except (KeyError, TypeError, ValueError) as error:
            raise MismatchError(f"the files don't hold a state of a job: {error!r}") from error

    def part(self, prefix: str) -> dict[str, mx.array]:
        """The tensors below ``prefix``, by the rest of their name."""
        size = len(prefix)
        return {name[size:]: a for name, a in self.tensors.items() if name.startswith(prefix)}


class TrainingState:
    """Model, optimizer and tracked objects of this process. For the training thread alone.

    The optimizer and tracked objects may come later than a loaded state: what was loaded for them
    is kept until they do.
    """

    def __init__(
        self, model: Module, optimizer: optim.Optimizer | None, base: Base | None = None
    ) -> None:
        """``base``: what of the model is no part of the state."""
        self.model, self.base = model, base or Base()
        self.optimizer: optim.Optimizer | None = None
        self._tracked: dict[str, Tracked] = {}
        self.stale = StaleTrees()
        self._waiting_optimizer: tuple[dict[str, mx.array], dict[str, Any]] | None = None
        self._waiting_user: dict[str, tuple[Any, dict[str, mx.array]]] = {}
        self._paths: _Paths = ((), -1), (), ()
        self.summed: Summed | None = None
        """Known from the job's first grain on."""
        self._structure = Structure(self.base.without(arrays(model.state)))
        self.attributes = Attributes()
        self.attributes.watch("model", model)
        self.lazy = LazyArrays(model, self.attributes)
        self._beginning: Beginning | None = None
        self._moments: Moments | None = None
        if optimizer is not None:
            self.attach(optimizer, late=False)

    def attach(self, optimizer: optim.Optimizer, *, late: bool = True) -> None:
        """Make ``optimizer`` part of the state; what was loaded for it is installed. ``late``:
        there are states of this run without it.

        Raises:
            UsageError: another one is part of it already.
            MismatchError: what was loaded is of another optimizer.
        """
        if optimizer is self.optimizer:
            return
        if self.optimizer is not None:
            raise UsageError("one run has one optimizer (MultiOptimizer joins several)")
        if not isinstance(optimizer, optim.Optimizer):
            kind = optimizer if isinstance(optimizer, type) else type(optimizer)
            what = f"the class {kind.__name__}" if kind is optimizer else f"a {kind.__name__}"
            raise UsageError(f"optimizer= is {what}; give one of MLX's, as in optim.Adam(0.001)")
        self._moments = Moments(optimizer, self.model)
        self._moments.may_renew(not late)
        self.optimizer = optimizer
        self._beginning = Beginning.of(optimizer, self._optimizer_slots(), late)
        self.attributes.watch("optimizer", optimizer)
        if self._waiting_optimizer is not None:
            saved, self._waiting_optimizer = self._waiting_optimizer, None
            self._put_optimizer(*saved)

    def track(self, name: str, thing: Any) -> None:
        """Make ``thing`` part of the state; what was loaded for it is installed.

        Raises:
            UsageError: the name is taken or no name, or the thing can't be stored.
        """
        self.check_name(name)
        tracked = Tracked.of(name, thing)
        if name in self._waiting_user:
            tracked.put(put_together(*self._waiting_user.pop(name)))
        self._tracked[name] = tracked
        self.stale.watch(name, thing)
        self.attributes.watch(USER + name, thing)

    def check_name(self, name: str) -> None:
        """Raise UsageError if nothing can be tracked under it."""
        if not name or "/" in name or self.tracks(name):
            raise UsageError(f"run.track: {name!r} is taken, empty, or has a slash")

    def tracks(self, name: str) -> bool:
        """Whether something is tracked under that name."""
        return name in self._tracked

    def model_slots(self) -> dict[str, Any]:
        """The places of the model's arrays, hidden ones included, by path."""
        return array_slots(self.model.state)

    def _held_slots(self) -> dict[str, Any]:
        """Those whose arrays are part of the state."""
        return self.base.without(self.model_slots())

    def parameters(self) -> dict[str, mx.array]:
        """The model's parameters that are part of the state."""
        return self.base.without(arrays(model_tree(self.model)))

    def check_structure(self, now: Mapping[str, mx.array]) -> None:
        """Raise UsageError unless the model has the arrays that it had at ``Run(…)``."""
        self._structure.check(self.base.without(self.lazy.without(now)))

    def may_renew(self, may: bool) -> None:
        """Whether the model may be given other weights before anything is computed with it."""
        if self._moments is not None:
            self._moments.may_renew(may)

    def renew(self) -> None:
        """What the optimizer keeps is made anew if the model has been given other weights since."""
        if self._moments is not None and self._moments.renew():
            self.normalize()

    def normalize(self) -> None:
        """Give every leaf the row-major layout that a loaded one has, since the kernel that runs,
        and so the bits, may depend on it."""
        for slot in (*self.model_slots().values(), *self._optimizer_slots().values()):
            if isinstance(slot.value, mx.array):
                slot.put(mx.contiguous(slot.value))
        self.evaluate()

    def evaluate(self) -> None:
        """Evaluate every leaf."""
        mx.eval(self.model.state, self.optimizer.state if self.optimizer else [])

    def own(self) -> Own:
        """What model and optimizer are now."""
        tensors = {MODEL + path: slot.value for path, slot in self._held_slots().items()}
        plain: dict[str, Any] | None = None
        if self._waiting_optimizer is not None:
            waiting, plain = self._waiting_optimizer
            tensors |= {OPTIMIZER + path: array for path, array in waiting.items()}
        elif self.optimizer is not None:
            plain = {}
            for path, slot in self._optimizer_slots().items():
                value = slot.value
                if isinstance(value, mx.array):
                    tensors[OPTIMIZER + path] = value
                else:
                    plain[path] = take_apart(value, OPTIMIZER + path, tensors)
        self.attributes.renew()
        values = self.attributes.capture(tensors)
        mx.eval(tensors)
        return Own({name: share(array) for name, array in tensors.items()}, plain, values)

    def capture(self, point: Point, seed: int, samples: int, *, set_up: bool = True) -> Snapshot:
        """A snapshot of the present state, which is that of ``point``."""
        set_apart((self.model, self.optimizer, *(each.thing for each in self._tracked.values())))
        own = self.own()
        self.check_structure(own.below(MODEL))
        tensors = dict(own.tensors)
        if point.step == 0:
            # A process may have made a forward pass before the others do.
            for path in self.lazy.paths:
                tensors.pop(MODEL + path, None)
        plain: dict[str, Any] = {} if own.plain is None else {"optimizer": own.plain}
        plain |= {"attributes": own.values, "tracked": self._capture_user(tensors)}
        mx.eval(tensors)
        # Nor does anybody say that it has seen a grain.
        if self.summed is not None and point.step > 0:
            plain["summed"] = self.summed.plain()
        model = tuple(own.below(MODEL))
        parameters, trainable = self._parameter_paths(model)
        base = self.base.digest
        return Snapshot(point, seed, samples, tensors, plain, parameters, trainable, set_up, base)

    def _capture_user(self, tensors: dict[str, mx.array]) -> dict[str, Any]:
        plain = {}
        for name in sorted({*self._tracked, *self._waiting_user}):
            if name in self._tracked:
                plain[name] = take_apart(self._tracked[name].get(), f"{USER}{name}/", tensors)
            else:
                plain[name], held = self._waiting_user[name]
                tensors |= held
        return plain

    def _parameter_paths(
        self, model_paths: tuple[str, ...]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        seen = (model_paths, self.attributes.thaws)
        if self._paths[0] != seen:
            trainable = tuple(arrays(model_tree(self.model, trainable=True)))
            self.base.check(trainable)
            self._paths = (seen, tuple(self.parameters()), trainable)
        return self._paths[1], self._paths[2]

    def install(self, loaded: Loaded) -> None:
        """Put a loaded state in place of the present one.

        Raises:
            MismatchError: naming the first difference; nothing was changed then.
        """
        self.base.check_state(loaded.base)
        model = loaded.part(MODEL)
        here = {path: slot.value for path, slot in self._held_slots().items()}
        made = self.lazy.missing(here, model)
        given = {path: array for path, array in model.items() if path not in made}
        check_alike(
            "model:", {p: a for p, a in here.items() if p not in self.lazy or p in model}, given
        )
        optimizer = loaded.part(OPTIMIZER)
        if "optimizer" in loaded.plain:
            self._put_optimizer(optimizer, loaded.plain["optimizer"])
        elif self._beginning is not None and self._moments is not None:
            self._beginning.put_back()
            self._moments.restart()
        self.lazy.fit(model, made)
        for path, slot in self._held_slots().items():
            slot.put(share(model[path]))
        self.put_tracked(loaded.plain["tracked"], loaded.tensors)
        self.attributes.install(loaded.plain.get("attributes", {}), loaded.tensors)
        self.summed = Summed.from_plain(loaded.plain.get("summed"))

    def put_tracked(self, plain: Mapping[str, Any], tensors: Mapping[str, mx.array]) -> None:
        """Put what the script tracks in place of what it is."""
        self._waiting_user.clear()
        for name, content in plain.items():
            if name in self._tracked:
                self._tracked[name].put(put_together(content, tensors))
            else:
                prefix = f"{USER}{name}/"
                held = {n: a for n, a in tensors.items() if n.startswith(prefix)}
                self._waiting_user[name] = (content, held)

    def put_own(self, changes: Own) -> None:
        """Put arrays and values of model and optimizer in place of those of the same names."""
        places = {MODEL + path: slot for path, slot in self.model_slots().items()}
        places |= {OPTIMIZER + path: slot for path, slot in self._optimizer_slots().items()}
        for name, array in changes.tensors.items():
            if not name.startswith(ATTRIBUTES):
                places[name].put(share(array))
        self.attributes.update(changes.values, changes.tensors)
        for path, value in (changes.plain or {}).items():
            places[OPTIMIZER + path].put(put_together(value, changes.tensors))

    def load_parameters(self, given: Mapping[str, mx.array], where: str) -> None:
        """Put plain parameters, named as in ``model.parameters()``, in place of the model's.

        Raises:
            MismatchError: naming the first difference; nothing was changed then.
        """
        check_alike(f"{where}:", self.parameters(), given)
        places = self.model_slots()
        for path, array in given.items():
            places[path].put(share(array))

    def _put_optimizer(self, saved: dict[str, mx.array], plain: dict[str, Any]) -> None:
        if self.optimizer is None:
            self._waiting_optimizer = (saved, plain)
            return
        saved = dict(saved)
        assert self._moments is not None
        of_plain = {name for value in plain.values() for name in named_in(value)}
        held = {name: saved.pop(name.removeprefix(OPTIMIZER)) for name in of_plain}
        wanted = {*saved, *plain}
        places = self._optimizer_slots()
        if places.keys() != wanted:
            self._moments.fit(wanted)
            places = self._optimizer_slots()
        places = self._fitted(places, wanted)
        if places.keys() != wanted:
            mine = {path: s.value for path, s in places.items() if isinstance(s.value, mx.array)}
            check_alike("optimizer:", mine, saved, kinds=False)
            odd = min(places.keys() ^ wanted)
            raise MismatchError(
                f"optimizer: {odd!r} is {'absent here' if odd in wanted else 'here only'}"
            )
        for path, array in saved.items():
            places[path].put(share(array))
        for path, value in plain.items():
            places[path].put(put_together(value, held))

    def _fitted(self, places: dict[str, Slot], saved: set[str]) -> dict[str, Slot]:
        """The places of the optimizer's leaves, which are the ``saved`` ones if they can be."""
        assert self.optimizer and self._moments and self._beginning
        shape, others = self._moments.shape, places.keys() ^ saved
        # What a body keeps beside that of the parameters may come too.
        if not (containers.makes_leaves(self.optimizer) or not any(map(shape.of, others))):
            return places
        return containers.fit(self.optimizer.state, shape, self._beginning.leaves, saved) or places

    def _optimizer_slots(self) -> dict[str, Slot]:
        if self.optimizer is None or self._moments is None:
            return {}
        return self._moments.shape.leaves(self.optimizer.state)

    def update(self, gradients: Any) -> None:
        """Have the optimizer update the model, and evaluate what comes of it."""
        assert self.optimizer is not None and self._moments is not None
        self.optimizer.update(self.model, self._moments.begin(gradients))
        self.evaluate()

    def copy(self) -> Callable[[], None]:
        """Remember model and optimizer by reference; the result puts them back."""
        places = list(self.model_slots().values())
        values = [slot.value for slot in places]
        attributes, moments = self.attributes.look(), self._moments
        begun = moments.begun if moments is not None else frozenset()
        put_back = containers.remember(self.optimizer.state if self.optimizer else [])

        def restore() -> None:
            for slot, value in zip(places, values, strict=True):
                slot.put(value)
            put_back()
            if moments is not None:
                moments.begun = begun
            self.attributes.put_back(attributes)

        return restore
