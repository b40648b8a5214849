"""Rows in one sequence: none sees another, none is divided, and the loss is theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import UsageError
from elasticd.recipes import mlxlm, packing
from elasticd.recipes.rows import Row, collate, length
from elasticd.train.steps import recompute
from tests import tinylm


def rows_of(*sizes: int) -> list[Row]:
    dice = np.random.default_rng(0)
    return [(dice.integers(1, 255, size).astype(np.int32), size // 3) for size in sizes]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=200), st.integers(0, 3))
def test_each_row_is_in_one_sequence(sizes: list[int], seed: int) -> None:
    rows = rows_of(*sizes)
    packed = packing.pack(rows, 40, seed)
    assert max(map(length, packed)) <= 40
    assert sorted(id(row[0]) for sample in packed for row in sample) == sorted(
        id(row[0]) for row in rows
    )
    again = packing.pack(rows, 40, seed)
    assert [[id(row[0]) for row in s] for s in packed] == [[id(row[0]) for row in s] for s in again]


def test_little_is_left_empty() -> None:
    packed = packing.pack(rows_of(*[10, 20, 30, 5] * 30), 64, 0)
    assert len(packed) <= 1.1 * 65 * 30 / 64


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "qwen3", "mixtral"])
@pytest.mark.parametrize("recomputes", [False, True])
def test_the_loss_and_its_gradient_are_those_of_the_rows(
    kind: str, recomputes: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlx.nn.utils import value_and_grad

    model = made(kind, tmp_path)
    packing.check(model)
    if recomputes:
        recompute.switch_on(model)
    rows = rows_of(7, 12, 9)
    packed = [tuple(rows)]
    one = value_and_grad(model, mlxlm.token_loss)(model, *collate(64, packed=True)(packed))
    other = value_and_grad(model, mlxlm.token_loss)(model, *collate(64)([(row,) for row in rows]))
    assert one[0].weight.item() == other[0].weight.item() == 5 + 8 + 6
    assert one[0].mean.item() == pytest.approx(other[0].mean.item(), rel=1e-5)
    for (name, mine), (_, theirs) in zip(flat(one[1]), flat(other[1]), strict=True):
        assert mx.allclose(mine, theirs, rtol=1e-3, atol=1e-5).item(), name
    assert "keeps its activations" not in capsys.readouterr().err


def test_dropout_is_no_difference(tmp_path: Path) -> None:
    """As with adapters that are gone on with."""
    from mlx_lm.tuner.utils import linear_to_lora_layers

    model = made("llama", tmp_path)
    linear_to_lora_layers(model, 2, {"rank": 4, "scale": 8.0, "dropout": 0.5})
    adapters = [
        (name, mx.ones(a.shape)) for name, a in flat(model.parameters()) if "lora_b" in name
    ]
    model.load_weights(adapters, strict=False)
    model.train()
    packing.check(model)
    assert model.training


def test_a_model_that_can_not_keep_rows_apart_is_refused(tmp_path: Path) -> None:
    """One has a state that goes on from token to token, the other absolute positions."""
    with pytest.raises(UsageError, match="takes no mask"):
        packing.check(made("mamba", tmp_path / "mamba"))
    with pytest.raises(UsageError, match="not the same behind others"):
        packing.check(made("gpt2", tmp_path / "gpt2"))


KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"head_dim": 16, "max_position_embeddings": 99},
    "gemma3_text": {"head_dim": 16, "sliding_window": 5, "sliding_window_pattern": 2},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "mamba": {
        "state_size": 8, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True,
        "time_step_rank": 4,
    },
    "gpt2": {
        "n_ctx": 64, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64,
        "layer_norm_epsilon": 1e-5,
    },
    "afm7": {
        "hidden_dim": 64, "num_layers": 4, "num_kv_reuse_layers": 2, "num_heads": 4,
        "num_kv_heads": 2,
    },
    "gemma3n": {
        "num_hidden_layers": 4, "vocab_size": 300, "text_config": {
            "model_type": "gemma3n", "hidden_size": 64, "num_hidden_layers": 4,
            "intermediate_size": 64, "num_attention_heads": 4, "head_dim": 16,
            "rms_norm_eps": 1e-5, "vocab_size": 300, "num_key_value_heads": 2,
            "num_kv_shared_layers": 2, "vocab_size_per_layer_input": 300, "sliding_window": 8,
            "max_position_embeddings": 1000, "rope_local_base_freq": 1.0, "rope_theta": 1000.0,
            "final_logit_softcapping": 1.0,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "activation_sparsity_pattern": [0.5] * 4, "hidden_size_per_layer_input": 32,
            "altup_num_inputs": 4, "altup_coef_clip": 1.0, "altup_correct_scale": True,
            "altup_active_idx": 0, "laurel_rank": 8,
        },
    },
    "kimi_k3": {
        "num_hidden_layers": 4, "num_key_value_heads": 4, "attn_res_block_size": 2,
        "q_lora_rank": None, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "hidden_act": "situ", "activation_situ_beta": 1.0,
        "activation_situ_linear_beta": 1.0, "first_k_dense_replace": 10,
        "linear_attn_config": {
            "kda_layers": [], "full_attn_layers": [1, 2, 3, 4], "num_heads": 4, "head_dim": 16,
            "short_conv_kernel_size": 4,
        },
    },
}  # fmt: skip


def made(kind: str, folder: Path) -> Any:
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    from importlib import import_module

    module = import_module(f"mlx_lm.models.{kind}")
    config = {**tinylm.CONFIG, "model_type": kind, **KINDS[kind]}
    mx.random.seed(3)
    model = module.Model(module.ModelArgs.from_dict(json.loads(json.dumps(config))))
    mx.eval(model.parameters())
    return model


def flat(tree: Any) -> list[tuple[str, mx.array]]:
    from mlx.utils import tree_flatten

    found: Any = tree_flatten(tree)
    return list(found)
