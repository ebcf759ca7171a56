"""One batch, described once, for every group of layers that runs on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from torch import Tensor
from typing_extensions import TypeVar

from genericbuilders.keys import TypedKey, TypedMap

__all__ = ["IS_PREFILLING", "BuildInput", "CommonAttentionMetadata"]

T = TypeVar("T")


class BuildInput(TypedKey[T]):
    """Something beyond the batch itself that some builders need, such as accepted draft counts.

    An adapter names its needs (``BackendAdapter(needs=(ACCEPTED,))``), the runner states at `bind` what it
    provides, and a builder reads ``common.inputs[ACCEPTED]`` at the key's type.
    """


IS_PREFILLING: BuildInput[Tensor] = BuildInput("is_prefilling")
"""``[num_reqs]`` bool on the host: rows that start a sequence, or bring several tokens that are no drafts.

The engine always tells it; back ends of this library work it out with the rest.
"""


@dataclass(frozen=True)
class CommonAttentionMetadata:
    """What every builder is told about a batch of ``num_reqs`` requests.

    Rows keep their order in every tensor. Row ``i`` brings ``query_start_loc[i + 1] - query_start_loc[i]`` new
    tokens; after them its sequence is ``seq_lens[i]`` tokens long. Rows added by padding have length zero,
    the null block and slot -1.

    Attributes:
        query_start_loc: ``[num_reqs + 1]`` int32, on the device.
        query_start_loc_cpu: the same on the host.
        seq_lens: ``[num_reqs]`` int32, on the device: tokens computed before and in this batch.
        seq_lens_cpu: the same on the host.
        num_computed_tokens_cpu: ``[num_reqs]`` int32, on the host: tokens computed before this batch.
        num_reqs: rows, padding included.
        num_actual_tokens: new tokens of all real rows.
        max_query_len: the longest row's new tokens.
        max_seq_len: the longest row's sequence.
        block_table_tensor: ``[num_reqs, max_blocks]`` int32, on the device; this group's own.
        slot_mapping: ``[num_tokens]`` int64, on the device; ``block * block_size + offset``, -1 writes nothing.
        causal: whether a token sees only itself and what came before.
        inputs: further inputs, each under its typed key.
    """

    query_start_loc: Tensor
    query_start_loc_cpu: Tensor
    seq_lens: Tensor
    seq_lens_cpu: Tensor
    num_computed_tokens_cpu: Tensor
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    block_table_tensor: Tensor
    slot_mapping: Tensor
    causal: bool = True
    inputs: TypedMap = field(default_factory=TypedMap)

    def for_group(self, block_table_tensor: Tensor, slot_mapping: Tensor) -> Self:
        """The same batch with another group's block table and slots."""
        return replace(self, block_table_tensor=block_table_tensor, slot_mapping=slot_mapping)
