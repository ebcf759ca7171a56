"""Decoder layers that compute the same with fewer passes over memory, put in place of transformers' own.

Projections that read one input become one packed linear layer, a projection takes the residual's addition with it,
and the rotary embedding goes with the write to the cache. The model's file stays as it is; the modules of one loaded
model are replaced, on the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import LlamaModel, MistralModel, PreTrainedModel, Qwen2Model, Qwen3Model
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer, MistralRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm

from genericbuilders.config import AttentionLayerConfig
from genericbuilders.kernels.linear import PackedLinear
from genericbuilders.kernels.select import AttentionKernels, select_kernels
from genericbuilders.rotary import Rotary
from genericbuilders_transformers.attention import LayerCalls

__all__ = ["fuse_layers", "pack"]

DecoderLayer = LlamaDecoderLayer | MistralDecoderLayer | Qwen2DecoderLayer | Qwen3DecoderLayer
RMSNorm = LlamaRMSNorm | MistralRMSNorm | Qwen2RMSNorm | Qwen3RMSNorm


def fuse_layers(hf: PreTrainedModel, heads: AttentionLayerConfig) -> int:
    """Replace the decoder layers, the last norm and the head of ``hf``, if they are known; else leave all as it is.

    Args:
        hf: the model; changed in place.
        heads: the heads of its attention layers.

    Returns:
        How many decoder layers were replaced.
    """
    base: object = getattr(hf, "model", None)
    if not isinstance(base, LlamaModel | MistralModel | Qwen2Model | Qwen3Model):
        return 0
    layers = base.get_submodule("layers")
    if base.config.hidden_act not in ("silu", "swish") or not isinstance(layers, nn.ModuleList):
        return 0
    kernels = select_kernels(hf.device, hf.dtype)
    for index in range(len(layers)):
        layers[index] = _FusedDecoderLayer(base.layers[index], index, heads, kernels)
    base.register_module("norm", _FusedNorm(base.norm, kernels))
    hf.register_module("lm_head", _FusedLinear(hf.lm_head))
    return len(layers)


class _FusedDecoderLayer(nn.Module):
    """One decoder layer; called as transformers calls its own."""

    def __init__(self, layer: DecoderLayer, index: int, heads: AttentionLayerConfig, kernels: AttentionKernels) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.index = index
        self.heads = heads
        self.kernels = kernels
        self.qkv_proj = pack(attention.q_proj, attention.k_proj, attention.v_proj)
        self.o_proj = pack(attention.o_proj)
        self.gate_up_proj = pack(mlp.gate_proj, mlp.up_proj)
        self.down_proj = pack(mlp.down_proj)
        self.input_norm = layer.input_layernorm
        self.post_attention_norm = layer.post_attention_layernorm
        self.query_norm: RMSNorm | None = getattr(attention, "q_norm", None)
        self.key_norm: RMSNorm | None = getattr(attention, "k_norm", None)

    def forward(
        self,
        hidden_states: Tensor,
        *,
        position_embeddings: tuple[Tensor, Tensor],
        layer_calls: LayerCalls,
        **kwargs: object,
    ) -> Tensor:
        """The layer's output, ``[1, num_tokens, hidden_size]``."""
        residual = hidden_states[0]
        attended = self._attend(self._norm(self.input_norm, residual), position_embeddings, layer_calls)
        residual = self.o_proj.add_to(residual, attended)
        gate_up = self.gate_up_proj(self._norm(self.post_attention_norm, residual))
        return self.down_proj.add_to(residual, self.kernels.silu_and_mul(gate_up))[None]

    def _attend(self, normed: Tensor, position_embeddings: tuple[Tensor, Tensor], layer_calls: LayerCalls) -> Tensor:
        heads, num_tokens = self.heads, normed.shape[0]
        qkv = self.qkv_proj(normed).view(num_tokens, heads.num_heads + 2 * heads.num_kv_heads, heads.head_size)
        query = qkv[:, : heads.num_heads]
        key = qkv[:, heads.num_heads : heads.num_heads + heads.num_kv_heads]
        value = qkv[:, heads.num_heads + heads.num_kv_heads :]
        if self.query_norm is not None and self.key_norm is not None:
            query = self._norm(self.query_norm, query.reshape(-1, heads.head_size)).view_as(query)
            key = self._norm(self.key_norm, key.reshape(-1, heads.head_size)).view_as(key)
        layer, context = layer_calls.layers[self.index], layer_calls.context
        cos, sin = position_embeddings
        rotary = Rotary(cos[0], sin[0])
        out = layer.attend_rotary(query, key, value, rotary, context.step, context.kv_caches)
        return out.view(num_tokens, -1)

    def _norm(self, norm: RMSNorm, hidden: Tensor) -> Tensor:
        return self.kernels.rms_norm(hidden, norm.weight, norm.variance_epsilon)


class _FusedNorm(nn.Module):
    def __init__(self, norm: RMSNorm, kernels: AttentionKernels) -> None:
        super().__init__()
        self.norm = norm
        self.kernels = kernels

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.kernels.rms_norm(hidden_states[0], self.norm.weight, self.norm.variance_epsilon)[None]


class _FusedLinear(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.packed = pack(linear)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.packed(hidden_states)


def pack(*projections: nn.Linear) -> PackedLinear:
    """One linear layer that computes all ``projections`` of one input, their outputs side by side."""
    weights = [projection.weight for projection in projections]
    return PackedLinear(torch.cat(weights) if len(weights) > 1 else weights[0], _biases(projections))


def _biases(projections: Sequence[nn.Linear]) -> Tensor | None:
    biases: list[Tensor | None] = [projection.bias for projection in projections]
    if all(bias is None for bias in biases):
        return None
    return torch.cat(
        [
            bias if bias is not None else projection.weight.new_zeros(projection.out_features)
            for bias, projection in zip(biases, projections, strict=True)
        ]
    )
