"""The back end without a cache: what it builds and refuses, and what it says about graphs."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
import torch
from attention_batches import make_batch
from hypothesis import given
from hypothesis import strategies as st

from genericbuilders.adapter import BindError, BoundGroup
from genericbuilders.backends.encoder_only import ENCODER_ONLY, EncoderOnlyMetadata
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.engine.cudagraph import CUDAGraphMode, resolve_cudagraph_mode
from genericbuilders.kernels.tolerance import compare_to_reference
from genericbuilders.specs import EncoderOnlyAttentionSpec, FullAttentionSpec

LAYER = AttentionLayerConfig(6, 2, 16, 0.25, causal=False)
CONFIG = EngineConfig(max_model_len=64, layers={"l0": LAYER, "causal": replace(LAYER, causal=True)})
SPEC = EncoderOnlyAttentionSpec(block_size=1, num_kv_heads=2, head_size=16, dtype=torch.float32)
CPU = torch.device("cpu")


def bind() -> BoundGroup[EncoderOnlyMetadata, EncoderOnlyAttentionSpec]:
    return ENCODER_ONLY.bind(SPEC, [ENCODER_ONLY.layer("l0", LAYER)], CONFIG, CPU)


@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    window=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 99),
)
def test_every_token_sees_its_whole_request(lengths: list[int], window: int | None, seed: int) -> None:
    layer = replace(LAYER, sliding_window=window)
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(sum(lengths), 6, 16, generator=generator)
    key, value = torch.randn(2, sum(lengths), 2, 16, generator=generator).unbind()
    metadata = bind().builder.build(0, make_batch(lengths, [0] * len(lengths), 1))
    found = ENCODER_ONLY.layer("l0", layer).impl.forward(query, key, value, torch.empty(0), metadata)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        rows: list[torch.Tensor] = []
        for first, last in pairwise(accumulate(lengths, initial=0)):
            q, k, v = query[first:last], key[first:last], value[first:last]
            scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(3, 1)) * 0.25
            if window is not None:
                place = torch.arange(len(q))
                scores = scores.masked_fill((place[:, None] - place).abs() >= window, -torch.inf)
            rows.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.repeat_interleave(3, 1)))
        return torch.cat(rows)

    comparison = compare_to_reference(found, attend, [query, key, value])
    assert comparison.passed, comparison


def test_a_request_in_pieces_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1 comes in pieces: 4 of its tokens were in an earlier batch"):
        bind().builder.build(0, make_batch([3, 2], [0, 4], 1))


def test_layers_that_are_causal_and_specs_with_a_cache_are_refused() -> None:
    with pytest.raises(ValueError, match=r"layers \['causal'\] are causal, .* but their spec is an EncoderOnly"):
        ENCODER_ONLY.bind(SPEC, [ENCODER_ONLY.layer("causal", replace(LAYER, causal=True))], CONFIG, CPU)
    full = FullAttentionSpec(block_size=1, num_kv_heads=2, head_size=16, dtype=torch.float32)
    with pytest.raises(BindError, match=r"takes EncoderOnlyAttentionSpec, but layers .* have a FullAttentionSpec"):
        ENCODER_ONLY.bind_any(full, [ENCODER_ONLY.layer("l0", LAYER)], CONFIG, CPU)
    with pytest.raises(BindError, match=r"but layers .* have a EncoderOnlyAttentionSpec"):
        FLASH_ATTN.bind_any(SPEC, [FLASH_ATTN.layer("l0", LAYER)], CONFIG, CPU)


@pytest.mark.parametrize(
    "layer",
    [replace(LAYER, alibi_slopes=(0.1,) * 6), replace(LAYER, attention_chunk_size=4)],
    ids=["alibi_slopes", "attention_chunk_size"],
)
def test_what_it_would_leave_out_is_refused(layer: AttentionLayerConfig) -> None:
    config = EngineConfig(max_model_len=64, layers={"l0": layer})
    with pytest.raises(ValueError, match=r"\['l0'\] .*ALiBi slopes or see chunks.* alibi_slopes=None"):
        ENCODER_ONLY.bind(SPEC, [ENCODER_ONLY.layer("l0", layer)], config, CPU)


def test_sinks_of_another_dtype_are_taken() -> None:
    query, key, value = torch.randn(5, 6, 16), torch.randn(5, 2, 16), torch.randn(5, 2, 16)
    metadata = bind().builder.build(0, make_batch([5], [0], 1))
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0, 1.5, -0.25])
    got, expected = (
        ENCODER_ONLY.layer("l0", replace(LAYER, sinks=given)).impl.forward(
            query, key, value, kv_cache=query.new_empty(0), attn_metadata=metadata
        )
        for given in (sinks.bfloat16(), sinks)
    )
    assert torch.equal(got, expected)


def test_padding_behind_stale_buffers_is_no_request_in_pieces() -> None:
    common = make_batch([3, 0], [0, 7], 1)
    assert bind().builder.build(0, common).num_actual_tokens == 3


def test_it_takes_part_in_the_choice_of_graphs_though_it_has_no_cache() -> None:
    group = bind()
    assert group.cudagraph_support() is AttentionCGSupport.NEVER
    assert group.spec.max_resident_blocks(CONFIG) == 0
    supports = [("decoder", AttentionCGSupport.ALWAYS), (group.adapter.name, group.cudagraph_support())]
    resolved = resolve_cudagraph_mode(CUDAGraphMode.FULL, supports, uniform_query_len=1)
    assert (resolved.mode, resolved.limiting_backend) == (CUDAGraphMode.PIECEWISE, "encoder_only")
