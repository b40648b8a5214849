"""What a big frozen base costs a LoRA job: seconds from a trainer's SIGKILL to the next committed
step, and bytes of a checkpoint, beside the same job with a small one.

Both models compute the same for each token: they are mixtures of experts, and the big one has more
experts of which as few are asked. One real cluster of three for each, in turns.

    python tests/benchmarks/bench_base.py [--samples 5] [--mib 300] [--rounds 1]

Needs elasticd[lm]. Nothing is asserted; the exit code is 0 when it measured.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from elasticd.cli import local, submit
from tests import tinylm
from tests.benchmarks.bench_recovery import NODES, Bench, hurt

LAYERS, WIDTH, INNER = 2, 64, 2048
ASKED = 2
SETTLE_SECONDS = 8.0
"""A spare that loads mlx-lm is ready by then."""
LORA = """\
model: {model}
data: data
num_layers: -1
learning_rate: 1e-4
batch_size: 12
iters: 1000000
steps_per_eval: 1000000
save_every: 1000000
steps_per_report: 1000000
lora_parameters: {{rank: 8, keys: [self_attn.q_proj, self_attn.v_proj]}}
"""
JOB = tinylm.JOB.replace("micro = 2", "micro = 4").replace("every_steps = 4", "every_steps = 50")


def write_model(folder: Path, mib: int) -> int:
    """A model of about so many MiB; returns its bytes."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models import mixtral

    expert = 3 * WIDTH * INNER * 4 * LAYERS
    config: dict[str, Any] = {
        **tinylm.CONFIG,
        "model_type": "mixtral",
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "intermediate_size": INNER,
        "num_local_experts": max(ASKED, (mib << 20) // expert),
        "num_experts_per_tok": ASKED,
    }
    folder.mkdir(parents=True)
    tinylm.write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(0)
    weights: Any = tree_flatten(mixtral.Model(mixtral.ModelArgs.from_dict(config)).parameters())
    mx.save_safetensors(str(folder / "model.safetensors"), dict(weights))
    return (folder / "model.safetensors").stat().st_size


def write_job(folder: Path, model: Path) -> Path:
    """A job that trains adapters of it."""
    tinylm.write_rows(folder / "data" / "train.jsonl", tinylm.completions(64, 1))
    (folder / "lora.yaml").write_text(LORA.format(model=model))
    (folder / "job.toml").write_text(JOB)
    return folder / "job.toml"


def measure(home: Path, job: Path, samples: int) -> tuple[list[float], int]:
    """Seconds of each kill, and the bytes of a checkpoint."""
    bench = Bench(home, random.Random(0), settle_seconds=SETTLE_SECONDS)
    found = []
    try:
        local.up(home, NODES)
        bench._follow(submit.prepare(job, ["world.max=3"]))
        for number in range(samples):
            one = hurt(bench, "trainer", number)[0]
            found.append(one.seconds)
            print(f"  {one.seconds:.2f} {one.rung} {one.parts}", flush=True)
        print()
        by_folder: dict[Path, int] = {}
        for shard in home.glob("node-*/checkpoints/*/*-*/shard-*"):
            seen = by_folder.setdefault(Path(shard.parent.name), 0)
            by_folder[Path(shard.parent.name)] = seen + shard.stat().st_size
        return found, max(by_folder.values(), default=0)
    finally:
        bench.watch.close()
        local.down(home)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=5, help="kills of each job and round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--mib", type=int, default=300, help="of the big base")
    options = parser.parse_args()
    if importlib.util.find_spec("mlx_lm") is None:
        print("not measured: needs elasticd[lm]")
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # daemons must not stay
    seconds: dict[str, list[float]] = {"small": [], "big": []}
    stored: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="elasticd-bench-") as name:
        folder = Path(name)
        sizes = {
            which: write_model(folder / which / "model", mib)
            for which, mib in (("small", 0), ("big", options.mib))
        }
        for number in range(options.rounds):
            for which in seconds:
                print(f"{which} ({sizes[which] / 2**20:.0f} MiB):", end="", flush=True)
                job = write_job(folder / f"{which}-{number}", folder / which / "model")
                found, stored[which] = measure(
                    folder / f"home-{which}-{number}", job, options.samples
                )
                seconds[which] += found
    for which, each in seconds.items():
        print(
            f"{which:6}{sizes[which] / 2**20:6.0f} MiB base: kill to next step"
            f" {statistics.median(each):.3f} s (median of {len(each)}); a checkpoint on all nodes:"
            f" {stored[which]:,} bytes"
        )
    big, small = (statistics.median(seconds[which]) for which in ("big", "small"))
    print(f"ratio {big / small:.2f}")


if __name__ == "__main__":
    main()
