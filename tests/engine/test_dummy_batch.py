"""The batch that graphs are captured with stays within the model's limits and touches no request."""

from __future__ import annotations

import pytest
import torch

from genericbuilders.adapter import Step
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.engine.dummy_batch import dummy_batch
from genericbuilders.specs import FullAttentionSpec

HEADS = AttentionLayerConfig(num_heads=2, num_kv_heads=1, head_size=8, scale=0.3)
CONFIG = EngineConfig(max_model_len=100, max_num_seqs=8, layers={"l0": HEADS})
SPEC = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8, dtype=torch.float32)
CPU = torch.device("cpu")


def test_case_05_lengths_and_columns_stay_within_the_model() -> None:
    common = dummy_batch(CONFIG, SPEC, num_reqs=8, query_len=3, device=CPU)
    assert int(common.seq_lens.max()) <= 100
    assert common.max_seq_len <= 100
    assert common.block_table_tensor.shape == (8, 7)
    assert int(common.num_computed_tokens_cpu.min()) == 97


def test_running_it_writes_nothing() -> None:
    layer = FLASH_ATTN.layer("l0", HEADS)
    group = FLASH_ATTN.bind(SPEC, [layer], CONFIG, CPU)
    cache = torch.randn(group.kv_cache_shape(4))
    before = cache.clone()
    common = dummy_batch(CONFIG, SPEC, num_reqs=2, query_len=3, device=CPU)
    step = Step()
    group.build_for_cudagraph_capture(common, step)
    query, key = torch.randn(6, 2, 8), torch.randn(6, 1, 8)
    out = layer.impl.forward(query, key, key, kv_cache=cache, attn_metadata=step[layer])
    assert bool(torch.isfinite(out).all())
    assert torch.equal(cache, before)


@pytest.mark.parametrize(("num_reqs", "query_len"), [(0, 1), (9, 1), (1, 0), (1, 101)])
def test_batches_beyond_the_limits_are_refused(num_reqs: int, query_len: int) -> None:
    with pytest.raises(ValueError, match="it must be 1 to"):
        dummy_batch(CONFIG, SPEC, num_reqs, query_len, CPU)
