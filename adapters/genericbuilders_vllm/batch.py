"""A batch as vLLM describes it, and back: the same tensors under other names.

What only vLLM's description has is kept in ``common.inputs``, under the keys of `genericbuilders_vllm.batch_keys`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from typing_extensions import TypeVar

from genericbuilders.backends.mamba_base import NUM_DECODE_DRAFT_TOKENS
from genericbuilders.keys import TypedKey, TypedMap
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders_vllm import batch_keys as keys
from genericbuilders_vllm.library import require_vllm

if TYPE_CHECKING:
    from vllm.v1.attention.backend import CommonAttentionMetadata as TheirCommonAttentionMetadata

__all__ = ["BatchConverter", "from_vllm_batch", "to_vllm_batch"]

T = TypeVar("T")

# The host's lengths have had several names; 0.32 knows the first, and none of the computed tokens.
_HOST_LENS = ("seq_lens_cpu_upper_bound", "seq_lens_cpu", "_seq_lens_cpu")
_HOST_COMPUTED = ("num_computed_tokens_cpu", "_num_computed_tokens_cpu")
# Of the same name and meaning on both sides, and always told.
_SHARED = (
    "query_start_loc",
    "query_start_loc_cpu",
    "seq_lens",
    "num_reqs",
    "num_actual_tokens",
    "max_query_len",
    "max_seq_len",
    "block_table_tensor",
    "slot_mapping",
    "causal",
)
_TOLD = frozenset((*_SHARED, *_HOST_LENS, *_HOST_COMPUTED))


class BatchConverter:
    """Converts batches for one builder.

    Args:
        derives_prefilling: whether to work out which rows are prefilling where the batch does not say
            (`genericbuilders.metadata.IS_PREFILLING`), as builders of state-space layers need to know.

    Raises:
        BackendUnavailableError: vLLM is not installed.
        TypeError: this vLLM's description asks for a field that is not known here.
    """

    def __init__(self, derives_prefilling: bool = False) -> None:
        require_vllm("converting a batch")
        from vllm.v1.attention.backend import CommonAttentionMetadata as TheirCommonAttentionMetadata

        self._class: type[TheirCommonAttentionMetadata] = TheirCommonAttentionMetadata
        self._make: Callable[..., TheirCommonAttentionMetadata] = TheirCommonAttentionMetadata
        fields = dataclasses.fields(TheirCommonAttentionMetadata)
        names = frozenset(field.name for field in fields)
        if lacking := [name for name in _SHARED if name not in names]:
            raise TypeError(f"this vLLM's CommonAttentionMetadata lacks {', '.join(lacking)}")
        self._names: frozenset[str] = names
        self._defaults: dict[str, object] = {field.name: _default(field) for field in fields}
        self._lens_names: tuple[str, ...] = tuple(name for name in _HOST_LENS if name in names)
        self._computed_names: tuple[str, ...] = tuple(name for name in _HOST_COMPUTED if name in names)
        # Its constructor does nothing but set fields, and takes as long as all the rest: done without where that holds.
        self._is_plain: bool = not (
            hasattr(TheirCommonAttentionMetadata, "__post_init__") or hasattr(TheirCommonAttentionMetadata, "__slots__")
        )
        # Told of nearly every batch, so that it is read first, and apart.
        self._knows_prefilling: bool = keys.IS_PREFILLING.name in names
        self._derives_prefilling: bool = derives_prefilling and self._knows_prefilling
        apart = keys.IS_PREFILLING if self._knows_prefilling else None
        known = keys.batch_arguments()
        self._arguments: tuple[keys.BuildArgument, ...] = tuple(each for each in known if each.key is not apart)
        self._num_none = 0
        self._none_prefilling: Tensor = torch.zeros(0, dtype=torch.bool)

    def __call__(self, common: CommonAttentionMetadata) -> TheirCommonAttentionMetadata:
        """``common`` as vLLM describes it; no tensor is copied.

        Raises:
            ValueError: it has an input that this vLLM knows no field for.
        """
        return self.convert(common)[0]

    def convert(self, common: CommonAttentionMetadata) -> tuple[TheirCommonAttentionMetadata, int]:
        """The same, and how many of ``common.inputs`` have no field there."""
        fields = self._defaults.copy()
        fields["query_start_loc"] = common.query_start_loc
        fields["query_start_loc_cpu"] = common.query_start_loc_cpu
        fields["seq_lens"] = common.seq_lens
        fields["num_reqs"] = common.num_reqs
        fields["num_actual_tokens"] = common.num_actual_tokens
        fields["max_query_len"] = common.max_query_len
        fields["max_seq_len"] = common.max_seq_len
        fields["block_table_tensor"] = common.block_table_tensor
        fields["slot_mapping"] = common.slot_mapping
        fields["causal"] = common.causal
        for name in self._lens_names:
            fields[name] = common.seq_lens_cpu
        for name in self._computed_names:
            fields[name] = common.num_computed_tokens_cpu
        inputs = common.inputs
        unread = len(inputs)
        if self._knows_prefilling:
            told = None
            if unread:
                try:
                    told = inputs[keys.IS_PREFILLING]
                    unread -= 1
                except KeyError:
                    pass
            if told is None and self._derives_prefilling:
                told = self._prefilling(common)
            fields["is_prefilling"] = told
        if unread:
            unread = self._read_inputs(inputs, fields, unread)
        if not self._is_plain:
            return self._make(**fields), unread
        made = object.__new__(self._class)
        made.__dict__ = fields
        return made, unread

    def _read_inputs(self, inputs: TypedMap, fields: dict[str, object], unread: int) -> int:
        for argument in self._arguments:
            if argument.key in inputs:
                if argument.name not in self._names:
                    raise ValueError(f"common.inputs holds {argument.name}, which this vLLM's description lacks")
                fields[argument.name] = argument.read(inputs)
                unread -= 1
        return unread

    def _prefilling(self, common: CommonAttentionMetadata) -> Tensor:
        """Rows that start a state, or bring several tokens that are no drafts."""
        computed = common.num_computed_tokens_cpu
        if common.max_query_len <= 1 and computed.all():
            # Kept, since making one costs more than all the rest.
            if self._num_none != common.num_reqs:
                self._num_none = common.num_reqs
                self._none_prefilling = torch.zeros(common.num_reqs, dtype=torch.bool)
            return self._none_prefilling
        starts = common.query_start_loc_cpu
        prefilling = starts[1:] - starts[:-1] > computed.clamp(max=1)
        if NUM_DECODE_DRAFT_TOKENS in common.inputs:
            prefilling &= common.inputs[NUM_DECODE_DRAFT_TOKENS] < 0
        return prefilling


def to_vllm_batch(common: CommonAttentionMetadata) -> TheirCommonAttentionMetadata:
    """``common`` as vLLM describes it; no tensor is copied.

    Which rows are prefilling is told only if ``common.inputs`` tells it.

    Raises:
        ValueError: it has an input that this vLLM knows no field for.
        BackendUnavailableError: vLLM is not installed.
    """
    return BatchConverter()(common)


def from_vllm_batch(theirs: TheirCommonAttentionMetadata) -> CommonAttentionMetadata:
    """vLLM's description of a batch as this library's; no tensor is copied.

    The computed tokens of each row, which vLLM's lacks, are a new tensor on the host.

    Raises:
        ValueError: whether it is causal differs by row, or the sequences' lengths are not known on the host.
    """
    if not isinstance(theirs.causal, bool):
        raise ValueError("vLLM's causal differs by row; this library knows one answer for a batch")
    lens = theirs.seq_lens_cpu_upper_bound
    if lens is None:
        if theirs.seq_lens.device.type != "cpu":
            raise ValueError(
                f"vLLM's seq_lens is on {theirs.seq_lens.device} and its seq_lens_cpu_upper_bound is None; builders "
                "here need the lengths on the host"
            )
        lens = theirs.seq_lens
    inputs = TypedMap()
    _keep(inputs, keys.IS_PREFILLING, theirs.is_prefilling)
    _keep(inputs, keys.LOGITS_INDICES_PADDED, theirs.logits_indices_padded)
    _keep(inputs, keys.NUM_LOGITS_INDICES, theirs.num_logits_indices)
    _keep(inputs, keys.MAX_LOGITS_PER_REQ, theirs.max_logits_per_req)
    _keep(inputs, keys.ENCODER_SEQ_LENS, theirs.encoder_seq_lens)
    _keep(inputs, keys.ENCODER_SEQ_LENS_CPU, theirs.encoder_seq_lens_cpu)
    _keep(inputs, keys.DCP_LOCAL_SEQ_LENS, theirs.dcp_local_seq_lens)
    _keep(inputs, keys.DCP_LOCAL_SEQ_LENS_CPU_UPPER_BOUND, theirs.dcp_local_seq_lens_cpu_upper_bound)
    _keep(inputs, keys.POSITIONS, theirs.positions)
    _keep(inputs, keys.REQ_IDX, theirs.req_idx)
    _keep(inputs, keys.MM_REQ_DOC_RANGES, theirs.mm_req_doc_ranges)
    _keep(inputs, keys.RSWA_PREFIX_LENS, theirs.rswa_prefix_lens)
    _keep(inputs, keys.REPLAYSSM_DECODE_BASE_CPU, theirs.replayssm_decode_base_cpu)
    return CommonAttentionMetadata(
        query_start_loc=theirs.query_start_loc,
        query_start_loc_cpu=theirs.query_start_loc_cpu,
        seq_lens=theirs.seq_lens,
        seq_lens_cpu=lens,
        num_computed_tokens_cpu=lens - torch.diff(theirs.query_start_loc_cpu),
        num_reqs=theirs.num_reqs,
        num_actual_tokens=theirs.num_actual_tokens,
        max_query_len=theirs.max_query_len,
        max_seq_len=theirs.max_seq_len,
        block_table_tensor=theirs.block_table_tensor,
        slot_mapping=theirs.slot_mapping,
        causal=theirs.causal,
        inputs=inputs,
    )


def _keep(inputs: TypedMap, key: TypedKey[T], value: T | None) -> None:
    if value is not None:
        inputs.put(key, value)


def _default(field: dataclasses.Field[object]) -> object:
    """What a field holds unless it is told; nothing yet for those that are always told."""
    if field.name in _TOLD:
        return None
    if field.default is dataclasses.MISSING:
        raise TypeError(f"this vLLM's CommonAttentionMetadata asks for {field.name}, which is not known here")
    return field.default
