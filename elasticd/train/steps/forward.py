"""What a forward pass does to the model's state: every grain starts from the step's committed
state, and what a pass changes is found, summed or refused.

A private array that a pass makes anew in another shape, as a cache for a longer batch, is that
pass's own: the next one starts from the committed one. That it is a cache is tried: a pass that
starts from what it has made leaves the same. A memory that grows with each pass does not. So it is
with what a pass puts into a private dict. That has to be the same under one key in all passes of
this process: a cache that came of a grain's samples, or of parameters, is another in each.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import mlx.core as mx

from elasticd.errors import UsageError
from elasticd.train.states.lazy import is_private
from elasticd.train.states.state import TrainingState
from elasticd.train.states.summed import is_statistic
from elasticd.train.states.trees import Slot, describe, same_bits, same_place, share
from elasticd.train.steps.layout import Layout
from elasticd.train.steps.passcaches import KnownEntries, PassCaches, PassEntry, arrays_of, put_back


class _Trial(NamedTuple):
    """A pass that is made once more, and finds what it has made. Then, ``anew``, it has to make
    again what is in dicts: where it is compiled it wouldn't, and MLX would take other arrays for
    these. Twice, as the first of them may be traced."""

    grain: int
    regrown: dict[str, mx.array]
    """Private arrays of another shape than before."""
    entries: list[PassEntry]
    anew: int = 0

    @property
    def arrays(self) -> dict[str, mx.array]:
        """What it is to leave again."""
        return self.regrown | arrays_of(self.entries)


class Forward:
    """The model around the forward passes of one step."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._slots: dict[str, Slot] = {}
        self._delicate: frozenset[str] | None = None
        """What passes assign; None before the first pass of this process, which may assign all."""
        self.base: dict[str, mx.array] = {}
        """The committed state, by path; empty between steps."""
        self._caches: set[str] = set()
        """Private arrays that were tried."""
        self._entries = KnownEntries()
        """Of private dicts, what was tried."""
        self._dicts = PassCaches(state.model)
        self._trial: _Trial | None = None
        self.set_up: list[str] = []
        """What to say, in sentences, of arrays that this process's first pass has set up, and that
        no later one will."""

    def begin(self, grain: int | None) -> None:
        """Put the committed state in place, before a pass of ``grain``; None: of one that is only
        shown, and tries nothing."""
        if self._trial is not None and self._trial.grain != grain:
            self._trial = None
        if not self.base:
            self._slots = self._state.model_slots()
            self.base = {path: slot.value for path, slot in self._slots.items()}
            self._state.check_structure(self.base)
            self._dicts.step_begins()
            if self._delicate is None or self._delicate:
                self._keep_apart()
            if self._delicate is None:
                self._state.attributes.begin_pass()
        self.restore()
        if self._trial is not None:
            for path, array in self._trial.regrown.items():
                self._slots[path].put(array)
            put_back([] if self._trial.anew else self._trial.entries)

    def _keep_apart(self) -> None:
        """Hold what a pass may write in place through handles of our own."""
        for path in self.base if self._delicate is None else self._delicate:
            if path in self.base:
                self.base[path] = share(self.base[path])
        mx.eval(self.base)

    def restore(self) -> None:
        """Put the committed state in place."""
        self._dicts.clear()
        delicate = self._delicate
        for path, array in self.base.items():
            if delicate is None or path in delicate:
                self._slots[path].put(share(array))
            elif self._slots[path].value is not array:
                self._slots[path].put(array)

    @property
    def on_trial(self) -> bool:
        """Whether the last pass is to be made once more."""
        return self._trial is not None

    def drop_trial(self) -> None:
        """Grains are others from now on."""
        self._trial = None

    def forget(self) -> None:
        """The step is reduced: what comes next is another state."""
        self._slots, self.base, self._trial = {}, {}, None

    @property
    def is_first(self) -> bool:
        """Whether this process has made no pass before."""
        return self._delicate is None

    def find_assigned(self, given: Container[str], *outputs: Any) -> dict[str, mx.array]:
        """After this process's first pass: the arrays that it assigned, by path. Not by their bits:
        a buffer that has converged is assigned all the same. But of what is ``given`` a gradient
        only those whose bits are others. Private arrays that it made for later passes, or in
        another shape, are no part of that: the former are committed at once, as this pass, which
        is of grain 0 everywhere, has made them.

        Raises:
            UsageError: the pass made other arrays come, or any go.
        """
        switched = self._state.attributes.end_pass()
        entries = arrays_of(self._dicts.made())
        slots = self._state.model_slots()
        after = {path: slot.value for path, slot in slots.items() if path not in entries}
        come, gone = after.keys() - self.base.keys(), self.base.keys() - after.keys()
        if gone or not self._state.lazy.admit(come):
            which = min(gone or come, key=lambda path: (is_private(path), path))
            raise UsageError(f"the forward pass made {which} come or go; make it beforehand")
        mx.eval(outputs, after)
        self._slots |= {path: slots[path] for path in come}
        self.base |= {path: after[path] for path in come}
        assigned = {
            path: array
            for path, array in after.items()
            if path not in come
            and not self._is_regrown(path, array)
            and not (same_bits if path in given else same_place)(self.base[path], array)
        }
        self.set_up = _set_up(assigned, switched)
        return assigned

    def accept(self, layout: Layout) -> None:
        """``layout`` says what a pass may change."""
        self._delicate = layout.state_paths

    def state_of(self, layout: Layout) -> dict[str, mx.array]:
        """The state that a pass may change, as it left it.

        Raises:
            UsageError: it took some away.
        """
        return {leaf.path: self._left(leaf.path) for leaf in layout.state}

    def replaced(self, layout: Layout, given: Container[str]) -> dict[str, mx.array]:
        """Arrays that the pass replaced though it isn't known to change them (a compiled function
        that returns the model's state replaces all), not evaluated; but those that are ``given`` a
        gradient.

        Raises:
            UsageError: it took one away.
        """
        return {
            path: left
            for path, base in self.base.items()
            if path not in layout.state_paths
            and path not in given
            and (left := self._left(path)) is not base
        }

    def _left(self, path: str) -> mx.array:
        """What the pass has left there."""
        with suppress(LookupError):
            left = self._slots[path].value
            if isinstance(left, mx.array):
                return left
        raise UsageError(
            f"a forward pass took away {path}, which was {describe(self.base[path])}: let every "
            "pass leave an array of that shape there, or keep what comes and goes outside of the "
            "module"
        )

    def tries_again(self, grain: int, replaced: Mapping[str, mx.array]) -> bool:
        """Whether the pass of ``grain`` has to be made once more, to see if what it ``replaced`` in
        another shape are caches.

        Raises:
            UsageError: they aren't; names the first.
        """
        made = _Trial(
            grain,
            {path: a for path, a in replaced.items() if self._is_regrown(path, a)},
            self._dicts.made(),
        )
        entries = arrays_of(made.entries)
        trial, self._trial = self._trial, None
        if trial is None:
            self._entries.check(entries)
            if made.regrown.keys() <= self._caches and self._entries.has(entries):
                return False
        now = made.arrays
        mx.eval(now)
        if trial is None:
            self._trial = made
            return True
        tried = trial.arrays
        for path in sorted(tried.keys() - now.keys()):
            raise UsageError(
                f"a forward pass put {path} into a private dict. When that was taken away the next "
                "pass of the same samples didn't make it again. If a compiled function makes it, "
                "make it above Run(…) instead"
            )
        for path, array in sorted(now.items()):
            if path not in tried or not same_bits(array, tried[path]):
                raise UsageError(self._unknown(path, array))
        if entries and trial.anew < 2:
            self._trial = made._replace(anew=trial.anew + 1)
            return True
        self._caches |= made.regrown.keys()
        self._entries.add(entries)
        return False

    def _is_regrown(self, path: str, now: mx.array) -> bool:
        base = self.base.get(path)
        unlike = base is not None and (now.shape, now.dtype) != (base.shape, base.dtype)
        return unlike and is_private(path)

    def refuse_unknown_changes(self, replaced: Mapping[str, mx.array]) -> None:
        """Arrays that the job's first pass left alone must still be as they were, but for caches.

        Raises:
            UsageError: naming the first that isn't.
        """
        for path in sorted(replaced):
            now = replaced[path]
            if not self._is_regrown(path, now) and not same_bits(now, self.base[path]):
                raise UsageError(self._unknown(path, now))

    def _unknown(self, path: str, now: mx.array) -> str:
        """What to say of an array that a pass has changed."""
        if path not in self.base:
            return (
                f"a forward pass put {path} into a private dict, and something else where it found "
                "that: passes go on with what others left. Make it in __init__ with its shape, and "
                "let every pass assign it; or change it in the loop's body, or keep it in run.state"
            )
        if self._is_regrown(path, now):
            return (
                f"a forward pass made {describe(now)} of {path}, which was "
                f"{describe(self.base[path])}, and another one when it found that: passes go on "
                "with what others left. Make it in __init__ with a shape that stays, and let every "
                "pass assign it; or change it in the loop's body, or keep it in run.state"
            )
        if path in self._state.lazy:
            return (
                f"a forward pass changed {path}, which the job's first pass made and left for all "
                "later ones. If it is for one pass alone keep it outside of the module: return "
                "it. If later passes go on with it make it in __init__ with its shape, and let "
                "every pass assign it"
            )
        return (
            f"a forward pass changed {path}, which the first pass of the job left alone: "
            "let every pass assign it, as in x = mx.where(condition, changed, x). "
            "Statistics named running_mean and running_var may change from any step on"
        )


def _set_up(assigned: Mapping[str, mx.array], switched: Sequence[str]) -> list[str]:
    """Of arrays beside something that the same pass has ``switched``, in the same module."""
    found = []
    for path, array in sorted(assigned.items()):
        holder = f"model.{path}".rpartition(".")[0]
        beside = [name for name in switched if name.partition(":")[0] == holder]
        if beside and mx.issubdtype(array.dtype, mx.floating) and not is_statistic(path):
            found.append(
                f"the first forward pass assigns the model's {path} and changes "
                f"{beside[0].replace(':', '.')}. Each pass finds the array as it was when the step "
                "began, but not that value: if it says that the array is set up, it never is. Set "
                "it up above the loop, or in its body (docs/writing-jobs.md, What a forward pass "
                "changes)"
            )
    return found
