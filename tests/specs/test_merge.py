from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genericbuilders.config import EngineConfig
from genericbuilders.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    KVQuantMode,
    MambaCacheMode,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    SpecMergeError,
    UniformTypeKVCacheSpecs,
    promote_to_full,
)

FULL = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32)
RSWA = RSWASpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, rswa_window=8)
SINK = SinkFullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, sink_len=4)
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, sliding_window=8)
CHUNK = ChunkedLocalAttentionSpec(
    block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, attention_chunk_size=8
)
MLA = MLAAttentionSpec(
    block_size=16,
    num_kv_heads=1,
    head_size=64,
    dtype=torch.uint8,
    kv_quant_mode=KVQuantMode.FP8_PER_TENSOR,
    cache_dtype_str="fp8",
    alignment=512,
)
WINDOW_MLA = SlidingWindowMLASpec(
    block_size=16,
    num_kv_heads=1,
    head_size=64,
    dtype=torch.uint8,
    sliding_window=8,
    kv_quant_mode=KVQuantMode.FP8_PER_TENSOR,
    cache_dtype_str="fp8",
    alignment=512,
)
STATE = MambaSpec(32, ((3, 8),), (torch.float32,))
CROSS = CrossAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32)
ENCODER = EncoderOnlyAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32)
ALL: tuple[KVCacheSpec, ...] = (
    FULL, RSWA, SINK, WINDOW, CHUNK, MLA, WINDOW_MLA, STATE, CROSS, ENCODER
)  # fmt: skip


def refusal(specs: Sequence[KVCacheSpec]) -> SpecMergeError:
    with pytest.raises(SpecMergeError) as caught:
        KVCacheSpec.merge(specs)
    assert isinstance(caught.value, ValueError)
    return caught.value


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: type(spec).__name__)
def test_equal_specs_merge_to_themselves(spec: KVCacheSpec) -> None:
    assert KVCacheSpec.merge([spec, replace(spec), replace(spec)]) == spec
    assert type(KVCacheSpec.merge([spec])) is type(spec)


def test_different_types_are_refused_in_every_order() -> None:
    for one, other in permutations(ALL, 2):
        message = str(refusal([one, other]))
        assert message == str(refusal([other, one]))
        assert type(one).__name__ in message
        assert type(other).__name__ in message


# Another value for every field that any spec has, so that a field added later without one fails below.
OTHER: dict[str, object] = {
    "block_size": 64,
    "num_kv_heads": 4,
    "head_size": 128,
    "dtype": torch.bfloat16,
    "head_size_v": 32,
    "kv_quant_mode": KVQuantMode.NVFP4,
    "page_size_padded": 1 << 20,
    "num_head_slots": 3,
    "state_content_bytes": 100,
    "tokens_per_state": 2,
    "sliding_window": 16,
    "attention_chunk_size": 16,
    "non_causal": True,
    "rswa_window": 16,
    "sink_len": 8,
    "max_encoder_len": 1_500,
    "extra_retained_tokens": 2,
    "cache_dtype_str": "other",
    "alignment": 1_024,
    "model_version": "other",
    "bounded_replay": True,
    "shapes": ((4, 8),),
    "dtypes": (torch.bfloat16,),
    "mamba_type": "gdn",
    "mamba_cache_mode": "all",
    "num_speculative_blocks": 2,
}


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: type(spec).__name__)
def test_every_field_is_agreed_on_or_refused_by_name(spec: KVCacheSpec) -> None:
    for f in fields(spec):
        changes = {f.name: OTHER[f.name]}
        other = replace(spec, **changes)  # type: ignore[arg-type]  # the field's name is known at run time only
        if f.name == "head_size" and isinstance(spec, AttentionSpec):
            assert isinstance(other, AttentionSpec)
            other = replace(other, head_size_v=spec.head_size_v)
        for specs in ([spec, other], [other, spec], [spec, spec, other]):
            error = refusal(specs)
            assert error.field_names == (f.name,)
            assert f"{f.name} is {' or '.join(sorted([repr(getattr(spec, f.name)), repr(OTHER[f.name])]))}" in (
                str(error)
            )


def test_all_disagreements_are_told_at_once() -> None:
    assert refusal([SINK, replace(SINK, sink_len=8, num_kv_heads=4)]).field_names == ("num_kv_heads", "sink_len")


def test_no_spec_and_a_foreign_type_are_refused() -> None:
    with pytest.raises(SpecMergeError, match="given no spec"):
        FullAttentionSpec.merge([])
    foreign: list[KVCacheSpec] = [STATE]
    with pytest.raises(SpecMergeError, match=r"a SinkFullAttentionSpec; got MambaSpec"):
        SinkFullAttentionSpec.merge(foreign)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - checked at run time, too


def test_a_subclass_keeps_its_own_fields() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mine(FullAttentionSpec):
        extra: int

    mine = Mine(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, extra=1)
    assert FullAttentionSpec.merge([mine, mine]) == mine
    assert refusal([mine, replace(mine, extra=2)]).field_names == ("extra",)
    assert type(mine.copy_with_new_block_size(8)) is Mine


class TestCases:
    def test_25_full_and_reference_window_never_share_a_table(self) -> None:
        for specs in ({"a": FULL, "b": RSWA}, {"a": RSWA, "b": FULL}):
            refusal(list(specs.values()))
            assert UniformTypeKVCacheSpecs.from_specs(specs) is None
        assert FULL.allocation_key != RSWA.allocation_key

    def test_26_sinks_are_kept_or_refused(self) -> None:
        assert "FullAttentionSpec, SinkFullAttentionSpec" in str(refusal([FULL, SINK]))
        longer = replace(SINK, sink_len=8)
        assert refusal([SINK, longer]).field_names == ("sink_len",)
        assert SinkFullAttentionSpec.merge([SINK, SINK]).sink_len == 4
        assert UniformTypeKVCacheSpecs.from_specs({"a": SINK, "b": longer}) is None
        assert UniformTypeKVCacheSpecs.from_specs({"a": FULL, "b": SINK}) is None

    def test_27_window_mla_keeps_mode_and_alignment(self) -> None:
        merged = SlidingWindowMLASpec.merge([WINDOW_MLA, replace(WINDOW_MLA)])
        assert merged.kv_quant_mode is KVQuantMode.FP8_PER_TENSOR
        assert merged.alignment == 512
        assert merged.page_size_bytes == WINDOW_MLA.page_size_bytes
        assert MLAAttentionSpec.merge([MLA, MLA]) == MLA

    def test_28_promoted_layers_keep_their_own_windows(self) -> None:
        eight, sixteen = promote_to_full(WINDOW), promote_to_full(replace(WINDOW, sliding_window=16))
        assert refusal([eight, sixteen]).field_names == ("sliding_window",)
        for layers in ({"a": eight, "b": sixteen, "c": FULL}, {"c": FULL, "b": sixteen, "a": eight}):
            wrapped = UniformTypeKVCacheSpecs.from_specs(layers)
            assert wrapped is not None
            assert wrapped.kv_cache_specs == {"a": eight, "b": sixteen, "c": FULL}
        assert (eight.sliding_window, sixteen.sliding_window) == (8, 16)

    def test_full_and_promoted_window_are_never_one(self) -> None:
        assert refusal([FULL, promote_to_full(WINDOW)]).field_names == ("sliding_window",)
        assert refusal([promote_to_full(WINDOW), FULL]).field_names == ("sliding_window",)


@st.composite
def attention_specs(draw: st.DrawFn) -> AttentionSpec:
    block_size = draw(st.integers(1, 64))
    num_kv_heads = draw(st.integers(1, 8))
    head_size = draw(st.integers(1, 256))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.uint8]))
    size = draw(st.integers(1, 64))
    base = FullAttentionSpec(block_size=block_size, num_kv_heads=num_kv_heads, head_size=head_size, dtype=dtype)
    window = SlidingWindowSpec(
        block_size=block_size,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        dtype=dtype,
        sliding_window=size,
    )
    chunk = ChunkedLocalAttentionSpec(
        block_size=block_size,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        dtype=dtype,
        attention_chunk_size=size,
    )
    return draw(st.sampled_from([base, window, chunk, promote_to_full(window), promote_to_full(chunk)]))


@st.composite
def state_specs(draw: st.DrawFn) -> MambaSpec:
    shapes = draw(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3))
    modes: list[MambaCacheMode] = ["none", "align", "all"]
    return MambaSpec(
        draw(st.integers(1, 64)),
        tuple(shapes),
        (torch.float32,) * len(shapes),
        mamba_cache_mode=draw(st.sampled_from(modes)),
        num_speculative_blocks=draw(st.integers(0, 4)),
    )


SPECS = st.one_of(attention_specs(), state_specs())


def outcome(specs: Sequence[KVCacheSpec]) -> KVCacheSpec | str:
    try:
        return KVCacheSpec.merge(specs)
    except SpecMergeError as error:
        return str(error)


@given(st.lists(SPECS, min_size=1, max_size=4))
def test_merging_does_not_depend_on_order(specs: list[KVCacheSpec]) -> None:
    expected = outcome(specs)
    for order in permutations(specs):
        assert outcome(order) == expected
    if isinstance(expected, KVCacheSpec):
        assert outcome([expected, *specs]) == expected
        assert all(spec == expected for spec in specs)


@given(SPECS)
def test_merging_is_idempotent(spec: KVCacheSpec) -> None:
    assert KVCacheSpec.merge([spec, KVCacheSpec.merge([spec, spec])]) == spec


@given(attention_specs(), st.integers(1, 8))
def test_attention_pages_scale_with_the_block(spec: AttentionSpec, factor: int) -> None:
    larger = spec.copy_with_new_block_size(spec.block_size * factor)
    assert type(larger) is type(spec)
    assert larger.page_size_bytes == spec.page_size_bytes * factor
    assert larger.copy_with_new_block_size(spec.block_size) == spec


@given(attention_specs(), st.integers(1, 8), st.integers(0, 10_000))
def test_padded_attention_pages_scale_too(spec: AttentionSpec, factor: int, padding: int) -> None:
    padded = replace(spec, page_size_padded=spec.page_size_bytes + padding)
    larger = padded.copy_with_new_block_size(spec.block_size * factor)
    assert larger.page_size_bytes == padded.page_size_bytes * factor
    assert larger.copy_with_new_block_size(spec.block_size) == padded


@given(state_specs(), st.integers(1, 4096))
def test_state_pages_do_not_depend_on_the_block(spec: MambaSpec, block_size: int) -> None:
    assert spec.copy_with_new_block_size(block_size).page_size_bytes == spec.page_size_bytes


@given(SPECS, st.integers(1, 500), st.integers(1, 300))
def test_a_request_needs_at_least_a_page(spec: KVCacheSpec, max_model_len: int, budget: int) -> None:
    config = EngineConfig(max_model_len=max_model_len, max_num_batched_tokens=budget)
    assert spec.max_memory_usage_bytes(config) >= spec.page_size_bytes
    assert spec.max_memory_usage_bytes(config) % spec.page_size_bytes == 0
    if isinstance(spec, AttentionSpec):
        # No attention cache needs more than one that keeps everything.
        assert spec.max_resident_blocks(config) <= spec.max_num_blocks_per_req(config, max_model_len)


@given(st.lists(SPECS, min_size=1, max_size=3))
def test_wrapping_does_not_depend_on_order(specs: list[KVCacheSpec]) -> None:
    layers = {f"layer.{index}": spec for index, spec in enumerate(specs)}
    expected = UniformTypeKVCacheSpecs.from_specs(layers)
    for order in permutations(layers.items()):
        wrapped = UniformTypeKVCacheSpecs.from_specs(dict(order))
        assert wrapped == expected
        assert hash(wrapped) == hash(expected)
