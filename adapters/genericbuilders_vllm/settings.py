"""vLLM's settings for its builders, made from this library's."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from genericbuilders.config import AttentionLayerConfig, EngineConfig, StateLayerConfig, query_heads
from genericbuilders.specs import (
    AttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    iter_layer_specs,
)
from genericbuilders_vllm.library import require_vllm

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["make_vllm_config"]

_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def make_vllm_config(config: EngineConfig, spec: KVCacheSpec, layer_names: Sequence[str] = ()) -> VllmConfig:
    """A real ``VllmConfig`` that says what ``config`` says, made by vLLM itself for a model that is only described.

    The described model is a small Llama with the heads of the layers, or the chunk of state-space layers. vLLM fills in
    everything else; the layers themselves are not registered. A builder that reads more of its model needs the real
    settings: ``wrap(..., vllm_config=...)``.

    Args:
        config: the run's settings.
        spec: what the caches of the builder's layers hold.
        layer_names: those layers; empty to ask about graphs only.

    Raises:
        ValueError: a layer is unknown or of another kind, layers disagree, or the spec is of latent attention, whose
            model cannot be made up.
        BackendUnavailableError: vLLM is not installed.
    """
    require_vllm("making a VllmConfig")
    from vllm.engine.arg_utils import EngineArgs

    if config.dtype not in _DTYPES:
        raise ValueError(f"EngineConfig.dtype is {config.dtype}; vLLM runs models in {', '.join(_DTYPES.values())}")
    speculative = {"method": "ngram", "num_speculative_tokens": config.num_speculative_tokens, "prompt_lookup_max": 2}
    modes = {each.mamba_cache_mode: each for each in iter_layer_specs(spec) if isinstance(each, MambaSpec)}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_model(config, spec, layer_names)))
        made = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            dtype=_DTYPES[config.dtype],
            max_model_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=max(config.max_num_batched_tokens, config.max_num_seqs),
            block_size=config.block_size,
            enable_prefix_caching=config.enable_prefix_caching,
            enforce_eager=True,
            speculative_config=speculative if config.num_speculative_tokens else None,
        ).create_engine_config()
    made.cache_config.num_gpu_blocks = config.num_blocks
    for mode, each in modes.items():
        # The made-up model has no such layers, so that vLLM would refuse these as arguments.
        made.cache_config.mamba_cache_mode = mode
        made.cache_config.mamba_block_size = each.block_size
    return made


def _model(config: EngineConfig, spec: KVCacheSpec, layer_names: Sequence[str]) -> dict[str, object]:
    heads, kv_heads, head_size = _heads(config, spec, layer_names)
    described: dict[str, object] = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 128,
        "hidden_size": heads * head_size,
        "head_dim": head_size,
        "intermediate_size": 4 * heads * head_size,
        "num_hidden_layers": max(1, len(config.layers)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": config.max_model_len,
    }
    states = {name: layer for name, layer in config.layers.items() if isinstance(layer, StateLayerConfig)}
    chunks = {states[name].chunk_size for name in layer_names or states if name in states}
    if len(chunks) > 1:
        raise ValueError(
            f"layers {list(layer_names or states)} have chunks of {sorted(chunks)}; vLLM knows one a model"
        )
    for chunk in chunks:
        described["mamba_chunk_size"] = chunk
    return described


def _heads(config: EngineConfig, spec: KVCacheSpec, layer_names: Sequence[str]) -> tuple[int, int, int]:
    """Query heads, key-value heads and head size of the layers; any will do where the layers have none."""
    attention = [each for each in iter_layer_specs(spec) if isinstance(each, AttentionSpec)]
    if any(isinstance(each, MLAAttentionSpec | SlidingWindowMLASpec) for each in attention):
        raise ValueError(
            f"a {type(spec).__name__} needs the settings of a model with latent attention; hand vLLM's own over: "
            "wrap(..., vllm_config=...)"
        )
    if attention:
        kv_heads, head_size = attention[0].num_kv_heads, attention[0].head_size
        return query_heads(config, layer_names) if layer_names else kv_heads, kv_heads, head_size
    for layer in config.layers.values():
        if isinstance(layer, AttentionLayerConfig):
            return layer.num_heads, layer.num_kv_heads, layer.head_size
    return 1, 1, 8
