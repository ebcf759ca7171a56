"""Small random models of the families that the transformers adapter serves, and a tokenizer for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    TokenizersBackend,
)

from genericbuilders.adapter import AttentionAdapter
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.setup import EngineOptions, build_engine
from genericbuilders.model import LoadedModel
from genericbuilders.specs import MambaCacheMode
from genericbuilders_transformers.model import TransformersModel

__all__ = ["FAMILIES", "IdTokenizer", "greedy_tokens", "save", "tiny_engine", "tiny_model"]


class Sizes(TypedDict):
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int


SIZES = Sizes(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


class IdTokenizer:
    """Writes each token as its number: ``"3 14 15"``."""

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(f"{token} " for token in token_ids)


def tiny_model(family: str = "llama", seed: int = 0) -> PreTrainedModel:
    """A model of two layers with 4 query heads, 2 key-value heads and 97 tokens, in float32."""
    torch.random.set_rng_state(torch.Generator().manual_seed(seed).get_state())
    # Large weights keep the logits apart, so that a token is never decided by rounding.
    if family == "mistral":
        return _large(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)))
    if family == "qwen2":
        return _large(Qwen2ForCausalLM(Qwen2Config(**SIZES)))
    if family == "qwen3":
        return _large(Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=12)))
    return _large(LlamaForCausalLM(LlamaConfig(**SIZES)))


def _large(model: PreTrainedModel) -> PreTrainedModel:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8.0)
            else:
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return model.eval()


@torch.inference_mode()
def greedy_tokens(model: PreTrainedModel, prompt: Sequence[int], count: int) -> list[int]:
    """transformers' own greedy continuation, each token from one pass over the whole sequence."""
    tokens = list(prompt)
    for _ in range(count):
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits
        tokens.append(int(logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def tiny_engine(
    model: PreTrainedModel,
    options: EngineOptions,
    *,
    fuse: bool = True,
    mamba_cache_mode: MambaCacheMode = "none",
    mamba_block_size: int | None = None,
    fast_prefill: bool = True,
    attention: AttentionAdapter | None = None,
) -> Engine:
    """An engine around ``model``, which is changed by it."""
    served = TransformersModel(
        model,
        block_size=options.block_size,
        fuse=fuse,
        mamba_cache_mode=mamba_cache_mode,
        mamba_block_size=mamba_block_size,
        fast_prefill=fast_prefill,
        attention=attention,
    )
    return build_engine(LoadedModel(served, IdTokenizer()), options)


def save(model: PreTrainedModel, folder: Path) -> Path:
    """The model's folder, with a tokenizer that calls token 3 ``t3``."""
    model.save_pretrained(folder)
    words = Tokenizer(WordLevel({f"t{token}": token for token in range(SIZES["vocab_size"])}, unk_token="t0"))
    words.pre_tokenizer = WhitespaceSplit()
    TokenizersBackend(tokenizer_object=words).save_pretrained(folder)
    return folder
