"""The same models with their attention bound to other back ends that take their specs: transformers' own tokens."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_attention import ATTENTION_FAMILIES, WINDOW, tiny_attention
from tiny_models import greedy_tokens, tiny_engine

from genericbuilders.adapter import Adapter
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.flashinfer import FLASHINFER
from genericbuilders.backends.hpc import HPC
from genericbuilders.backends.triton import TRITON
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions
from genericbuilders_transformers import layers

# Latent attention has back ends of its own, and caches of these are not shared.
FAMILIES = [family for family in ATTENTION_FAMILIES if not family.startswith(("deepseek", "gemma3n"))]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("adapter", [FLASHINFER, TRITON, HPC], ids=lambda adapter: adapter.name)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 50), block_size=st.sampled_from([2, 4, 8]), budget=st.integers(3, 20), tight=st.booleans())
def test_tokens_are_transformers_own(
    family: str, adapter: Adapter, seed: int, block_size: int, budget: int, tight: bool
) -> None:
    rng = random.Random(seed)
    prompts = [[rng.randrange(97) for _ in range(rng.choice([1, 5, WINDOW, 25]))] for _ in range(4)]
    options = EngineOptions(
        block_size=block_size,
        num_blocks=1 + 56 // block_size if tight else None,
        max_num_batched_tokens=budget,
        max_num_seqs=3,
        max_model_len=48,
        # hpc takes caches that keep all blocks, and windows as what they are promoted from.
        hybrid_kv_cache=adapter is not HPC,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "FLASH_ATTN", adapter)
        engine = tiny_engine(tiny_attention(family), options)
    bound = {group.adapter for group in engine.runner.groups}
    assert adapter in bound
    assert FLASH_ATTN not in bound
    found = engine.generate(prompts, SamplingParams(max_tokens=6))
    reference = tiny_attention(family)
    assert [list(each.token_ids) for each in found] == [greedy_tokens(reference, tokens, 6) for tokens in prompts]
