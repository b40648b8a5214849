"""What a forward pass does to the model's state: every grain starts from the step's committed
state, and what a pass changes is found, summed or refused."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import mlx.core as mx

from elasticd.errors import UsageError
from elasticd.train.states.lazy import is_private
from elasticd.train.states.state import TrainingState
from elasticd.train.states.trees import Slot, same_bits, same_place, share
from elasticd.train.steps.layout import Layout


class Forward:
    """The model around the forward passes of one step."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._slots: dict[str, Slot] = {}
        self._delicate: frozenset[str] | None = None
        """What passes assign; None before the first pass of this process, which may assign all."""
        self.base: dict[str, mx.array] = {}
        """The committed state, by path; empty between steps."""

    def begin(self) -> None:
        """Put the committed state in place, before a grain."""
        if not self.base:
            self._slots = self._state.model_slots()
            self.base = {path: slot.value for path, slot in self._slots.items()}
            self._state.check_structure(self.base)
            if self._delicate is None or self._delicate:
                self._keep_apart()
            if self._delicate is None:
                self._state.attributes.begin_pass()
        self.restore()

    def _keep_apart(self) -> None:
        """Hold what a pass may write in place through handles of our own."""
        for path in self.base if self._delicate is None else self._delicate:
            if path in self.base:
                self.base[path] = share(self.base[path])
        mx.eval(self.base)

    def restore(self) -> None:
        """Put the committed state in place."""
        delicate = self._delicate
        for path, array in self.base.items():
            if delicate is None or path in delicate:
                self._slots[path].put(share(array))
            elif self._slots[path].value is not array:
                self._slots[path].put(array)

    def forget(self) -> None:
        """The step is reduced: what comes next is another state."""
        self._slots, self.base = {}, {}

    @property
    def is_first(self) -> bool:
        """Whether this process has made no pass before."""
        return self._delicate is None

    def find_assigned(self, given: Container[str], *outputs: Any) -> dict[str, mx.array]:
        """After this process's first pass: the arrays that it assigned, by path. Not by their bits:
        a buffer that has converged is assigned all the same. But of what is ``given`` a gradient
        only those whose bits are others. Private arrays that it made for later passes are no part
        of that.

        Raises:
            UsageError: the pass made other arrays come, or any go.
        """
        self._state.attributes.end_pass()
        after = {path: slot.value for path, slot in self._state.model_slots().items()}
        come, gone = after.keys() - self.base.keys(), self.base.keys() - after.keys()
        if gone or not self._state.lazy.admit(come):
            which = min(come | gone, key=lambda path: (is_private(path), path))
            raise UsageError(f"the forward pass made {which} come or go; make it beforehand")
        mx.eval(outputs, after)
        return {
            path: array
            for path, array in after.items()
            if path not in come
            and not (same_bits if path in given else same_place)(self.base[path], array)
        }

    def accept(self, layout: Layout) -> None:
        """``layout`` says what a pass may change."""
        self._delicate = layout.state_paths

    def state_of(self, layout: Layout) -> dict[str, mx.array]:
        """The state that a pass may change, as it left it."""
        return {leaf.path: self._slots[leaf.path].value for leaf in layout.state}

    def replaced(self, layout: Layout, given: Container[str]) -> dict[str, mx.array]:
        """Arrays that the pass replaced though it isn't known to change them (a compiled function
        that returns the model's state replaces all), not evaluated; but those that are ``given`` a
        gradient."""
        return {
            path: slot.value
            for path, slot in self._slots.items()
            if path not in layout.state_paths
            and path not in given
            and slot.value is not self.base[path]
        }

    def refuse_unknown_changes(self, replaced: Mapping[str, mx.array]) -> None:
        """Arrays that the job's first pass left alone must still be as they were.

        Raises:
            UsageError: naming the first that isn't.
        """
        for path in sorted(replaced):
            if not same_bits(replaced[path], self.base[path]):
                raise UsageError(
                    f"a forward pass changed {path}, which the first pass of the job left alone: "
                    "let every pass assign it, as in x = mx.where(condition, changed, x). "
                    "Statistics named running_mean and running_var may change from any step on"
                )
