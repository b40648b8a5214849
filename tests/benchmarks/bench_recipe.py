"""Seconds of a step of the recipe, over mlx-lm's own loop: same model, rows, batches and seed, one
rank, and nothing else that both do (no validation, no adapters written, nothing stored).

Three processes live all the time and take turns of a few steps, in an order drawn anew each round.
What a turn took is printed as the median of the ratios of neighbours: seconds, and CPU seconds of
the whole process. mlx-lm compiles its whole step: on Linux the first one builds kernels, which may
take minutes where the machine is busy. That the losses are the same is
tests/integration/test_mlxlm_curve.py's.

    python tests/benchmarks/bench_recipe.py [--rounds 15] [--steps 4] [--model tiny]

Needs elasticd[lm]. Nothing is asserted; the exit code is 0 when it measured.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from elasticd.settings import job
from tests import tinylm

BATCH = 4
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {},
    "small": {
        "hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 384,
        "num_attention_heads": 8, "num_key_value_heads": 4,
    },
}  # fmt: skip
LORA = f"""\
model: model
data: data
num_layers: -1
learning_rate: 1e-3
batch_size: {BATCH}
iters: 1000000
steps_per_eval: 1000000
save_every: 1000000
steps_per_report: 1000000
val_batches: 0
mask_prompt: true
lora_parameters: {{rank: 8, dropout: 0.05}}
"""
JOB = tinylm.JOB.replace("micro = 2", f"micro = {BATCH}")
WAYS = ("mlx-lm", "elasticd", "compiled")
"""The last: elasticd's with ``compile: true``."""


def turnstile(steps: int) -> Callable[[], None]:
    """To be called before each step: waits for its turn, and tells what the last one took."""
    done, since = 0, (0.0, 0.0)

    def wait() -> None:
        nonlocal done, since
        if done % steps == 0:
            now = time.perf_counter(), time.process_time()
            if done:
                print("TOOK", now[0] - since[0], now[1] - since[1], flush=True)
            else:
                print("READY", flush=True)
            if not sys.stdin.readline():
                os._exit(0)
            since = time.perf_counter(), time.process_time()
        done += 1

    return wait


def ours(file: Path, wait: Callable[[], None], *settings: str) -> None:
    """The recipe without a daemon, which waits as its stream comes to a step. ``settings``: as for
    ``--set``."""
    from elasticd.recipes import mlxlm, rows
    from elasticd.train.beginning import JOB_VARIABLE
    from elasticd.train.steps import randomness

    class Waiting(rows.RowStream):
        def __next__(self) -> Any:
            global furthest
            position = self.state()["position"]
            if position > furthest:
                furthest = position
                if position >= BATCH and position % BATCH == 0:
                    wait()
            return super().__next__()

    os.environ[JOB_VARIABLE] = str(file)
    setattr(rows, "RowStream", Waiting)  # noqa: B010
    spec = job.load(file, settings)
    randomness.seed_script(spec.train.seed)
    mlxlm.main(spec)


furthest = -1
"""Position of the newest sample: streams are begun more than once."""


def theirs(file: Path, wait: Callable[[], None]) -> None:
    """mlx-lm's loop, with the recipe's rows in its order."""
    import mlx.core as mx
    from mlx_lm.tuner.trainer import TrainingArgs, train
    from mlx_lm.utils import load

    from elasticd.recipes import mlxlm, models
    from elasticd.recipes.rows import RowOrder, RowStream, collate, read_rows
    from elasticd.train.steps import randomness

    spec = job.load(file)
    assert spec.recipe is not None
    config = spec.recipe.config
    randomness.seed_script(spec.train.seed)
    model, tokenizer = load(config.model, lazy=True)[:2]
    models.prepare(model, config)
    samples = read_rows(Path("data/train.jsonl"), tokenizer, config).samples
    stream = RowStream(samples, RowOrder.of(samples, BATCH, spec.train.seed))

    def batches(**_: Any) -> Iterator[Any]:
        first = True
        while True:
            if not first:
                wait()
            first = False
            batch = [next(stream) for _ in range(BATCH)]
            ends = [[offset, len(row) - 1] for ((row, offset),) in batch]
            yield collate(config.max_seq_length)(batch)[0], mx.array(ends)

    quiet: Any = types.SimpleNamespace(
        on_train_loss_report=lambda told: None, on_val_loss_report=lambda told: None
    )
    train(
        model=model,
        optimizer=mlxlm.make_optimizer(config),
        train_dataset=list(samples),
        args=TrainingArgs(
            batch_size=BATCH,
            iters=spec.train.steps,
            steps_per_report=spec.train.steps,
            steps_per_save=spec.train.steps,
            adapter_file="theirs.safetensors",
        ),
        iterate_batches=batches,
        training_callback=quiet,
    )


class Way:
    """One process."""

    def __init__(self, name: str, file: Path, steps: int) -> None:
        self.seconds: list[float] = []
        self.cpu: list[float] = []
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--way", name, "--steps", str(steps), str(file)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=file.parent,
            env={
                **os.environ,
                "PYTHONHASHSEED": "0",
                "ELASTICD_CACHE_DIR": str(file.parent),
            },
        )  # fmt: skip
        self._await("READY")

    def _await(self, word: str) -> list[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.split()[1:]
        raise SystemExit("a way has ended by itself")

    def turn(self, counts: bool) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        seconds, cpu = map(float, self._await("TOOK"))
        if counts:
            self.seconds.append(seconds)
            self.cpu.append(cpu)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def compare(rounds: int, steps: int, size: str) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="elasticd-bench-") as name:
        tinylm.CONFIG |= SIZES[size]
        file = tinylm.write_job(Path(name), LORA, JOB)
        ways = {way: Way(way, file, steps) for way in WAYS}
        dice = random.Random(0)
        try:
            for number in range(rounds + 3):
                for way in dice.sample(WAYS, len(WAYS)):
                    ways[way].turn(number >= 3)
        finally:
            for each in ways.values():
                each.end()
    base = ways["mlx-lm"]
    for way, each in ways.items():
        wall, cpu = (
            statistics.median(mine / other for mine, other in zip(one, two, strict=True))
            for one, two in ((each.seconds, base.seconds), (each.cpu, base.cpu))
        )
        step = statistics.median(each.seconds) / steps
        print(f"{size:6}{way:10}{1000 * step:9.2f} ms a step   {wall:.3f}   CPU {cpu:.3f}")


def main() -> None:
    """Compare, or be one of the ways."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4, help="of a turn")
    parser.add_argument("--model", choices=list(SIZES), default="tiny")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("file", nargs="?", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if importlib.util.find_spec("mlx_lm") is None:
        print("not measured: needs elasticd[lm]")
        return
    if options.way is None:
        compare(options.rounds, options.steps, options.model)
    elif options.way == "mlx-lm":
        theirs(options.file, turnstile(options.steps))
    else:
        compiled = ["recipe.config.compile=true"] if options.way == "compiled" else []
        ours(options.file, turnstile(options.steps), *compiled)


if __name__ == "__main__":
    main()
