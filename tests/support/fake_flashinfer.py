"""FlashInfer's wrappers in plain torch: they attend by what they were planned with, and by nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from attention_batches import ints
from torch import Tensor

from genericbuilders.kernels import reference
from genericbuilders.kernels.flashinfer import FlashInferPlanner
from genericbuilders.kernels.flashinfer_library import FlashInferFunctions
from genericbuilders.kernels.scoring import Scoring

__all__ = ["FakeDecode", "FakePrefill", "Made", "attend_by_pages"]


def attend_by_pages(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    qo_indptr: Tensor,
    paged_kv_indptr: Tensor,
    paged_kv_indices: Tensor,
    paged_kv_last_page_len: Tensor,
    *,
    scale: float,
    causal: bool = True,
    scoring: Scoring | None = None,
) -> Tensor:
    """The reference's attention, over a block table and lengths made of FlashInfer's plan inputs."""
    size = key_cache.shape[1]
    starts, pages, last = ints(paged_kv_indptr), ints(paged_kv_indices), ints(paged_kv_last_page_len)
    counts = [end - start for start, end in pairwise(starts)]
    # Nothing but the pages of a row may be read: all other columns are far outside of any cache.
    table = torch.full((len(counts), max([*counts, 1])), 2**30, dtype=torch.int32)
    for row, count in enumerate(counts):
        table[row, :count] = torch.tensor(pages[starts[row] : starts[row + 1]], dtype=torch.int32)
    lengths = [(count - 1) * size + used if count else 0 for count, used in zip(counts, last, strict=True)]
    return reference.paged_attention(
        query,
        key_cache,
        value_cache,
        query_start_loc=qo_indptr,
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
        block_table=table,
        scale=scale,
        causal=causal,
        scoring=scoring or Scoring(),
    )


@dataclass
class FakeWrapper:
    """What both wrappers keep of a plan."""

    workspace: Tensor
    layout: str
    heads: tuple[int, int, int] = (0, 0, 0)
    plans: int = 0
    qo_indptr: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int32))
    indptr: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int32))
    indices: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    last: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    scale: float = math.nan
    causal: bool = True
    scoring: Scoring = field(default_factory=Scoring)

    def keep(
        self, heads: tuple[int, int, int], window_left: int, soft_cap: float | None, scale: float, causal: bool
    ) -> None:
        """Remember what the layers are."""
        self.heads, self.scale, self.causal, self.plans = heads, scale, causal, self.plans + 1
        self.scoring = Scoring(soft_cap, sliding_window=None if window_left < 0 else window_left + 1)

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor], *, out: Tensor) -> Tensor:
        """Attend by the plan."""
        assert self.layout == "HND"
        assert q.is_contiguous()
        assert len(q) == int(self.qo_indptr[-1])
        keys, values = (part.transpose(1, 2) for part in paged_kv_cache)
        assert (q.shape[1], keys.shape[2], q.shape[2]) == self.heads
        out.copy_(
            attend_by_pages(
                q,
                keys,
                values,
                self.qo_indptr,
                self.indptr,
                self.indices,
                self.last,
                scale=self.scale,
                causal=self.causal,
                scoring=self.scoring,
            )
        )
        return out


@dataclass
class FakeDecode(FakeWrapper):
    """``BatchDecodeWithPagedKVCacheWrapper``: one token a row; for a graph it keeps its plan in the buffers it got."""

    use_cuda_graph: bool = False
    buffers: tuple[Tensor, Tensor, Tensor] | None = None

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        window_left: int,
        logits_soft_cap: float | None,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        sm_scale: float,
    ) -> None:
        """Keep all."""
        self.keep((num_qo_heads, num_kv_heads, head_dim), window_left, logits_soft_cap, sm_scale, True)
        rows = len(last_page_len)
        self.qo_indptr = torch.arange(rows + 1, dtype=torch.int32)
        self.indptr, self.indices, self.last = indptr, indices, last_page_len
        if self.buffers is not None:
            assert rows == len(self.buffers[2])
            for buffer, given in zip(self.buffers, (indptr, indices, last_page_len), strict=True):
                buffer[: len(given)] = given
            self.indptr, self.indices, self.last = self.buffers


@dataclass
class FakePrefill(FakeWrapper):
    """``BatchPrefillWithPagedKVCacheWrapper``."""

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool,
        sm_scale: float,
        window_left: int,
        logits_soft_cap: float | None,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        """Keep all."""
        self.keep((num_qo_heads, num_kv_heads, head_dim_qk), window_left, logits_soft_cap, sm_scale, causal)
        self.qo_indptr, self.indptr = qo_indptr, paged_kv_indptr
        self.indices, self.last = paged_kv_indices, paged_kv_last_page_len


@dataclass
class Made:
    """The wrappers that were made."""

    decodes: list[FakeDecode] = field(default_factory=list[FakeDecode])
    prefills: list[FakePrefill] = field(default_factory=list[FakePrefill])

    def functions(self) -> FlashInferFunctions:
        """What is used of FlashInfer."""
        return FlashInferFunctions(self._decode, self._prefill)

    def planner(self, device: torch.device) -> FlashInferPlanner:
        """A planner of these, in place of `genericbuilders.backends.flashinfer.find_planner`."""
        return FlashInferPlanner(self.functions, device)

    def _decode(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str,
        *,
        use_cuda_graph: bool,
        use_tensor_cores: bool,
        paged_kv_indptr_buffer: Tensor | None,
        paged_kv_indices_buffer: Tensor | None,
        paged_kv_last_page_len_buffer: Tensor | None,
    ) -> FakeDecode:
        buffers = None
        if (
            paged_kv_indptr_buffer is not None
            and paged_kv_indices_buffer is not None
            and paged_kv_last_page_len_buffer is not None
        ):
            buffers = (paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer)
        assert use_cuda_graph == (buffers is not None)
        made = FakeDecode(float_workspace_buffer, kv_layout, use_cuda_graph=use_cuda_graph, buffers=buffers)
        self.decodes.append(made)
        return made

    def _prefill(self, float_workspace_buffer: Tensor, kv_layout: str) -> FakePrefill:
        made = FakePrefill(float_workspace_buffer, kv_layout)
        self.prefills.append(made)
        return made
