"""Prefills that skip tokens in the layers that share a cache, for any back end of attention.

Behind the last layer with a cache of its own, a prompt's tokens leave nothing for others to read. So those layers need
to run for the tokens whose logits are wanted alone: of each row its last ones, of most rows of a prefill none. The
wrapped back end is told of a batch of these tokens, over the same sequences.
"""

from __future__ import annotations

import types
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.host import check_lengths, computed_tokens
from genericbuilders.builder import AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder
from genericbuilders.config import EngineConfig
from genericbuilders.generics import generic_arguments
from genericbuilders.kernels.ints import Ints
from genericbuilders.metadata import IS_PREFILLING, BuildInput, CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec

__all__ = ["FAST_PREFILL", "LOGITS_TOKENS", "FastPrefillBuilder", "fast_prefill", "keep_logits_tokens", "skips_tokens"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)


LOGITS_TOKENS: BuildInput[Tensor] = BuildInput("logits_tokens")
"""``[num_logits]`` int64 on the host, ascending: the batch's tokens whose logits are wanted, the last ones of each row.

Whoever puts it there runs the layers behind for these tokens alone, unless `skips_tokens` says that they run for all.
"""


def skips_tokens(common: CommonAttentionMetadata) -> bool:
    """Whether the layers behind the last cache run for the batch's `LOGITS_TOKENS` alone.

    Rows of one token each run whole, whether their logits are wanted or not, so that graphs of decodes see one shape.

    Raises:
        KeyError: rows have more tokens, and nothing is told of their logits.
    """
    return common.max_query_len > 1 and len(common.inputs[LOGITS_TOKENS]) != common.num_actual_tokens


def keep_logits_tokens(query_start_loc: Ints, logits_tokens: Ints) -> npt.NDArray[np.int32]:
    """Where rows start once they have no tokens but those whose logits are wanted; ``[num_reqs + 1]``.

    Args:
        query_start_loc: ``[num_reqs + 1]``: where they start now.
        logits_tokens: ``[num_logits]``: as `LOGITS_TOKENS`.

    Raises:
        ValueError: a token is in no row, comes twice, or is followed by one of its row that is left out, so that
            attention would take it for a later one; it is named.
    """
    kept = np.searchsorted(logits_tokens, query_start_loc).astype(np.int32)
    counts = np.diff(kept)
    # Where each token would be if those left out stood in front of their rows.
    expected = np.arange(len(logits_tokens)) + (query_start_loc[1:] - kept[1:]).repeat(counts)
    if counts.sum() != len(logits_tokens) or (counts > np.diff(query_start_loc)).any():
        raise ValueError(
            f"LOGITS_TOKENS holds {len(logits_tokens)} tokens, not all of them among the {query_start_loc[-1]} of the "
            "batch, or some of them twice"
        )
    if (wrong := expected != logits_tokens).any():
        at = int(wrong.argmax())
        raise ValueError(
            f"LOGITS_TOKENS holds token {logits_tokens[at]} where {expected[at]} must be: of each row it has the last "
            "tokens, in order"
        )
    return kept


class FastPrefillBuilder(AttentionMetadataBuilder[M, S]):
    """Has another back end build the batch of `LOGITS_TOKENS`; made for each back end by `fast_prefill`.

    How many tokens it has follows from which rows are at their prompts' ends, so that no graph can hold it. Rows of
    one token each are handed on as they are, and may be held if the other back end allows.
    """

    def __init__(
        self, kv_cache_spec: S, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self._inner = self.origin().make_builder(kv_cache_spec, layer_names, config, device)

    @classmethod
    @abstractmethod
    def origin(cls) -> BackendAdapter[M, S]:
        """The back end that builds the batch."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: S) -> AttentionCGSupport:
        allowed = cls.origin().builder.get_cudagraph_support(config, kv_cache_spec)
        return min(allowed, AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE)

    @classmethod
    @override
    def get_kv_cache_shape(cls, num_blocks: int, kv_cache_spec: S) -> tuple[int, ...]:
        return cls.origin().kv_cache_shape(num_blocks, kv_cache_spec)

    @classmethod
    @override
    def get_kv_cache_dtype(cls, kv_cache_spec: S) -> torch.dtype:
        return cls.origin().kv_cache_dtype(kv_cache_spec)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> M:
        return self._inner.build(common_prefix_len, self.logits_batch(common_attn_metadata), fast_build)

    @override
    def build_for_cudagraph_capture(self, common_attn_metadata: CommonAttentionMetadata) -> M:
        return self._inner.build_for_cudagraph_capture(self.logits_batch(common_attn_metadata))

    @override
    def build_for_drafting(self, common_attn_metadata: CommonAttentionMetadata, draft_index: int) -> M:
        return self._inner.build_for_drafting(self.logits_batch(common_attn_metadata), draft_index)

    @override
    def update_block_table(self, metadata: M, blk_table: Tensor, slot_mapping: Tensor) -> M:
        return self._inner.update_block_table(metadata, blk_table, slot_mapping)

    def logits_batch(self, common: CommonAttentionMetadata) -> CommonAttentionMetadata:
        """The batch of the tokens that run; ``common`` itself where none is skipped.

        Raises:
            KeyError: see `skips_tokens`.
            ValueError: lengths are missing, a row brings more tokens than its sequence has, or see
                `keep_logits_tokens`.
        """
        if not skips_tokens(common):
            return common
        check_lengths(common)
        computed_tokens(common)
        given: Ints = common.query_start_loc_cpu.numpy()
        starts = keep_logits_tokens(given, common.inputs[LOGITS_TOKENS].numpy())
        counts = torch.as_tensor(np.diff(starts))
        starts_cpu = torch.as_tensor(starts)
        computed = common.seq_lens_cpu - counts
        inputs = common.inputs.copy()
        inputs.put(IS_PREFILLING, counts > computed.clamp(max=1))
        return replace(
            common,
            query_start_loc=self._sent(starts_cpu),
            query_start_loc_cpu=starts_cpu,
            num_computed_tokens_cpu=computed,
            num_actual_tokens=int(starts[-1]),
            max_query_len=int(counts.max()),
            # Nothing is stored.
            slot_mapping=common.slot_mapping.new_full((int(starts[-1]),), -1),
            inputs=inputs,
        )

    def _sent(self, values: Tensor) -> Tensor:
        return values if self.device.type == "cpu" else values.pin_memory().to(self.device, non_blocking=True)


def fast_prefill(adapter: BackendAdapter[M, S], name: str | None = None) -> BackendAdapter[M, S]:
    """A back end for layers that share a cache, which ``adapter`` has stored, and that run for `LOGITS_TOKENS` alone.

    Its metadata is ``adapter``'s, and so is all that is computed. Its layers are made with ``sharing_layer``.

    Args:
        adapter: a back end of attention that can read without storing.
        name: what configurations call it; ``None`` for ``fast_prefill`` and the other's name.

    Raises:
        TypeError: ``adapter`` stores nothing itself, cannot read without storing, or its metadata is no class.
    """
    if adapter.reads is not None:
        raise TypeError(
            f"adapter {adapter.name!r} reads the caches of {adapter.reads.name!r} and has none; wrap that one"
        )
    impl, made = adapter.impl_type, adapter.metadata_type
    if not issubclass(impl, AttentionImpl) or not impl.can_read():
        raise TypeError(f"adapter {adapter.name!r}: {impl.__qualname__} has no read(), which stores nothing")
    if not isinstance(made, type):
        raise TypeError(f"adapter {adapter.name!r} makes {made!r}, which is no class; name one in its builder's base")
    return BackendAdapter(
        name or f"fast_prefill_{adapter.name}",
        _builder_of(adapter),
        adapter.impl,
        requires=adapter.requires,
        needs=(*adapter.needs, LOGITS_TOKENS),
        reads=adapter,
    )


def _builder_of(adapter: BackendAdapter[M, S]) -> type[FastPrefillBuilder[M, S]]:
    def body(namespace: dict[str, object]) -> None:
        def origin(cls: type[object]) -> BackendAdapter[M, S]:
            return adapter

        namespace["__module__"] = __name__
        namespace["__doc__"] = f"Prefills of the tokens whose logits are wanted, built by {adapter.name}."
        namespace["origin"] = classmethod(origin)

    # At run time an adapter reads M and S from the base's arguments.
    base = types.GenericAlias(FastPrefillBuilder, _arguments(adapter))
    made = types.new_class("FastPrefillBuilder", (base,), exec_body=body)
    if not _builds_for(made, adapter):
        raise TypeError(f"{made!r} is no FastPrefillBuilder")
    return made


def _builds_for(cls: type[object], adapter: BackendAdapter[M, S]) -> TypeGuard[type[FastPrefillBuilder[M, S]]]:
    return generic_arguments(cls, FastPrefillBuilder) == _arguments(adapter)


def _arguments(adapter: BackendAdapter[M, S]) -> tuple[object, object]:
    first, *others = adapter.spec_types
    taken: type[KVCacheSpec] | types.UnionType = first
    for each in others:
        taken |= each
    return adapter.metadata_type, taken


FAST_PREFILL = fast_prefill(FLASH_ATTN, "fast_prefill")
