"""Attention by Tencent's hpc-ops, where it is installed: found without importing it, imported when a group is bound.

It was written for one kind of device (compute capability 9.0) and one kind of layer, which `why_not_hpc` states. Its
kernels scale scores by the root of the head size, and are always causal.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

import torch
from torch import Tensor

from genericbuilders.config import AttentionLayerConfig
from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.packages import find_package

__all__ = ["CAPABILITY", "MAX_DRAFTS", "HpcFunctions", "find_hpc", "load_hpc", "why_not_hpc"]

CAPABILITY = (9, 0)
HEAD_SIZE, BLOCK_SIZE = 128, 64
GROUPS = (4, 8)
# A decode has its own token and these at most.
MAX_DRAFTS = 3


class MakesTaskMap(Protocol):
    """``get_attention_decode_task_workspace``."""

    def __call__(self, max_num_batch: int, max_seqlen: int, num_head_kv: int, *, min_process_len: int) -> Tensor:
        """Memory for the plan of as many decodes; a multiprocessor takes ``min_process_len`` tokens at least."""
        ...


class AssignsTasks(Protocol):
    """``assign_attention_decode_task``."""

    def __call__(
        self,
        num_seq_kvcache: Tensor,
        task_map: Tensor,
        num_head_kv: int,
        num_seq_q: int,
        *,
        new_kv_included: bool,
        min_process_len: int,
    ) -> object:
        """Divide decodes of ``num_seq_q`` tokens each among multiprocessors, and write that to ``task_map``."""
        ...


class Decodes(Protocol):
    """``attention_decode_bf16``."""

    def __call__(
        self,
        q: Tensor,
        kcache: Tensor,
        vcache: Tensor,
        block_ids: Tensor,
        num_seq_kvcache: Tensor,
        *,
        mtp: int,
        new_kv_included: bool,
        splitk: bool,
        task_map: Tensor,
        output: Tensor,
    ) -> Tensor:
        """Attend: each request has ``1 + mtp`` tokens. Caches are ``[blocks, block_size, kv_heads, head_size]``."""
        ...


class Prefills(Protocol):
    """``attention_with_kvcache_prefill_bf16``."""

    def __call__(
        self,
        q: Tensor,
        kcache: Tensor,
        vcache: Tensor,
        cu_seqlens_q: Tensor,
        block_ids: Tensor,
        seqlens_kvcache: Tensor,
        max_seqlens_q: int,
        *,
        output: Tensor,
    ) -> Tensor:
        """Attend: request ``i`` has the tokens from ``cu_seqlens_q[i]`` to the next entry."""
        ...


@dataclass(frozen=True)
class HpcFunctions:
    """What is used of hpc-ops.

    Attributes:
        task_map: memory for the plan of decodes.
        assign: plans them.
        decode: attends for them.
        prefill: attends for all other rows.
    """

    task_map: MakesTaskMap
    assign: AssignsTasks
    decode: Decodes
    prefill: Prefills


def find_hpc() -> str | Unavailable:
    """The version of hpc-ops, or why it cannot be used; it is not imported."""
    return find_package("hpc", "hpc-ops", (0, 0))


def load_hpc() -> HpcFunctions:
    """Import hpc-ops.

    Raises:
        ImportError: that fails, or its decodes take no plan of their tasks, as in old versions.
        AttributeError: it lacks something.
    """
    module = import_module("hpc")
    found = HpcFunctions(
        task_map=module.get_attention_decode_task_workspace,
        assign=module.assign_attention_decode_task,
        decode=module.attention_decode_bf16,
        prefill=module.attention_with_kvcache_prefill_bf16,
    )
    if "task_map" not in inspect.signature(found.decode).parameters:
        raise ImportError("attention_decode_bf16 takes no task_map; install a newer hpc-ops")
    return found


def why_not_hpc(layer: AttentionLayerConfig, dtype: torch.dtype, block_size: int, num_drafts: int) -> str | None:
    """Why the kernels do not take a layer, or ``None`` where they do.

    Args:
        layer: the layer.
        dtype: of queries and cache.
        block_size: tokens in a block.
        num_drafts: draft tokens that a decode may have beside its own.
    """
    group = layer.num_heads // layer.num_kv_heads
    for wrong, told in (
        (dtype != torch.bfloat16, f"it computes in torch.bfloat16, not in {dtype}"),
        (layer.head_size != HEAD_SIZE, f"it takes heads of {HEAD_SIZE} elements, not of {layer.head_size}"),
        (block_size != BLOCK_SIZE, f"it takes blocks of {BLOCK_SIZE} tokens, not of {block_size}"),
        (group not in GROUPS, f"it takes 4 or 8 query heads for each key-value head, not {group}"),
        (num_drafts > MAX_DRAFTS, f"it takes {MAX_DRAFTS} draft tokens at most, not {num_drafts}"),
        (not layer.causal, "it is causal, and the layer is not"),
        (layer.sliding_window is not None, "it has no windows"),
        (layer.logits_soft_cap is not None, "it has no soft cap"),
        (layer.alibi_slopes is not None, "it has no slopes"),
        (layer.sinks is not None, "it has no sinks"),
        (
            not math.isclose(layer.scale, layer.head_size**-0.5, rel_tol=1e-6),
            f"it scales scores by {layer.head_size**-0.5:.6g}, not by {layer.scale:.6g}",
        ),
    ):
        if wrong:
            return told
    return None
