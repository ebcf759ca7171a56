"""A batch that stands for no request: what a CUDA graph is captured with, and what warms kernels up."""

from __future__ import annotations

import torch

from genericbuilders.cache import NULL_BLOCK
from genericbuilders.cache.block_table import PADDING_SLOT
from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec

__all__ = ["dummy_batch"]


def dummy_batch(
    config: EngineConfig, spec: KVCacheSpec, num_reqs: int, query_len: int, device: torch.device
) -> CommonAttentionMetadata:
    """``num_reqs`` rows of ``query_len`` tokens at the end of sequences as long as the model allows.

    Every block is the null block and every slot -1, so that running it writes nothing that a request could read. No
    sequence is longer than ``config.max_model_len``, and the block table has as many columns as that needs.

    Raises:
        ValueError: the rows are longer than a sequence, or more or longer than the run's limits.
    """
    if not 1 <= query_len <= config.max_model_len:
        raise ValueError(f"query_len is {query_len}; it must be 1 to max_model_len {config.max_model_len}")
    if not 1 <= num_reqs <= config.max_num_seqs:
        raise ValueError(f"num_reqs is {num_reqs}; it must be 1 to max_num_seqs {config.max_num_seqs}")
    seq_len = config.max_model_len
    query_start_loc = torch.arange(num_reqs + 1, dtype=torch.int32) * query_len
    seq_lens = torch.full((num_reqs,), seq_len, dtype=torch.int32)
    columns = spec.num_shared_blocks + spec.max_num_blocks_per_req(config, seq_len)
    return CommonAttentionMetadata(
        query_start_loc=query_start_loc.to(device),
        query_start_loc_cpu=query_start_loc,
        seq_lens=seq_lens.to(device),
        seq_lens_cpu=seq_lens,
        num_computed_tokens_cpu=seq_lens - query_len,
        num_reqs=num_reqs,
        num_actual_tokens=num_reqs * query_len,
        max_query_len=query_len,
        max_seq_len=seq_len,
        block_table_tensor=torch.full((num_reqs, columns), NULL_BLOCK, dtype=torch.int32, device=device),
        slot_mapping=torch.full((num_reqs * query_len,), PADDING_SLOT, dtype=torch.int64, device=device),
    )
