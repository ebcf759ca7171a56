"""hpc-ops in plain torch: it attends by the reference, and remembers what it was called with."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType

import torch
from attention_batches import ints
from torch import Tensor

from genericbuilders.kernels import reference
from genericbuilders.kernels.hpc import HpcFunctions

__all__ = ["FakeHpc"]


@dataclass
class FakeHpc:
    """The calls, in order."""

    calls: list[list[object]] = field(default_factory=list[list[object]])

    def find(self, device: torch.device) -> HpcFunctions:
        """In place of `genericbuilders.backends.hpc.find_functions`: every device is one of its own."""
        return self.functions()

    def functions(self) -> HpcFunctions:
        """What is used of it."""
        return HpcFunctions(self.task_map, self.assign, self.decode, self.prefill)

    def module(self) -> ModuleType:
        """The same under hpc-ops' own names."""
        module = ModuleType("hpc")
        module.__dict__.update(
            get_attention_decode_task_workspace=self.task_map,
            assign_attention_decode_task=self.assign,
            attention_decode_bf16=self.decode,
            attention_with_kvcache_prefill_bf16=self.prefill,
        )
        return module

    def task_map(self, max_num_batch: int, max_seqlen: int, num_head_kv: int, *, min_process_len: int) -> Tensor:
        """See `genericbuilders.kernels.hpc.MakesTaskMap`."""
        self.calls.append(["workspace", max_num_batch, max_seqlen, num_head_kv, min_process_len])
        return torch.zeros(1)

    def assign(
        self,
        num_seq_kvcache: Tensor,
        task_map: Tensor,
        num_head_kv: int,
        num_seq_q: int,
        *,
        new_kv_included: bool,
        min_process_len: int,
    ) -> None:
        """See `genericbuilders.kernels.hpc.AssignsTasks`."""
        task_map += 1
        told = [num_head_kv, num_seq_q, new_kv_included, min_process_len]
        self.calls.append(["assign", ints(num_seq_kvcache), *told])

    def decode(
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
        """See `genericbuilders.kernels.hpc.Decodes`."""
        assert task_map.item() > 0, "the decodes are not planned"
        rows = len(num_seq_kvcache)
        assert len(q) == rows * (1 + mtp)
        starts = torch.arange(rows + 1, dtype=torch.int32) * (1 + mtp)
        self.calls.append(["decode", rows, mtp])
        return self._attend(q, kcache, vcache, starts, block_ids, num_seq_kvcache, output)

    def prefill(
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
        """See `genericbuilders.kernels.hpc.Prefills`."""
        assert len(q) == int(cu_seqlens_q[-1])
        assert len(block_ids) == len(seqlens_kvcache) == len(cu_seqlens_q) - 1
        self.calls.append(["prefill", len(seqlens_kvcache)])
        return self._attend(q, kcache, vcache, cu_seqlens_q, block_ids, seqlens_kvcache, output)

    @staticmethod
    def _attend(
        query: Tensor, keys: Tensor, values: Tensor, starts: Tensor, table: Tensor, lengths: Tensor, out: Tensor
    ) -> Tensor:
        assert query.is_contiguous()
        found = reference.paged_attention(
            query,
            keys,
            values,
            query_start_loc=starts,
            seq_lens=lengths,
            block_table=table,
            scale=query.shape[2] ** -0.5,
            causal=True,
        )
        return out.copy_(found)
