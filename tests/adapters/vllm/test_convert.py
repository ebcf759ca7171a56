"""Specs, batches and settings in vLLM's terms and back."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest
import torch
from state_batches import state_batch
from toy_backends import CONFIG, FULL_SPEC, HEADS, STATE_SPEC, one_request

from genericbuilders.config import EngineConfig, StateLayerConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    KVQuantMode,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)
from genericbuilders_vllm import (
    IS_PREFILLING,
    SpecConversionError,
    from_vllm_batch,
    from_vllm_spec,
    make_vllm_config,
    to_vllm_batch,
    to_vllm_spec,
)

F32 = torch.float32
KV: Any = {"block_size": 16, "num_kv_heads": 2, "head_size": 8, "dtype": F32}
SPECS = (
    FullAttentionSpec(**KV),
    FullAttentionSpec(**KV, sliding_window=32, head_size_v=4, page_size_padded=4096),
    FullAttentionSpec(**KV, kv_quant_mode=KVQuantMode.FP8_PER_TENSOR, tokens_per_state=Fraction(1, 2)),
    RSWASpec(**KV, rswa_window=64),
    SinkFullAttentionSpec(**KV, sink_len=4),
    MLAAttentionSpec(**KV),
    MLAAttentionSpec(**KV, alignment=4096),
    MLAAttentionSpec(**KV, cache_dtype_str="fp8_ds_mla", state_content_bytes=100, alignment=64),
    SlidingWindowSpec(**KV, sliding_window=128, extra_retained_tokens=3),
    SlidingWindowMLASpec(**KV, sliding_window=128, bounded_replay=True, alignment=1000),
    ChunkedLocalAttentionSpec(**KV, attention_chunk_size=64),
    CrossAttentionSpec(**KV),
    EncoderOnlyAttentionSpec(**KV, num_head_slots=1, state_content_bytes=9),
    STATE_SPEC,
    MambaSpec(8, ((2, 3), (4,)), (F32, torch.float16), mamba_type="gdn", mamba_cache_mode="align", page_size_padded=64),
    MambaSpec(8, ((2, 3),), (F32,), mamba_type="linear", num_speculative_blocks=2),
    UniformTypeKVCacheSpecs(16, {"a": FullAttentionSpec(**KV), "b": replace(FullAttentionSpec(**KV), num_kv_heads=4)}),
)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_there_and_back(spec: KVCacheSpec) -> None:
    theirs = to_vllm_spec(spec)
    assert type(theirs).__name__ == type(spec).__name__
    assert theirs.page_size_bytes == spec.page_size_bytes
    back = from_vllm_spec(theirs)
    assert type(back) is type(spec)
    assert back == spec
    kept = {field.name for field in fields(theirs)} & {field.name for field in fields(spec)}
    assert kept >= {field.name for field in fields(spec)} - {"max_encoder_len"}


def test_a_field_that_one_side_lacks_is_named() -> None:
    with pytest.raises(SpecConversionError, match="max_encoder_len is 99, which vLLM's CrossAttentionSpec cannot say"):
        to_vllm_spec(CrossAttentionSpec(**KV, max_encoder_len=99))
    theirs = replace(to_vllm_spec(FULL_SPEC), dcp_sharded=False, block_stride_alignment=64)
    with pytest.raises(SpecConversionError, match=r"dcp_sharded is False; block_stride_alignment is 64.*ignore="):
        from_vllm_spec(theirs)
    assert from_vllm_spec(theirs, ignore=("dcp_sharded", "block_stride_alignment")) == FULL_SPEC


def test_a_value_without_counterpart_is_named() -> None:
    with pytest.raises(SpecConversionError, match="kv_quant_mode is NVFP4; the other side knows NONE, FP8_PER_TENSOR"):
        to_vllm_spec(FullAttentionSpec(**KV, kv_quant_mode=KVQuantMode.NVFP4))
    with pytest.raises(SpecConversionError, match=r"mamba_type is OTHER.*GDN_ATTN"):
        to_vllm_spec(replace(STATE_SPEC, mamba_type="other"))
    with pytest.raises(SpecConversionError, match="a page has 8192 bytes, in vLLM 4096"):
        to_vllm_spec(MLAAttentionSpec(**KV, alignment=4096, page_size_padded=4097))


def test_a_mode_of_this_librarys_own_is_refused_by_name_even_if_vllm_gets_one_of_that_name() -> None:
    own = [mode for mode in KVQuantMode if mode.is_own]
    assert own == [KVQuantMode.TURBOQUANT_2BIT_NC]
    spec = FullAttentionSpec(**KV, kv_quant_mode=KVQuantMode.TURBOQUANT_2BIT_NC, state_content_bytes=14)
    with pytest.raises(SpecConversionError, match="kv_quant_mode is TURBOQUANT_2BIT_NC, a mode of this library's own"):
        to_vllm_spec(spec)
    interface: Any = sys.modules["vllm.v1.kv_cache_interface"]
    later = IntEnum("later", {"NONE": 0, "FP8_PER_TENSOR": 1, "TURBOQUANT_2BIT_NC": 12})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interface, "KVQuantMode", later)
        with pytest.raises(SpecConversionError, match="a mode of this library's own"):
            to_vllm_spec(spec)
        foreign: Any = to_vllm_spec(FullAttentionSpec(**KV))
        foreign = replace(foreign, kv_quant_mode=later["TURBOQUANT_2BIT_NC"])
        with pytest.raises(SpecConversionError, match=r"TURBOQUANT_2BIT_NC; the other side knows NONE, FP8_PER_TENSOR"):
            from_vllm_spec(foreign)


def test_a_class_without_counterpart_is_named() -> None:
    class Own(FullAttentionSpec):
        pass

    with pytest.raises(SpecConversionError, match=r"Own has no counterpart in vLLM"):
        to_vllm_spec(Own(**KV))
    theirs = to_vllm_spec(FULL_SPEC)
    derived: Any = type("Derived", (type(theirs),), {})
    values = {field.name: getattr(theirs, field.name) for field in fields(theirs)}
    with pytest.raises(SpecConversionError, match="Derived has no counterpart here"):
        from_vllm_spec(derived(**values))


def test_a_batch_goes_there_and_back_without_a_copy() -> None:
    common = state_batch([(1, 9), (4, 0), (5, 8)])
    flags = torch.tensor([False, True, True])
    common.inputs.put(IS_PREFILLING, flags)
    theirs = to_vllm_batch(common)
    back = from_vllm_batch(theirs)
    for name in (each.name for each in fields(CommonAttentionMetadata)):
        before, after = getattr(common, name), getattr(back, name)
        if name == "num_computed_tokens_cpu":  # vLLM's has none
            assert torch.equal(before, after)
        elif isinstance(before, torch.Tensor):
            assert before.data_ptr() == getattr(theirs, name, before).data_ptr() == after.data_ptr(), name
        elif name != "inputs":
            assert before == getattr(theirs, name) == after, name
    assert theirs.seq_lens_cpu_upper_bound is common.seq_lens_cpu
    assert theirs.is_prefilling is back.inputs[IS_PREFILLING] is flags
    assert len(back.inputs) == 1


def test_prefilling_is_not_made_up_unless_a_builder_asks() -> None:
    assert to_vllm_batch(one_request()).is_prefilling is None


def test_a_batch_that_this_library_cannot_describe_is_refused() -> None:
    theirs = to_vllm_batch(one_request())
    with pytest.raises(ValueError, match="causal differs by row"):
        from_vllm_batch(replace(theirs, causal=torch.ones(1)))
    meta = torch.zeros(1, device="meta")
    with pytest.raises(ValueError, match="seq_lens is on meta and its seq_lens_cpu_upper_bound is None"):
        from_vllm_batch(replace(theirs, seq_lens=meta, seq_lens_cpu_upper_bound=None))
    assert from_vllm_batch(replace(theirs, seq_lens_cpu_upper_bound=None)).seq_lens_cpu is theirs.seq_lens


def test_an_input_that_this_vllm_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.attention import backend

    class Older(backend.CommonAttentionMetadata):
        pass

    kept = {name: each for name, each in fields_of(Older).items() if name not in ("is_prefilling", "positions")}
    monkeypatch.setattr(Older, "__dataclass_fields__", kept)
    monkeypatch.setattr(backend, "CommonAttentionMetadata", Older)
    common = one_request()
    common.inputs.put(IS_PREFILLING, torch.ones(1))
    with pytest.raises(ValueError, match="holds is_prefilling, which this vLLM's description lacks"):
        to_vllm_batch(common)


def test_a_description_that_does_more_when_it_is_made_is_made_by_its_constructor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.v1.attention import backend

    made: list[int] = []

    @dataclass
    class Later(backend.CommonAttentionMetadata):
        def __post_init__(self) -> None:
            made.append(self.num_reqs)

    common = one_request()
    as_it_is = to_vllm_batch(common)
    monkeypatch.setattr(backend, "CommonAttentionMetadata", Later)
    later = to_vllm_batch(common)
    assert isinstance(later, Later)
    assert made == [1]
    assert vars(later) == vars(as_it_is)


def test_a_description_without_a_field_that_is_always_told_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.attention import backend

    class Older(backend.CommonAttentionMetadata):
        pass

    kept = {name: each for name, each in fields_of(Older).items() if name not in ("causal", "slot_mapping")}
    monkeypatch.setattr(Older, "__dataclass_fields__", kept)
    monkeypatch.setattr(backend, "CommonAttentionMetadata", Older)
    with pytest.raises(TypeError, match="CommonAttentionMetadata lacks slot_mapping, causal"):
        to_vllm_batch(one_request())


def fields_of(cls: type) -> dict[str, object]:
    found: dict[str, object] = getattr(cls, "__dataclass_fields__")  # noqa: B009 - no attribute to the checker
    return found


def test_settings_say_what_ours_say() -> None:
    config = replace(CONFIG, num_speculative_tokens=3, num_blocks=77, max_num_seqs=5, max_num_batched_tokens=64)
    made: Any = make_vllm_config(config, FULL_SPEC, ["l0"])
    assert made.given["max_model_len"] == config.max_model_len
    assert (made.given["max_num_seqs"], made.given["max_num_batched_tokens"]) == (5, 64)
    assert made.given["speculative_config"]["num_speculative_tokens"] == 3
    assert (made.cache_config.block_size, made.cache_config.num_gpu_blocks) == (config.block_size, 77)
    heads = (HEADS.num_heads, HEADS.num_kv_heads, HEADS.head_size)
    assert tuple(made.model[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")) == heads


def test_settings_of_states() -> None:
    layer = StateLayerConfig(STATE_SPEC.shapes, STATE_SPEC.dtypes, 32)
    config = EngineConfig(max_model_len=64, layers={"l0": layer})
    made: Any = make_vllm_config(config, replace(STATE_SPEC, mamba_cache_mode="align"), ["l0"])
    assert made.model["mamba_chunk_size"] == 32
    assert (made.cache_config.mamba_cache_mode, made.cache_config.mamba_block_size) == ("align", 4)
    other = replace(config, layers={"l0": layer, "l1": replace(layer, chunk_size=8)})
    with pytest.raises(ValueError, match=r"\['l0', 'l1'\] have chunks of \[8, 32\]"):
        make_vllm_config(other, STATE_SPEC, ["l0", "l1"])


def test_settings_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(ValueError, match=r"MLAAttentionSpec needs the settings of a model.*vllm_config="):
        make_vllm_config(CONFIG, MLAAttentionSpec(**KV))
    with pytest.raises(ValueError, match=r"dtype is torch.float64; vLLM runs models in float32"):
        make_vllm_config(replace(CONFIG, dtype=torch.float64), FULL_SPEC)
    with pytest.raises(ValueError, match=r"layer 'l9' is not in EngineConfig.layers"):
        make_vllm_config(CONFIG, FULL_SPEC, ["l9"])
