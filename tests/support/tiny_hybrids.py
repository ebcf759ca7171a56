"""Small random models of the families with state-space layers that the transformers adapter serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from transformers import (
    BambaConfig,
    BambaForCausalLM,
    FalconMambaConfig,
    FalconMambaForCausalLM,
    JambaConfig,
    JambaForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    MiniMaxConfig,
    MiniMaxForCausalLM,
    PreTrainedModel,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

__all__ = ["HYBRIDS", "hybrid_of", "tiny_hybrid"]

VOCAB_SIZE = 97
MODEL_LEN = 256


def tiny_hybrid(family: str, seed: int = 0) -> PreTrainedModel:
    """A model of two to four layers, of each kind that the family has, with 97 tokens, in float32.

    Chunks are of 8 tokens where a family has them, and the two kinds of heads differ in number and size.
    """
    torch.random.set_rng_state(torch.Generator().manual_seed(seed).get_state())
    return hybrid_of(MAKERS[family]())


def hybrid_of(model: PreTrainedModel) -> PreTrainedModel:
    """``model`` with random weights that decide tokens clearly, and whose states remember more than a few tokens."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.add_(torch.randn(parameter.shape) * 0.2).clamp_(max=1.5)
            elif name.endswith(("dt_bias", "dt_proj.bias")):
                parameter.uniform_(-4.0, -1.0)
            elif parameter.dim() > 2 and "conv" in name:
                parameter.normal_(0.0, 0.6)
            elif parameter.dim() > 1:
                parameter.mul_(0.16 / float(parameter.std()))
            else:
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return model.eval()


def _falcon_mamba() -> PreTrainedModel:
    return FalconMambaForCausalLM(
        FalconMambaConfig(vocab_size=VOCAB_SIZE, hidden_size=32, state_size=6, num_hidden_layers=2, use_bias=True)
    )


def _jamba() -> PreTrainedModel:
    return JambaForCausalLM(
        JambaConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            attn_layer_period=3,
            attn_layer_offset=1,
            num_experts=4,
            mamba_d_state=6,
            max_position_embeddings=MODEL_LEN,
        )
    )


def _mamba2() -> PreTrainedModel:
    return Mamba2ForCausalLM(
        Mamba2Config(
            vocab_size=VOCAB_SIZE,
            hidden_size=24,
            num_heads=6,
            head_dim=8,
            state_size=10,
            n_groups=2,
            chunk_size=8,
            num_hidden_layers=2,
            time_step_limit=(0.02, 0.4),
        )
    )


def _bamba() -> PreTrainedModel:
    return BambaForCausalLM(
        BambaConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            attn_layer_indices=[1],
            mamba_n_heads=8,
            mamba_d_state=10,
            mamba_n_groups=2,
            mamba_chunk_size=8,
            mamba_proj_bias=True,
            max_position_embeddings=MODEL_LEN,
        )
    )


def _qwen3_next() -> PreTrainedModel:
    return Qwen3NextForCausalLM(
        Qwen3NextConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            linear_num_key_heads=2,
            linear_num_value_heads=6,
            linear_key_head_dim=8,
            linear_value_head_dim=10,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
            num_experts=4,
            num_experts_per_tok=2,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            max_position_embeddings=MODEL_LEN,
        )
    )


def _minimax() -> PreTrainedModel:
    return MiniMaxForCausalLM(
        MiniMaxConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=24,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=4,
            block_size=8,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            max_position_embeddings=MODEL_LEN,
        )
    )


def _lfm2() -> PreTrainedModel:
    return Lfm2ForCausalLM(
        Lfm2Config(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            layer_types=["conv", "full_attention", "conv"],
            conv_bias=True,
            block_multiple_of=16,
            max_position_embeddings=MODEL_LEN,
        )
    )


MAKERS: Mapping[str, Callable[[], PreTrainedModel]] = {
    "falcon_mamba": _falcon_mamba,
    "jamba": _jamba,
    "mamba2": _mamba2,
    "bamba": _bamba,
    "qwen3_next": _qwen3_next,
    "minimax": _minimax,
    "lfm2": _lfm2,
}
HYBRIDS = tuple(MAKERS)
