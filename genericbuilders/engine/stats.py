"""What the engine has done, and what attention has read for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genericbuilders.adapter import Group, Step
from genericbuilders.backends.fast_prefill import FAST_PREFILL, LOGITS_TOKENS, skips_tokens
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.quantised import QUANTISED
from genericbuilders.backends.sink import SINK
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec

__all__ = ["EngineStats", "kv_bytes_read"]


@dataclass
class EngineStats:
    """Counts since the engine was made.

    Attributes:
        num_steps: batches run.
        num_prompt_tokens: prompt tokens of admitted requests, those found in the cache included.
        num_cached_tokens: prompt tokens found in the cache.
        num_output_tokens: tokens generated.
        num_encoder_tokens: tokens that encoders gave; those of a request that was computed anew count each time.
        num_preemptions: times that a request's blocks were taken away.
        kv_bytes_read: bytes of keys and values that full attention has read.
    """

    num_steps: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_encoder_tokens: int = 0
    num_preemptions: int = 0
    kv_bytes_read: int = 0


def kv_bytes_read(group: Group, common: CommonAttentionMetadata, step: Step) -> int:
    """The bytes of keys and values that a group's layers read for a batch; 0 for a back end that is not counted.

    A prefix that is attended over once for all rows counts once; sinks count for each row that has a sequence, or once
    where they are attended over by themselves.

    A runner's way to one back end's own: `owns` gives the group its types back, and with them its spec's fields.
    """
    if FLASH_ATTN.owns(group):
        repeated = group.metadata(step).common_prefix_len * (common.num_reqs - 1)
        return _whole_sequences(group.spec, common, repeated) * len(group.layers)
    for adapter in QUANTISED:
        if adapter.owns(group):
            return _whole_sequences(group.spec, common) * len(group.layers)
    if SINK.owns(group):
        metadata = group.metadata(step)
        reads = np.count_nonzero(common.seq_lens_cpu.numpy()) if metadata.apart is None else 1
        return _whole_sequences(group.spec, common, -metadata.sink_len * int(reads)) * len(group.layers)
    if FAST_PREFILL.owns(group):
        return _wanted_sequences(group.spec, common) * len(group.layers)
    return 0


def _whole_sequences(spec: AttentionSpec, common: CommonAttentionMetadata, repeated: int = 0) -> int:
    """The bytes of all sequences, less ``repeated`` tokens, in one layer's cache, as the spec states them for one."""
    return (int(common.seq_lens_cpu.numpy().sum()) - repeated) * spec.num_kv_heads * spec.state_content_size_bytes


def _wanted_sequences(spec: AttentionSpec, common: CommonAttentionMetadata) -> int:
    """The same of the sequences that a token runs for, where layers skip tokens."""
    if not skips_tokens(common):
        return _whole_sequences(spec, common)
    before = np.searchsorted(common.inputs[LOGITS_TOKENS].numpy(), common.query_start_loc_cpu.numpy())
    lens = common.seq_lens_cpu.numpy()[np.diff(before) > 0]
    return int(lens.sum()) * spec.num_kv_heads * spec.state_content_size_bytes
