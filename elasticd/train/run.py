"""``elasticd.Run``: what a training script holds.

Long because each method is explained to those who write scripts.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

import mlx.core as mx
import mlx.optimizers as optim
from mlx.nn.layers.base import Module
from mlx.nn.utils import value_and_grad

from elasticd.checkpoints.codec import model_digest
from elasticd.errors import OperationError, UsageError
from elasticd.settings.rules import encodable
from elasticd.train.alone import AloneSeat
from elasticd.train.fingerprint import fingerprint
from elasticd.train.reruns import refuse_rerun
from elasticd.train.states.base import Base
from elasticd.train.states.lazy import keep_arrays
from elasticd.train.states.namespace import Namespace
from elasticd.train.states.state import TrainingState
from elasticd.train.states.tracked import STATE, STREAM
from elasticd.train.states.trees import is_real
from elasticd.train.steps import randomness
from elasticd.train.steps.calling import ABOVE
from elasticd.train.steps.compiled import CompiledLoss
from elasticd.train.steps.counted import CountedNumbers
from elasticd.train.steps.data import (
    Collate,
    IndexedSource,
    StreamSource,
    batch_of,
    source_of,
    stack,
)
from elasticd.train.steps.ownstate import OwnState, name_own
from elasticd.train.steps.passcaches import PassCaches
from elasticd.train.steps.runner import StepRunner
from elasticd.train.steps.sampling import Batches
from elasticd.train.steps.seat import HOST
from elasticd.train.steps.step import Step
from elasticd.train.steps.steploop import StepLoop
from elasticd.train.steps.weighted import explained, spread_lengths, takes_step
from elasticd.train.steps.witness import Witness
from elasticd.train.world import TrainerWorld

T = TypeVar("T")
_REASON_LETTERS = 400
_NO_STEPS_LEFT = (
    "this loop over the run is empty: the last step was made in the first one, which has all epochs"
    " in it (step.epoch says which one)"
)
_NEXT = (
    "the script asks for its steps by next(), or it has left its loop and keeps the iterator in a"
    " variable, so that what stands behind the loop counts as its last body. A process that joins"
    " later, or again, has fewer steps, and next() ends it with StopIteration: write `for step in"
    " run`"
)
_NOT_SHOWN = (
    "what run.log() is given behind the loop is shown nowhere: call it in the body of a step"
)


class Run:
    """A training job, as one of its ranks sees it.

    Loop over it, and the library runs the steps::

        for step in elasticd.Run(model=model, optimizer=optimizer, loss=loss, data=dataset):
            print(step.number, step.loss)

    or loop over :meth:`steps` and compute the gradients yourself. The script may be started by a
    daemon or by itself; alone it is a world of one. Model and optimizer must be complete when
    they are given here: what a job's members share replaces their content.
    """

    def __init__(
        self,
        *,
        model: Module,
        data: Any,
        optimizer: optim.Optimizer | None = None,
        loss: Callable[..., Any] | None = None,
        clip_norm: float | None = None,
        collate: Collate | None = None,
        compile: bool = False,
        base: Base | None = None,
    ) -> None:
        """Join the job; returns once this rank holds the job's state.

        Args:
            model: what is trained.
            data: a dataset (``__len__`` and ``__getitem__``), or a function without arguments that
                returns a fresh iterator, the same on every rank.
            optimizer: needed to loop over the run itself.
            loss: ``loss(model, batch)``, or ``loss(model, x, y)`` where a batch is the tuple
                ``(x, y)``. An argument that is named ``step`` is given the step's number, as an
                array. It returns the mean over the batch, or :class:`elasticd.Weighted`. Needed to
                loop over the run itself.
            clip_norm: limits the norm of the reduced gradient, when the library runs the step.
            collate: makes a batch of a list of samples; by default they are stacked.
            compile: puts ``mx.compile`` around the loss and its gradient, when the library runs the
                step. It is traced anew when modules, or what it reads of ``run.state``, change.
            base: for recipes: frozen weights of the model that every node has in files of its own.

        Raises:
            UsageError, ConfigError: something here, or in job.toml, is wrong.
        """
        refuse_rerun()
        _check(model, loss, clip_norm, collate, compile)
        seat = HOST.sit()
        self._seat = AloneSeat.find() if seat is None else seat
        spec = self._seat.spec
        self.state = Namespace()
        """What the script keeps from step to step, and what is stored: ``run.state.beta = 1``."""
        self._own = OwnState(sys._getframe(1), (model, optimizer), self.state, data, collate, loss)
        batches = Batches(spec.batch.global_, spec.batch.micro)
        source = source_of(data, batches, spec.train.seed)
        self._numbers = CountedNumbers(collate, loss, model)
        self._collate: Collate = self._numbers.watched(collate) if collate else stack
        self._model, self._optimizer, self._loss = model, optimizer, loss
        self._clip_norm = clip_norm
        self._spread = range(0) if loss is None else spread_lengths(loss)
        self._takes_step = loss is not None and takes_step(loss)
        self._state = TrainingState(model, optimizer, base)
        self._state.track(STATE, self.state)
        self._runner = StepRunner(self._seat, self._state, self._cut)
        self._source = Witness(source, self._seat, lambda: self._runner.world)
        if isinstance(source, StreamSource):
            source.prove_fresh()
            self._own.stream_proved()
            if source.has_state:
                self._state.track(STREAM, _StreamState(source, self._runner))
        HOST.at_end(self._conclude)
        HOST.advises(self._advice)
        HOST.excuses(lambda: self._runner.calls.uncounted or self._strayed)
        self._loop: weakref.ref[Generator[Step]] | None = None
        """A script that leaves its loop lets go of it."""
        self._looping = self._over = False
        """Whether the loop has begun, and whether all steps were made in it."""
        self._not_left: BaseException | None = None
        """What has ended its loop, or why it could not leave that as it should."""
        self._strayed = False
        """It has left its loop, and the job went on from another state."""
        self._was_main = True
        """Unless the script was told otherwise above its loop."""
        self._loss_and_grad: Callable[..., tuple[Any, Any]] | None = None
        if loss is not None:
            seed = self._seat.spec.train.seed
            self._loss_and_grad = (
                CompiledLoss(model, loss, seed, self.state)
                if compile
                else value_and_grad(model, loss)
            )
            self._runner.entrance.rehearse = self._rehearse
        self._join(source)
        if isinstance(source, IndexedSource) and (short := source.shortage()):
            name_own([short], aloud=self.rank == 0)

    def _cut(self, micro: int) -> None:
        self._source.cut(Batches(self._seat.spec.batch.global_, micro))

    def _join(self, source: IndexedSource | StreamSource) -> None:
        spec = self._seat.spec
        grain0, _ = batch_of(self._source, self._collate, spec.train.seed, 1, 0)
        if isinstance(source, IndexedSource):
            source.prove_redrawn()
            source.prove_unchanged()
        self._seat.at_run(fingerprint(spec, self._state, self._source, grain0, self._clip_norm))
        at_first = self._state.copy()
        if not self._runner.enter():
            raise OperationError("the job has ended")
        self._runner.entrance.show_first(at_first)
        # A rank that joins later, too, draws from here to its loop what all drew at step 0.
        randomness.seed_body(spec.train.seed, 0)
        self._runner.calls.begin(ABOVE)

    def _rehearse(self, grains: Iterator[int]) -> None:
        step = Step(self._runner, self._source, self._collate, self._optimizer)
        # Memory may have run out: those who wait shall see it. And the loss may need what the
        # script makes below its Run(…): then it is compiled, and probed, when it is first needed.
        with contextlib.suppress(Exception):
            self._compute(step, step._rehearsal(grains))

    def _compute(self, step: Step, batches: Iterator[Any]) -> None:
        assert self._loss_and_grad is not None
        if isinstance(self._loss_and_grad, CompiledLoss):
            self._loss_and_grad.renew()
        # An array, so that a compiled loss isn't traced anew in every step.
        named = {"step": mx.array(step.number)} if self._takes_step else {}
        for batch in batches:
            whole = not isinstance(batch, tuple) or len(batch) not in self._spread
            arguments = (batch,) if whole else batch
            try:
                with self._numbers.around():
                    loss, gradients = self._loss_and_grad(self._model, *arguments, **named)
            except (RuntimeError, MemoryError) as error:
                if not step._ran_out(error):
                    raise
                continue
            except ValueError as error:
                if not (text := explained(error)):
                    raise
                raise UsageError(text) from error
            step.accumulate(loss, gradients)
            del loss, gradients, batch, arguments

    @property
    def rank(self) -> int:
        """This member's place in the present world, from 0. It may change between steps."""
        return self._world.rank

    @property
    def world_size(self) -> int:
        """Members of the present world. It may change between steps."""
        return self._world.size

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0. It may change between steps."""
        main = self.rank == 0
        if not self._looping:
            self._was_main = main
        return main

    @property
    def _world(self) -> TrainerWorld:
        assert self._runner.world is not None
        return self._runner.world

    @property
    def output_dir(self) -> Path:
        """The folder for what the script writes; it exists."""
        self._seat.output_dir.mkdir(parents=True, exist_ok=True)
        return self._seat.output_dir

    def open(self, name: str) -> TextIO:
        """A text file in :attr:`output_dir`, to which every rank writes; main's lines count.

        What was in the file stays, and what the loop's bodies write follows, once for each step,
        whoever was main. It is in the file when the body has ended. Call this on every rank.

        Raises:
            UsageError: it is no name below that folder, or the disk refuses it. Writing raises it
                where the file would have more than 32 MiB.
        """
        return cast("TextIO", self._runner.logs.open(name))

    def digest(self) -> str:
        """The hex digest of the model's parameters that ``status --json`` shows."""
        parameters = self._state.parameters()
        mx.eval(parameters)
        return model_digest(parameters)

    def log(self, **values: float) -> None:
        """Show figures beside the loss, once the loop's body is over, and tell them where
        ``[track]`` of job.toml says so. The first 32 names are shown, of at most 64 letters. What
        is no number is not: that is said on stderr, but for texts."""
        if self._over:
            name_own([_NOT_SHOWN], aloud=self.rank == 0)
        self._runner.logs.log(values)

    def track(self, name: str, thing: Any, *, per_rank: bool = False) -> None:
        """Make ``thing`` part of the state that checkpoints hold and that a replacement is given.

        ``thing`` has ``state_dict()`` and ``load_state_dict()``, or ``state`` and ``load_state``,
        or is a dict or list of plain values and arrays, which is changed in place. Call it after
        ``Run(…)`` and before the loop. On a rank that joined later it is loaded by this call.

        Args:
            name: by which it is stored.
            thing: the object.
            per_rank: each rank has its own, at most 1 MiB of all such things together. It stays
                with its process, whatever rank that becomes; what a lost process has left goes to
                the next that joins, before that one's first step. Without it, ``thing`` has to be
                the same on every rank.

        Raises:
            UsageError: it can't be stored, the name is taken, or the loop has begun.
        """
        if not isinstance(name, str):
            raise UsageError(f"run.track() takes a name in words, not {type(name).__name__}")
        if self._looping:
            raise UsageError(
                f"run.track({name!r}, …) belongs above the loop: what a process that joins, or a"
                " checkpoint, has is known by then"
            )
        self._own.tracked(thing)
        if per_rank:
            self._runner.by_rank.track(name, thing)
        else:
            self._runner.by_rank.check_free(name)
            self._state.track(name, thing)
        if isinstance(self._loss_and_grad, CompiledLoss):
            self._loss_and_grad.track(name, thing)

    def stop(self, reason: str = "") -> None:
        """Make this step, whose body is under way, the last: then the loop and the job end.

        Call it on every rank alike. A rank that alone calls it, by its clock for example, ends the
        job one step later. To leave the loop with ``break``, on all ranks, means the same.

        Raises:
            UsageError: the reason is no text.
        """
        if not isinstance(reason, str):
            raise UsageError(f"run.stop() takes a reason in words, not {type(reason).__name__}")
        self._runner.ending.want(encodable(reason)[:_REASON_LETTERS] or "run.stop()")

    def on_main(self, fn: Callable[[], T]) -> T:
        """Call ``fn()`` on main, and return what it returns on every rank: None, numbers, texts,
        bytes, arrays, and lists, tuples and dicts of them, at most 1 MiB.

        Call it on every rank alike, above the loop or in its body. If main dies before every rank
        has the result, ``fn`` runs on the next main. Above the loop the result is part of the
        state: whoever joins later gets it.

        Raises:
            UsageError: it can't be called here, or what ``fn`` returns can't be told.
        """
        if not callable(fn):
            raise UsageError(f"run.on_main() takes a function, not {fn!r}")
        return self._runner.calls.call(fn)

    def evaluate(self, fn: Callable[..., T]) -> T:
        """Call ``fn()``, or ``fn(model)`` if it takes an argument, with the model in evaluation
        mode; has a deadline of its own. Returns what ``fn`` returns. Arrays that the model makes
        meanwhile, or makes in another shape, go again.

        Raises:
            UsageError: ``fn`` is no function.
        """
        if not callable(fn):
            raise UsageError(f"run.evaluate() takes a function, not {fn!r}")
        modules: list[Any] = self._model.modules()  # type: ignore[no-untyped-call]
        modes = [(module, module.training) for module in modules]
        put_back, caches = keep_arrays(self._model), PassCaches(self._model)
        caches.step_begins()
        self._seat.phase("evaluate")
        self._model.eval()
        try:
            return fn(self._model) if _takes_argument(fn) else fn()
        finally:
            for module, training in modes:
                module._set_training_mode(training)
            self._seat.phase("user")
            caches.clear()
            put_back()

    def steps(self) -> Iterator[Step]:
        """The steps that are still to be made. The loop's body computes and applies each.

        Raises:
            UsageError: the body of the loop didn't apply its step, or there are two loops. One
                behind the last step is empty. Or ``Run`` was given what is for the other loop.
        """
        for given, name, cure in (
            (self._clip_norm is not None, "clip_norm=", "step.grads, _ = optim.clip_grad_norm(…)"),
            (isinstance(self._loss_and_grad, CompiledLoss), "compile=True", "mx.compile"),
        ):
            if given:
                raise UsageError(
                    f"run.steps() leaves gradients to the loop's body, so Run(…, {name}) has no"
                    f" effect there: leave it away, and use {cure} in the body"
                )
        return StepLoop(lambda: self._kept(self._steps(None, as_they_are=False)))

    def _kept(self, loop: Generator[Step]) -> Iterator[Step]:
        if self._loop is None:
            self._loop = weakref.ref(loop)
        return loop

    def _steps(self, clip_norm: float | None, *, as_they_are: bool) -> Generator[Step]:
        """``as_they_are``: nobody looks at the gradients before they are applied."""
        if self._over:
            name_own([_NO_STEPS_LEFT], aloud=self.rank == 0)
            return
        if self._looping:
            raise UsageError(
                "a run can be looped over once, and has all epochs in it: step.epoch says which one"
            )
        self._looping, HOST.looping = True, threading.current_thread()
        self._runner.logs.begin()
        name_own(self._own.loop_begins(sys._getframe()), aloud=self.rank == 0)
        self._numbers.loop_begins()
        try:
            yield from self._each(clip_norm, as_they_are)
        except Exception as error:
            self._not_left = error
            raise

    def _each(self, clip_norm: float | None, as_they_are: bool) -> Generator[Step]:
        """As :meth:`_steps`; what it raises ends the job, be it that the script catches it."""
        runner = self._runner
        while True:
            if not runner.turn():
                raise OperationError("the job has ended")
            if runner.finished:
                if runner.finish():
                    self._over = True
                    return
                continue
            step = Step(
                runner, self._source, self._collate, self._optimizer, clip_norm, as_they_are
            )
            try:
                yield step
            except GeneratorExit:
                if not sys.is_finalizing():
                    self._leave(step)
                raise
            said = [*self._own.body_ends(sys._getframe()), *self._numbers.news()]
            name_own([*said, *self._source.news()], aloud=self.rank == 0)
            if not step.applied:
                raise UsageError(
                    f"the loop's body did not call step.apply() for {step}, or step.skip() where "
                    "there is nothing to update"
                )

    def _leave(self, step: Step) -> None:
        """The script has left its loop in the body of ``step``. Python ignores what a generator
        raises as it is closed, so that is told, and raised at the end of a script that a daemon
        runs."""
        try:
            self._not_left = self._not_left or step._cut_short()
            self._runner.leave(step.applied)
        except BaseException as error:
            print(f"elasticd: the loop is not left as it should be: {error!r}", file=sys.stderr)
            self._not_left = error

    def _conclude(self) -> None:
        """The script has ended. If it has left its loop, all ranks have to, at the same step."""
        loop = None if self._loop is None else self._loop()
        if loop is not None and self._looping and not self._over:
            loop.close()
            name_own([_NEXT], aloud=self.rank == 0)
        if self._not_left is not None:
            raise self._not_left
        runner, ending = self._runner, self._runner.ending
        while ending.left:
            if ending.strayed(runner.point):
                self._strayed = True
                raise OperationError("the job goes on from a state in which no loop was left")
            ending.want("the script has left its loop")
            if not runner.turn():
                return
            if runner.finished:
                if runner.finish():
                    return
            elif self._world.last >= 0 and not ending.strayed(runner.point):
                self._seat.refuse(
                    f"rank {self.rank} has left its loop after step {runner.point.step}, others"
                    " have not: leave it on all ranks alike, or call run.stop()"
                )
                return

    def _advice(self) -> str:
        world = self._runner.world
        if self._was_main or world is None or world.rank:
            return ""
        return (
            "elasticd: this rank has become main. Above the loop its run.is_main was false, so it "
            "lacks what the script makes there for main alone. Make it on every rank, and open "
            "files with run.open(name)"
        )

    def __iter__(self) -> Iterator[Step]:
        """The library runs each step; yields it when it is committed.

        Raises:
            UsageError: ``Run`` was not given an optimizer and a loss.
        """
        if self._loss is None or self._optimizer is None:
            raise UsageError(
                "`for step in run` needs Run(…, loss=, optimizer=); or use run.steps()"
            )
        for step in self._kept(self._steps(self._clip_norm, as_they_are=True)):
            try:
                self._compute(step, step.micro_batches())
                step.apply()
            except Exception as error:
                self._not_left = error  # the script may catch it, and end as if it had left
                raise
            if not step.late:
                yield step


def _check(model: Any, loss: Any, clip_norm: Any, collate: Any, compile: Any) -> None:
    if not isinstance(model, Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else None
        raise UsageError(f"model= is {what or f'a {type(model).__name__}'}, not an mlx.nn.Module")
    for name, function, form in (
        ("loss", loss, "loss(model, batch)"),
        ("collate", collate, "collate(samples)"),
    ):
        if function is not None and not callable(function):
            raise UsageError(f"{name}= must be a function, {form}, not {function!r}")
    if clip_norm is not None and not (is_real(clip_norm) and clip_norm > 0):
        raise UsageError(f"clip_norm= must be a number above 0, not {clip_norm!r}")
    if not isinstance(compile, bool):
        raise UsageError(f"compile= must be True or False, not {compile!r}")
    if compile and loss is None:
        raise UsageError(
            "compile=True compiles the loss that Run(…, loss=) is given; with run.steps() put "
            "mx.compile around your own function"
        )


class _StreamState:
    """The position of the data stream, as tracked state."""

    def __init__(self, source: StreamSource, runner: StepRunner) -> None:
        self._source, self._runner = source, runner

    def state_dict(self) -> dict[str, Any]:
        return self._source.state(self._runner.step - 1)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self._source.load_state(saved)


def _takes_argument(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in parameters)
