"""Models whose attention is more than full, on our back ends: logits and tokens as if each request ran alone."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from hybrid_batches import HandFed
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_attention import ATTENTION_FAMILIES, WINDOW, tiny_attention
from tiny_models import greedy_tokens, tiny_engine
from torch import Tensor
from transformers import PreTrainedModel

from genericbuilders.adapter import Adapter
from genericbuilders.backends.chunked_local import CHUNKED_LOCAL
from genericbuilders.backends.fast_prefill import FAST_PREFILL
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.indexer import INDEXER
from genericbuilders.backends.mla import MLA
from genericbuilders.backends.mla_sparse import MLA_SPARSE
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions
from genericbuilders.model import LoadError
from genericbuilders.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from genericbuilders_transformers.model import TransformersModel

LOGITS = 1e-4
MIXED: list[tuple[Adapter, type[AttentionSpec]]] = [
    (FLASH_ATTN, SlidingWindowSpec),
    (FLASH_ATTN, FullAttentionSpec),
    (FLASH_ATTN, SlidingWindowSpec),
]
LAYERS: dict[str, list[tuple[Adapter, type[AttentionSpec]]]] = {
    "mistral": [(FLASH_ATTN, SlidingWindowSpec)] * 2,
    "gemma2": MIXED,
    "gemma3": MIXED,
    "gemma3n": [
        (FLASH_ATTN, SlidingWindowSpec),
        (FLASH_ATTN, SlidingWindowSpec),
        (FLASH_ATTN, FullAttentionSpec),
        (FAST_PREFILL, SlidingWindowSpec),
        (FAST_PREFILL, FullAttentionSpec),
        (FAST_PREFILL, SlidingWindowSpec),
        (FAST_PREFILL, FullAttentionSpec),
    ],
    "gpt_oss": MIXED,
    "llama4": [
        (CHUNKED_LOCAL, ChunkedLocalAttentionSpec),
        (FLASH_ATTN, FullAttentionSpec),
        (CHUNKED_LOCAL, ChunkedLocalAttentionSpec),
    ],
    "deepseek_v2": [(MLA, MLAAttentionSpec)] * 2,
    "deepseek_v3": [(MLA, MLAAttentionSpec)] * 2,
    "deepseek_v32": [(MLA_SPARSE, MLAAttentionSpec), (INDEXER, MLAAttentionSpec)] * 2,
}


@cache
def reference(family: str) -> PreTrainedModel:
    """transformers' own model, left as it is."""
    return tiny_attention(family)


def prompt(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(97) for _ in range(length)]


@torch.inference_mode()
def logits_alone(family: str, tokens: list[int]) -> Tensor:
    return reference(family)(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


@pytest.mark.parametrize("family", ATTENTION_FAMILIES)
def test_each_layer_has_its_own_back_end_and_cache(family: str) -> None:
    model = TransformersModel(tiny_attention(family), block_size=4)
    found = [(placed.layer.adapter, type(placed.kv_cache_spec)) for placed in model.layers]
    assert found == LAYERS[family]


@pytest.mark.parametrize("family", ATTENTION_FAMILIES)
def test_every_split_of_a_prompt_gives_its_logits(family: str) -> None:
    """Windows and chunks are of 8 tokens: the pieces end before, at and behind their ends."""
    tokens = prompt(random.Random(3), 21)
    expected = logits_alone(family, tokens)
    fed = HandFed(TransformersModel(tiny_attention(family), block_size=4), len(tokens))
    splits = range(1, len(tokens))
    whole = fed.step({0: tokens})
    first = fed.step({split: tokens[:split] for split in splits})
    rest = fed.step({split: tokens[split:] for split in splits})
    torch.testing.assert_close(whole[0], expected, rtol=0, atol=LOGITS)
    for split in splits:
        torch.testing.assert_close(torch.cat([first[split], rest[split]]), expected, rtol=0, atol=LOGITS)


@pytest.mark.parametrize("family", ATTENTION_FAMILIES)
@settings(max_examples=4, deadline=None)
@given(
    seed=st.integers(0, 50),
    block_size=st.sampled_from([1, 2, 4, 8]),
    budget=st.integers(3, 20),
    tight=st.booleans(),
    caching=st.booleans(),
    hybrid=st.booleans(),
)
def test_tokens_of_continuous_batching_are_transformers_own(
    family: str, seed: int, block_size: int, budget: int, tight: bool, caching: bool, hybrid: bool
) -> None:
    rng = random.Random(seed)
    common = prompt(rng, 20)
    prompts = [common[: rng.randint(0, 20)] + prompt(rng, rng.choice([1, 5, WINDOW, 13])) for _ in range(5)]
    options = EngineOptions(
        block_size=block_size,
        num_blocks=1 + 56 // block_size if tight else None,
        max_num_batched_tokens=budget,
        max_num_seqs=3,
        max_model_len=48,
        enable_prefix_caching=caching,
        hybrid_kv_cache=hybrid,
    )
    engine = tiny_engine(tiny_attention(family), options)
    found = engine.generate(prompts, SamplingParams(max_tokens=6))
    assert [list(each.token_ids) for each in found] == [
        greedy_tokens(reference(family), tokens, 6) for tokens in prompts
    ]
    assert all(pool.num_free_blocks == pool.num_usable_blocks for pool in engine.runner.coordinator.pools)


def test_chunks_that_blocks_do_not_divide_are_refused() -> None:
    with pytest.raises(LoadError, match="its chunks of 8 tokens are no multiple of the block size 16"):
        TransformersModel(tiny_attention("llama4"), block_size=16)


def test_layers_of_another_type_are_refused() -> None:
    hf = tiny_attention("gemma3")
    hf.config.layer_types = ["strided_attention"] * 3  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue] - a setting that is not served
    with pytest.raises(LoadError, match="layer 0 is of type 'strided_attention', with sliding_window 8"):
        TransformersModel(hf, block_size=4)
