"""What the runner asks of its groups, whatever their back ends."""

from __future__ import annotations

import pytest
from tiny_models import tiny_engine, tiny_model
from torch import Tensor

from genericbuilders.adapter import Step
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.engine.cudagraph import CUDAGraphMode
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions
from genericbuilders.metadata import IS_PREFILLING, CommonAttentionMetadata


def test_the_weakest_group_decides_the_graph_mode_and_is_named() -> None:
    runner = tiny_engine(tiny_model(), EngineOptions()).runner
    assert runner.resolve_cudagraph_mode(CUDAGraphMode.FULL_DECODE_ONLY).mode is CUDAGraphMode.FULL_DECODE_ONLY
    lowered = runner.resolve_cudagraph_mode(CUDAGraphMode.FULL)
    assert lowered.mode is not CUDAGraphMode.FULL
    assert lowered.limiting_backend == "flash_attn"


def test_layers_of_one_adapter_and_spec_are_one_group() -> None:
    runner = tiny_engine(tiny_model(), EngineOptions()).runner
    (group,) = runner.groups
    assert FLASH_ATTN.owns(group)
    assert group.layer_names == ("model.layers.0.self_attn", "model.layers.1.self_attn")


def test_what_attention_reads_is_counted() -> None:
    engine = tiny_engine(tiny_model(), EngineOptions(enable_prefix_caching=False))
    engine.generate([[1, 2, 3]], SamplingParams(max_tokens=3))
    # Sequences of 3, 4 and 5 tokens; 2 layers, 2 key-value heads, 8 elements of key and of value, 4 bytes each.
    assert engine.stats.kv_bytes_read == (3 + 4 + 5) * 2 * 2 * (8 + 8) * 4


def test_a_released_slot_is_clean_for_the_next_request() -> None:
    engine = tiny_engine(tiny_model(), EngineOptions(block_size=4, max_num_seqs=1))
    first = engine.generate([[7] * 30], SamplingParams(max_tokens=2))
    engine.generate([[1]], SamplingParams(max_tokens=2))
    assert engine.generate([[7] * 30], SamplingParams(max_tokens=2))[0].token_ids == first[0].token_ids


def test_a_batch_says_which_rows_are_prefilling(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine(tiny_model(), EngineOptions(max_num_batched_tokens=4, block_size=4))
    told: list[list[bool]] = []
    (group,) = engine.runner.groups
    build = group.build

    def recording(common: CommonAttentionMetadata, step: Step, common_prefix_len: int = 0) -> None:
        rows: Tensor = common.inputs[IS_PREFILLING]
        told.append([bool(row) for row in rows])
        build(common, step, common_prefix_len)

    monkeypatch.setattr(group, "build", recording)
    engine.generate([[1], [2, 3, 4, 5, 6]], SamplingParams(max_tokens=3))
    assert told == [[True, True], [False, True], [False, False], [False]]
    told.clear()
    # A prompt's last piece of one token is a decode to every builder.
    engine.generate([[1], [7, 8, 9, 10]], SamplingParams(max_tokens=2))
    assert told == [[True, True], [False, False], [False]]
