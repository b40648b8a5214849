"""``[recipe] kind = "mlx-lm"``, LoRA, DoRA and full fine-tuning, and what ``"dpo"`` shares with it.

Models, tokenizers, layers and data formats are mlx-lm's; the loop is :class:`elasticd.Run`'s.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

from elasticd.counting import counted
from elasticd.errors import UsageError
from elasticd.recipes import dpo, hubdata, packing
from elasticd.recipes.adapters import ADAPTERS, BEST, AdapterFolder, Meaning, numbered
from elasticd.recipes.fusing import fused
from elasticd.recipes.losses import LOSSES, LossLog
from elasticd.recipes.models import (
    base_of,
    check_gradient,
    check_model,
    flat,
    load,
    located,
    prepare,
    warm_up,
)
from elasticd.recipes.rows import (
    RowOrder,
    Rows,
    RowSource,
    Sample,
    collate,
    length,
    read_rows,
    told,
)
from elasticd.recipes.rowtokens import identity
from elasticd.settings.job import JobSpec
from elasticd.settings.recipe import DATA_FILES, Dpo, MlxLm
from elasticd.train import Run, Weighted
from elasticd.train.steps.sampling import Permutation

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_OPTIMIZERS: dict[str, Any] = {
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "muon": optim.Muon,
    "sgd": optim.SGD,
    "adafactor": optim.Adafactor,
}


def main(spec: JobSpec) -> None:
    """Train as ``spec`` says, from a working folder that is the job's; for a trainer's main thread.

    Raises:
        SystemExit: something that the job names is missing or wrong here.
    """
    try:
        train(spec)
    except UsageError as error:
        raise SystemExit(f"elasticd: {error}") from None


def train(spec: JobSpec) -> None:
    """As :func:`main`.

    Raises:
        UsageError: something that the job names is missing or wrong here.
    """
    go_offline()
    assert spec.recipe is not None
    Training(spec, spec.recipe.config).run()


def go_offline() -> None:
    """A model is there, or in the hub's cache: nothing is asked for over the network. Before the
    hub's library is imported, which looks then."""
    os.environ.update(dict.fromkeys(_OFFLINE, "1"))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@dataclass(frozen=True)
class Lesson:
    """What a kind of recipe makes of a file, of some of its samples, and of the batch of these."""

    read: Callable[[Path], Rows]
    collate: Callable[[Sequence[Sample]], tuple[mx.array, ...]]
    loss: Callable[..., Weighted]


def _lesson(model: Any, tokenizer: Any, config: MlxLm) -> Lesson:
    """That of the recipe, for a ``model`` that is ready to be trained.

    Raises:
        UsageError: a file of the model can't be read.
    """
    try:
        key = identity(config)
    except OSError as error:
        raise UsageError(f"{error.filename}: can't be read: {error.strerror}") from None
    if isinstance(config, Dpo):
        return Lesson(
            lambda path: dpo.read_pairs(path, tokenizer, config, key),
            dpo.collate(config.max_seq_length),
            dpo.preference_loss(dpo.reference_of(model, config), config.beta),
        )
    return Lesson(
        lambda path: read_rows(path, tokenizer, config, key),
        collate(config.max_seq_length),
        token_loss,
    )


class Training:
    """One run of the recipe, in one process."""

    def __init__(self, spec: JobSpec, config: MlxLm) -> None:
        config = hubdata.given(located(config))
        self._spec, self._config = spec, config
        self._told_lacking = False
        check_model(config)
        self._model, tokenizer = load(config)
        prepare(self._model, config)
        check_gradient(self._model, config, token_loss)
        self._base = base_of(self._model, config)
        warm_up(self._model)
        self._lesson = _lesson(self._model, tokenizer, config)
        rows = {name: self._read(name) for name in DATA_FILES}
        train = rows["train"]
        assert train is not None
        self._rows = rows
        self._samples: Sequence[Sample] = train.samples
        self._collate = self._lesson.collate
        if config.packing:
            packing.check(self._model)
            each = [row for sample in train.samples for row in sample]
            self._samples = packing.pack(each, config.max_seq_length, spec.train.seed)
            self._collate = collate(config.max_seq_length, packed=True)

    def run(self) -> None:
        """Run the job's steps, and write what they lead to."""
        spec, config, samples = self._spec, self._config, self._samples
        order = RowOrder.of(samples, spec.batch.global_, spec.train.seed)
        optimizer = make_optimizer(config)
        run = Run(
            model=self._model,
            optimizer=optimizer,
            loss=self._lesson.loss,
            data=RowSource(samples, order, _rows_of(config, "train"), measured(config)),
            collate=self._collate,
            clip_norm=config.clip_norm,
            compile=config.compile,
            base=self._base,
        )
        meaning = Meaning.of(config)
        folder = AdapterFolder(run.output_dir, config.adapter_path, self._model, meaning)
        assert spec.recipe is not None
        folder.write_config(spec, spec.recipe.config)  # as it is named, not where it lies here
        losses = LossLog(run.open(LOSSES), spec.train.steps)
        run.state.best = math.inf
        if run.is_main:
            self._introduce()
        for step in run:
            number, last = step.number, step.number == spec.train.steps
            rate = optimizer.learning_rate.item()
            run.log(learning_rate=rate, **step.metrics)
            if run.is_main and (last or number % config.steps_per_report == 0):
                more = "".join(f", {name} {value:.4f}" for name, value in step.metrics.items())
                print(f"step {number}: loss {step.loss:.4f}{more}, learning rate {rate:.3e}")
            validated = None
            if last or number % config.steps_per_eval == 0:
                validated = self._validate(run, number, folder)
            losses.take(number, validated, loss=step.loss, learning_rate=rate, **step.metrics)
            if number % config.save_every == 0:
                folder.write(numbered(number), step=number, loss=validated)
                folder.write(ADAPTERS)
            self._have_best(run, number, folder)
            if last:
                folder.write(ADAPTERS)
                self._test(run)
        # Whoever has joined for the last step has run no body of it.
        folder.write(ADAPTERS)
        self._have_best(run, spec.train.steps, folder)

    def _read(self, name: str) -> Rows | None:
        path = _rows_of(self._config, name)
        if name == "test" and path not in measured(self._config):
            return None
        if name == "valid" and not path.exists():
            return None
        return self._lesson.read(path)

    def _introduce(self) -> None:
        every = sum(a.size for _, a in flat(self._model.parameters()))
        some = sum(a.size for _, a in flat(self._model.trainable_parameters()))
        print(f"{some:,} of {every:,} values are trained ({self._config.fine_tune_type})")
        for name, rows in self._rows.items():
            for sentence in (
                told(f"{name}.jsonl", rows, self._config.max_seq_length) if rows else ()
            ):
                print(f"elasticd: {sentence}")
        if self._config.packing:
            count = sum(map(len, self._samples))
            print(f"elasticd: {count} rows are packed into {len(self._samples)} sequences")
        have, want = len(self._samples), self._spec.batch.global_
        if have < want:
            what = "sequence" if self._config.packing else "row"
            print(
                f"elasticd: train.jsonl has {counted(have, what)} to train, and a step takes {want}"
                " (batch_size): some are in it several times"
            )
        if self._rows["valid"] is None:
            print("elasticd: there is no valid.jsonl: nothing is validated, no adapters are best")

    def _validate(self, run: Run, number: int, folder: AdapterFolder) -> float | None:
        """The validation loss; None: nothing is validated."""
        rows = self._rows["valid"]
        if rows is None or self._config.val_batches == 0:
            return None
        loss = self._measure(run, rows, self._config.val_batches)
        run.log(validation_loss=loss)
        better = loss < run.state.best
        if run.is_main:
            print(f"step {number}: validation loss {loss:.4f}{', the best so far' * better}")
        if better:
            run.state.best = loss
            folder.write_best(number, loss)
        return loss

    def _have_best(self, run: Run, upto: int, folder: AdapterFolder) -> None:
        """Keep no best adapters that ``run.state`` doesn't know as such."""
        best = run.state.best
        if best < math.inf and not folder.has_best(best, upto) and not self._told_lacking:
            self._told_lacking = True
            print(
                f"elasticd: the adapters with the lowest validation loss so far ({best:.4f}) were"
                f" written while this process was away, and are not here: {BEST} is to come from"
                " another node. It does not if it is bigger than output_bytes of elasticd.toml"
            )

    def _test(self, run: Run) -> None:
        rows = self._rows["test"]
        if rows is not None:
            loss = self._measure(run, rows, self._config.test_batches)
            run.log(test_loss=loss)
            if run.is_main:
                of_tokens = f", perplexity {math.exp(min(loss, 700.0)):.3f}"
                print(f"test loss {loss:.4f}{of_tokens * (self._lesson.loss is token_loss)}")

    def _measure(self, run: Run, rows: Rows, batches: int) -> float:
        """The mean over the same rows each time. All ranks compute it at once, and
        take main's: other chips may come to other last bits."""
        samples = _some(rows.samples, batches * self._spec.batch.global_)
        size, lesson = self._spec.batch.micro, self._lesson

        def measure() -> float:
            total, weight = 0.0, 0
            for at in range(0, len(samples), size):
                mean, count, _ = lesson.loss(self._model, *lesson.collate(samples[at : at + size]))
                mx.eval(mean, count)
                total, weight = total + mean.item() * count.item(), weight + count.item()
            return total / weight

        found = run.evaluate(measure)
        return run.on_main(lambda: found)


def measured(config: MlxLm) -> list[Path]:
    """The files beside train.jsonl of which all nodes measure the loss, if they are there."""
    batches = {"valid": config.val_batches, "test": config.test_batches if config.test else 0}
    return [_rows_of(config, name) for name, most in batches.items() if most != 0]


def _rows_of(config: MlxLm, name: str) -> Path:
    return Path(config.data) / f"{name}.jsonl"


def token_loss(
    model: Any, tokens: mx.array, trained: mx.array, rows: mx.array | None = None
) -> Weighted:
    """The mean loss over the tokens that are ``trained``, the first of all being none; ``rows``
    that are packed into one sequence don't see one another."""
    given = tokens[:, :-1]
    logits = model(given) if rows is None else packing.apart(model, given, rows)
    losses = nn.losses.cross_entropy(logits, tokens[:, 1:]) * trained
    count = trained.sum()
    return Weighted(losses.astype(mx.float32).sum() / mx.maximum(count, 1), count)


def make_optimizer(config: MlxLm) -> optim.Optimizer:
    """The optimizer with its learning rate, which may follow a schedule."""
    rate: Any = config.learning_rate
    if config.lr_schedule is not None:
        from mlx_lm.tuner.utils import build_schedule

        rate = build_schedule(dataclasses.asdict(config.lr_schedule))
    arguments = config.optimizer_config.get(config.optimizer, {})
    made: optim.Optimizer = fused(_OPTIMIZERS[config.optimizer])(learning_rate=rate, **arguments)
    return made


def _some(samples: Sequence[Sample], most: int) -> list[Sample]:
    """At most so many of them (below 0: all), the same each time, the short ones first."""
    count = len(samples)
    chosen = Permutation(count, 0, 0)(np.arange(count, dtype=np.uint64))
    picked = [samples[i] for i in chosen[: most if most >= 0 else count].tolist()]
    return sorted(picked, key=length)
