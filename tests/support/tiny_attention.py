"""Small random models of the families whose attention is more than full: windows, chunks, sinks, caps, latent vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    DeepseekV32Config,
    DeepseekV32ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3nForCausalLM,
    Gemma3nTextConfig,
    Gemma3TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

__all__ = ["ATTENTION_FAMILIES", "WINDOW", "tiny_attention", "tiny_sparse"]

VOCAB_SIZE = 97
MODEL_LEN = 256
WINDOW = 8


def tiny_attention(family: str, seed: int = 0) -> PreTrainedModel:
    """A model of a few layers, of each kind that the family has, with 97 tokens, in float32.

    Windows and chunks are of 8 tokens.
    """
    return _random(MAKERS[family], seed)


def tiny_sparse(topk: int, seed: int = 0) -> PreTrainedModel:
    """DeepSeek-V3.2 of 2 layers, whose tokens attend over ``topk`` others."""
    return _random(lambda: _deepseek_v32(topk), seed)


def _random(make: Callable[[], PreTrainedModel], seed: int) -> PreTrainedModel:
    torch.random.set_rng_state(torch.Generator().manual_seed(seed).get_state())
    model = make()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.16)
            elif name.endswith("sinks"):
                parameter.normal_(0.0, 1.0)
            else:
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return model.eval()


def _mistral() -> PreTrainedModel:
    return MistralForCausalLM(
        MistralConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=MODEL_LEN,
            sliding_window=WINDOW,
        )
    )


def _gemma2() -> PreTrainedModel:
    return Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            query_pre_attn_scalar=20,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=30.0,
            sliding_window=WINDOW,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            max_position_embeddings=MODEL_LEN,
        )
    )


def _gemma3() -> PreTrainedModel:
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            query_pre_attn_scalar=20,
            sliding_window=WINDOW,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            max_position_embeddings=MODEL_LEN,
        )
    )


def _gemma3n() -> PreTrainedModel:
    """The first three layers store, the last four read the caches of the second and the third."""
    return Gemma3nForCausalLM(
        Gemma3nTextConfig(
            vocab_size=VOCAB_SIZE,
            vocab_size_per_layer_input=VOCAB_SIZE,
            hidden_size=32,
            hidden_size_per_layer_input=8,
            intermediate_size=48,
            num_hidden_layers=7,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            num_kv_shared_layers=4,
            altup_num_inputs=2,
            laurel_rank=4,
            activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0],
            sliding_window=WINDOW,
            layer_types=[
                "sliding_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "full_attention",
            ],
            max_position_embeddings=MODEL_LEN,
        )
    )


def _gpt_oss() -> PreTrainedModel:
    return GptOssForCausalLM(
        GptOssConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=24,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            num_local_experts=4,
            num_experts_per_tok=2,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            sliding_window=WINDOW,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            max_position_embeddings=MODEL_LEN,
        )
    )


def _llama4() -> PreTrainedModel:
    return Llama4ForCausalLM(
        Llama4TextConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=24,
            intermediate_size_mlp=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            num_local_experts=4,
            num_experts_per_tok=1,
            attention_chunk_size=WINDOW,
            layer_types=["chunked_attention", "full_attention", "chunked_attention"],
            max_position_embeddings=MODEL_LEN,
        )
    )


def _deepseek_v2() -> PreTrainedModel:
    return DeepseekV2ForCausalLM(
        DeepseekV2Config(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=48,
            moe_intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            kv_lora_rank=12,
            q_lora_rank=None,
            qk_nope_head_dim=6,
            qk_rope_head_dim=4,
            v_head_dim=5,
            first_k_dense_replace=1,
            n_routed_experts=4,
            n_shared_experts=1,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            max_position_embeddings=MODEL_LEN,
        )
    )


def _deepseek_v3() -> PreTrainedModel:
    return DeepseekV3ForCausalLM(
        DeepseekV3Config(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=48,
            moe_intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            kv_lora_rank=12,
            q_lora_rank=10,
            qk_nope_head_dim=6,
            qk_rope_head_dim=4,
            v_head_dim=5,
            first_k_dense_replace=1,
            n_routed_experts=4,
            n_shared_experts=1,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            max_position_embeddings=MODEL_LEN,
        )
    )


def _deepseek_v32(topk: int = WINDOW) -> PreTrainedModel:
    # With so many heads no two keys score the same; with few, many score 0.
    return DeepseekV32ForCausalLM(
        DeepseekV32Config(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=48,
            moe_intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            kv_lora_rank=12,
            q_lora_rank=10,
            qk_nope_head_dim=6,
            qk_rope_head_dim=4,
            v_head_dim=5,
            first_k_dense_replace=1,
            n_routed_experts=4,
            n_shared_experts=1,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            index_topk=topk,
            index_head_dim=8,
            index_n_heads=32,
            max_position_embeddings=MODEL_LEN,
        )
    )


MAKERS: Mapping[str, Callable[[], PreTrainedModel]] = {
    "mistral": _mistral,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma3n": _gemma3n,
    "gpt_oss": _gpt_oss,
    "llama4": _llama4,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "deepseek_v32": _deepseek_v32,
}
ATTENTION_FAMILIES = tuple(MAKERS)
