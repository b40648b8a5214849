"""A model of mlx-lm that tests make in 1.5 s: a llama of two layers, a tokenizer of bytes.

``python tests/tinylm.py FOLDER`` writes a whole job there.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 259,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 257,
}
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool['function']['name'] }};{% endfor %}"
    "{% for message in messages %}{{ message['role'][0] }}:{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)
NEVER_ON_ONE_DAY = ("Pacific/Kiritimati", "Pacific/Pago_Pago")
"""Time zones between which 25 hours lie."""
LORA = """\
model: model
train: true
data: data
num_layers: -1
learning_rate: 1e-3
batch_size: 8
iters: 12
steps_per_eval: 4
save_every: 6
steps_per_report: 2
lora_parameters:
  rank: 4
  scale: 8.0
  dropout: 0.1
"""
JOB = """\
[job]
name = "tiny-lora"

[recipe]
kind = "mlx-lm"
config = "lora.yaml"

[batch]
micro = 2

[checkpoint]
every_steps = 4
"""
DPO_JOB = JOB.replace("tiny-lora", "tiny-dpo").replace('"mlx-lm"', '"dpo"')


def write_tokenizer(folder: Path) -> None:
    """A tokenizer whose tokens are bytes, with a template for chats."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: at for at, letter in enumerate(letters)}
    specials = ["<s>", "</s>", "<pad>"]
    words |= {name: len(letters) + at for at, name in enumerate(specials)}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(str(folder))


def write_model(folder: Path, seed: int = 0, bits: int = 0) -> Path:
    """A model folder as mlx-lm reads it, quantised to so many ``bits`` unless that is 0."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten
    from mlx_lm.models import llama

    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    config: dict[str, Any] = dict(CONFIG)
    mx.random.seed(seed)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    if bits:
        config["quantization"] = {"group_size": 32, "bits": bits}
        nn.quantize(model, **config["quantization"])
    (folder / "config.json").write_text(json.dumps(config))
    weights: Any = tree_flatten(model.parameters())
    mx.save_safetensors(str(folder / "model.safetensors"), dict(weights))
    return folder


def write_day(folder: Path) -> None:
    """Have the template of a model folder write the day, as that of Llama 3.1 does."""
    for file in folder.glob("chat_template*"):
        file.unlink()
    settings = folder / "tokenizer_config.json"
    template = "Today: {{ strftime_now('%d %b %Y') }}\n" + TEMPLATE
    said = {**json.loads(settings.read_text()), "chat_template": template}
    settings.write_text(json.dumps(said))


def completions(count: int, seed: int) -> list[dict[str, str]]:
    """Rows of very different lengths."""
    dice = random.Random(seed)
    words = ["one", "two", "three", "four", "five"]
    return [
        {
            "prompt": " ".join(dice.choices(words, k=dice.randrange(1, 12))),
            "completion": " ".join(dice.choices(words, k=dice.randrange(1, 6))),
        }
        for _ in range(count)
    ]


def preferences(count: int, seed: int) -> list[dict[str, str]]:
    """Rows whose chosen answers are of other words than the rejected ones."""
    return [
        {"prompt": row["prompt"], "chosen": "yes " + row["completion"], "rejected": "no"}
        for row in completions(count, seed)
    ]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_job(
    folder: Path,
    lora: str = LORA,
    job: str = JOB,
    rows: Callable[[int, int], Iterable[Mapping[str, Any]]] = completions,
    bits: int = 0,
) -> Path:
    """A job that fine-tunes such a model, quantised to so many ``bits``; returns its job.toml."""
    write_model(folder / "model", bits=bits)
    for name, count in (("train", 37), ("valid", 9), ("test", 7)):
        write_rows(folder / "data" / f"{name}.jsonl", rows(count, count))
    (folder / "lora.yaml").write_text(lora)
    (folder / "job.toml").write_text(job)
    return folder / "job.toml"


if __name__ == "__main__":
    print(write_job(Path(sys.argv[1])))
