"""One optimizer step, as a script sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, assert_never

from mlx.utils import tree_map

from elasticd.errors import GenerationLost, OperationError, UsageError
from elasticd.train.states.trees import arrays, share
from elasticd.train.states.updates import Reduced
from elasticd.train.steps import randomness
from elasticd.train.steps.data import Collate, batch_of
from elasticd.train.steps.layout import check_assigned, flatten
from elasticd.train.steps.runner import StepRunner
from elasticd.train.steps.weighted import loss_of
from elasticd.train.steps.witness import Witness


class Step:
    """One step of ``run`` or ``run.steps()``."""

    def __init__(
        self,
        runner: StepRunner,
        source: Witness,
        collate: Collate,
        optimizer: Any,
        clip_norm: float | None = None,
        as_they_are: bool = False,
    ) -> None:
        """``as_they_are``: the gradients are applied as they come."""
        self._runner, self._source, self._collate = runner, source, collate
        self._optimizer, self._clip_norm = optimizer, clip_norm
        self._as_they_are = as_they_are
        self._number = runner.step
        self._grain: int | None = None
        self._samples = 0
        self._begun = False
        self._reduced: Reduced | None = None
        self._gradients: Any = None
        self._late = self._applied = False
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"Step({self._number})"

    @property
    def number(self) -> int:
        """The step's number, from 1."""
        return self._number

    @property
    def epoch(self) -> int:
        """How often all of the data had been gone through before this step's first sample."""
        return self._source.epoch(self._number)

    @property
    def applied(self) -> bool:
        """Whether :meth:`apply` or :meth:`skip` was called."""
        return self._applied

    @property
    def late(self) -> bool:
        """True if the job has gone on without this process: nothing is left to be computed,
        :meth:`apply` does nothing, and behind the body the others' state replaces what it made."""
        return self._late

    @property
    def loss(self) -> float:
        """The mean loss over the global batch.

        Raises:
            UsageError: the step isn't reduced yet.
        """
        return float("nan") if self._late else self._result("step.loss").loss

    @property
    def metrics(self) -> dict[str, float]:
        """The means over the global batch of what the loss has to show, by name; empty
        where the step came too late here.

        Raises:
            UsageError: the step isn't reduced yet.
        """
        return {} if self._late else dict(self._result("step.metrics").metrics)

    @property
    def grads(self) -> Any:
        """The mean gradient over the global batch, in the tree and dtypes of the parameters. Assign
        to it to clip or transform it, with the same pure function on every rank.

        Raises:
            UsageError: the step isn't reduced yet, or already applied. Or what is assigned is no
                tree of arrays like the model's parameters; some may be left out.
        """
        if not self._late:
            self._result("step.grads")
        if self._applied:
            raise UsageError("step.grads: the step is applied already")
        if self._reduced is not None and self._gradients is self._reduced.gradients:
            # The script may write into them in place; who is a step behind needs them as they were.
            self._gradients = tree_map(share, self._gradients)
        return self._gradients

    @grads.setter
    def grads(self, gradients: Any) -> None:
        if self._applied:
            raise UsageError("step.grads = …: the step is applied already")
        if not self._late:
            self._result("step.grads = …")
            places = flatten(self._gradients) | arrays(self._runner.state.model.state)
            check_assigned(gradients, places)
        self._gradients = gradients

    def micro_batches(self) -> Iterator[Any]:
        """This rank's share of the global batch, a micro-batch at a time; ends when the step is
        reduced over all ranks. If the world changes it yields what is then missing, or nothing if
        the job has gone on without this process (see :attr:`late`). The same batch may come twice,
        before the first step, to see whether its gradients repeat; so may one of another rank's, if
        ``recovery.recheck_every`` asks for it.

        Raises:
            UsageError: a batch was not accumulated, or this is the second loop over a step.
        """
        if self._begun:
            raise UsageError("step.micro_batches() can be looped over once")
        self._begun = True
        try:
            yield from self._share()
        except Exception as error:
            self._failure = error
            raise

    def _share(self) -> Iterator[Any]:
        while True:
            try:
                for grain in self._runner.grain_numbers():
                    yield self._fetch(grain)
                    if self._grain is not None:
                        raise UsageError(
                            "a batch of step.micro_batches() was not given to step.accumulate()"
                        )
                self._source.grains_end(self._number)
                return self._take(self._runner.reduce(as_they_are=self._as_they_are))
            except GenerationLost:
                match self._runner.rejoin():
                    case "over":
                        raise OperationError("the job has ended") from None
                    case "again":
                        continue
                    case "void":
                        self._late = True
                        self._gradients = self._runner.zero_gradients()
                        return
                    case Reduced() as reduced:
                        return self._take(reduced)
                    case answer:
                        assert_never(answer)

    def _cut_short(self) -> Exception | None:
        """What to say if the script leaves its loop now, where the step is begun and not applied:
        others may apply it. None: it may leave."""
        if not self._begun or self._late or self._applied:
            return None
        return self._failure or UsageError(
            f"the loop was left in the middle of step {self._number}, by a break or by an error"
            " that the script has caught. Leave it above step.micro_batches(), or behind"
            " step.apply() or step.skip()"
        )

    def _take(self, reduced: Reduced) -> None:
        self._reduced, self._gradients = reduced, reduced.gradients

    def _rehearsal(self, grains: Iterator[int]) -> Iterator[Any]:
        """The batches of ``grains``, before there is a world that trains."""
        for grain in grains:
            yield self._fetch(grain)

    def _fetch(self, grain: int) -> Any:
        where = (self._runner.seed, self._number, grain)
        self._runner.seat.phase("data")
        try:
            self._runner.seat.strain()
            batch, self._samples = batch_of(self._source, self._collate, *where)
            self._grain = grain
            randomness.seed_grain(*where)
            self._runner.seat.phase("compute")
            return batch
        except (RuntimeError, MemoryError) as error:
            if not self._ran_out(error):
                raise
            raise GenerationLost("memory ran out") from None

    def _ran_out(self, error: Exception) -> bool:
        """Whether ``error`` says that an allocation failed, and somebody takes care of that: the
        batch is dropped then, and the step goes on with less memory."""
        if not self._runner.ran_out(error):
            return False
        self._grain = None
        return True

    def accumulate(
        self,
        loss: Any,
        grads: Any,
        *,
        weight: Any = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> None:
        """Give the loss and the gradients of the batch that ``micro_batches()`` yielded last.

        Args:
            loss: the mean over that batch, or an :class:`elasticd.Weighted`.
            grads: a tree of gradients, as ``nn.value_and_grad`` returns it.
            weight: how much the batch counts; by default the number of its samples. A batch of
                weight 0 counts as nothing.
            metrics: further means over the batch, by name: they become :attr:`metrics`.

        Raises:
            UsageError: no batch waits for it, or they aren't what a batch needs.
        """
        if self._grain is None:
            raise UsageError("step.accumulate() needs a batch of step.micro_batches(), each once")
        found = loss_of(loss, self._samples, weight, metrics)
        grain, self._grain = self._grain, None
        self._runner.accumulate(grain, found, grads)

    def apply(self, optimizer: Any = None) -> None:
        """Update the model with ``step.grads``, and commit the step.

        ``optimizer`` is that of ``Run`` unless given here, the same in every step.

        Raises:
            UsageError: the step isn't reduced (the loop over ``micro_batches()`` was left early or
                never run), applied already, or there is no optimizer.
        """
        optimizer = self._optimizer if optimizer is None else optimizer
        if optimizer is None:
            raise UsageError(
                "step.apply() needs an optimizer, here or in elasticd.Run (MultiOptimizer joins"
                " several); a body that updates the model itself calls step.skip() behind that"
            )
        self._commit("step.apply()", optimizer)

    def skip(self) -> None:
        """Commit the step without an update of the library's.

        Call it instead of :meth:`apply`, on every rank alike. What the body has changed itself is
        part of the step as ever.

        Raises:
            UsageError: as :meth:`apply` does.
        """
        self._commit("step.skip()", None)

    def _commit(self, what: str, optimizer: Any) -> None:
        if self._applied:
            raise UsageError(f"{what}: step.apply() or step.skip() was called already")
        if not self._late:
            reduced, gradients = self._result(what), self._gradients
            self._gradients = None
            self._reduced = replace(reduced, state={}, gradients=None)  # the step may live longer
            self._runner.apply(reduced, optimizer, gradients, self._clip_norm)
        self._applied = True

    def _result(self, what: str) -> Reduced:
        if self._reduced is None:
            how = "was left early" if self._begun else "has not run"
            raise UsageError(
                f"{what} needs the reduced step, but the loop over step.micro_batches() {how}"
            )
        return self._reduced
