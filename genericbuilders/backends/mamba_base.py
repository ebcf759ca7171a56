"""What all state-space back ends share: the metadata of a batch of states, and the builder that makes it.

One `StateRows` describes the whole batch, decodes, prefills and speculative rows alike, in the runner's order. Which
state a row starts from, and where states are stored, follows from the spec's mode (`MambaSpec.mamba_cache_mode`) and is
worked out here, once for all layers and whatever the recurrence.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import MISSING, fields, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.backends.mamba_metadata import BaseMambaMetadata
from genericbuilders.backends.state_plan import ChunkPlan, chunk_step, plan_chunks, plan_uniform
from genericbuilders.backends.state_speculation import (
    NUM_ACCEPTED_TOKENS,
    NUM_DECODE_DRAFT_TOKENS,
    drafted,
    read_speculation,
)
from genericbuilders.builder import AttentionCGSupport, AttentionMetadataBuilder
from genericbuilders.config import EngineConfig, check_states
from genericbuilders.kernels.ints import Ints
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.state.select import STATE_DTYPES
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaSpec

__all__ = [
    "NUM_ACCEPTED_TOKENS",
    "NUM_DECODE_DRAFT_TOKENS",
    "BaseMambaMetadata",
    "BaseMambaMetadataBuilder",
]

B = TypeVar("B", bound=BaseMambaMetadata)


class BaseMambaMetadataBuilder(AttentionMetadataBuilder[B, MambaSpec]):
    """Builds the metadata ``B`` of one state-space back end; a subclass names it.

    Raises:
        ValueError: a layer's states are not those of the spec, or have other axes than the back end's; or speculative
            states are to be kept in a mode that also keeps block ends.
        TypeError: the metadata has further fields without defaults.
    """

    def __init__(
        self, kv_cache_spec: MambaSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        check_states(config, layer_names, kv_cache_spec.shapes, kv_cache_spec.dtypes)
        self._check_axes(layer_names, kv_cache_spec)
        self.num_speculative: int = kv_cache_spec.num_speculative_blocks
        keeps_blocks = kv_cache_spec.mamba_cache_mode != "none"
        if self.num_speculative and keeps_blocks:
            raise ValueError(
                f"layers {list(layer_names)} keep {self.num_speculative} speculative states in the mode "
                f"{kv_cache_spec.mamba_cache_mode!r}; speculative decoding is served in the mode 'none'"
            )
        self._metadata_type = _checked(self.metadata_type)
        self.chunk_size: int | None = self.kernel_chunk()
        self._step = chunk_step(kv_cache_spec, self.chunk_size)
        # One state a request, always in column 0.
        self._simple = not keeps_blocks and not self.num_speculative
        self._last_only = kv_cache_spec.mamba_cache_mode != "all" and not self.num_speculative
        most = config.max_num_seqs * (1 + self.num_speculative)
        self._one = np.ones((), dtype=np.int32)
        self._arange = torch.arange(most + 1, dtype=torch.int32, device=device)
        self._fronts: dict[int, Tensor] = {}
        self._steps: dict[tuple[int, int], Tensor] = {}
        # Where a graph of uniform decodes reads the blocks of its rows: those stored, and, if others, those read.
        self._blocks_of_graph = torch.zeros(most, dtype=torch.int32, device=device)
        self._initial_of_graph = torch.zeros(config.max_num_seqs, dtype=torch.int32, device=device)
        self._on_host = device.type == "cpu"

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: MambaSpec) -> AttentionCGSupport:
        """Rows that all continue states: by one token, or by all candidates of a run whose states the spec holds."""
        drafts = config.num_speculative_tokens
        if 0 < drafts <= kv_cache_spec.num_speculative_blocks:
            return AttentionCGSupport.UNIFORM_BATCH
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    def kernel_chunk(self) -> int | None:
        """The tokens at whose multiples chunks of a prefill end. Unless overridden: the kernel has no chunks."""
        return None

    @property
    @abstractmethod
    def metadata_type(self) -> type[B]:
        """This back end's metadata: a subclass of `BaseMambaMetadata` whose further fields, if any, have defaults."""

    @property
    def state_axes(self) -> Sequence[Sequence[str]] | None:
        """The names of the axes of each tensor of a state. Unless overridden: a state may have any."""
        return None

    def _check_axes(self, layer_names: Sequence[str], spec: MambaSpec) -> None:
        """Refuse states that the implementation could not unpack, before anything is allocated."""
        wanted = self.state_axes
        if wanted is not None and [len(shape) for shape in spec.shapes] != [len(axes) for axes in wanted]:
            told = ", ".join(f"[{', '.join(axes)}]" for axes in wanted)
            raise ValueError(
                f"layers {list(layer_names)} keep states of shapes {spec.shapes}; {type(self).__name__} needs "
                f"{len(wanted)} tensor{'' if len(wanted) == 1 else 's'}: {told}"
            )
        lacking = [str(dtype) for dtype in spec.dtypes if dtype not in STATE_DTYPES]
        if lacking:
            raise ValueError(
                f"layers {list(layer_names)} keep states in {', '.join(lacking)}; the kernels have "
                f"{', '.join(map(str, STATE_DTYPES))}"
            )

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> B:
        common = common_attn_metadata
        if not self._simple:
            return self._planned(common)
        if common.max_query_len == 1:
            count = common.num_actual_tokens
            if count == common.num_reqs:
                if np.count_nonzero(common.num_computed_tokens_cpu.numpy()) == count:
                    return self._decodes(common)
            elif self._padded(common) and np.count_nonzero(common.num_computed_tokens_cpu.numpy()[:count]) == count:
                return self._decodes(common)
        return self._rows_whole(common) if self.chunk_size is None else self._planned(common)

    @override
    def build_for_cudagraph_capture(self, common_attn_metadata: CommonAttentionMetadata) -> B:
        most = 1 + self.num_speculative
        if common_attn_metadata.max_query_len > most:
            raise ValueError(
                f"graphs of {type(self).__name__} hold rows that continue states by at most {most} tokens each; the "
                f"batch to capture has rows of {common_attn_metadata.max_query_len}"
            )
        return self.build(0, drafted(common_attn_metadata) if self.num_speculative else common_attn_metadata)

    @override
    def update_block_table(self, metadata: B, blk_table: Tensor, slot_mapping: Tensor) -> B:
        rows, plan = metadata.rows, metadata.plan
        if plan is not None:
            initial, stored = self._gathered(plan, blk_table)
        elif rows.initial_state is rows.chunk_state:
            initial = stored = self._decode_blocks(blk_table, metadata.num_decodes, rows.num_rows)
        else:
            # One chunk a row, in column 0: a null block there was put in by padding, or is a start.
            blocks = _first_column(blk_table)
            initial = torch.where(rows.initial_state != 0, blocks, 0)
            stored = torch.where(rows.chunk_state != 0, blocks, 0)
        return replace(metadata, rows=rows._replace(initial_state=initial, chunk_state=stored))

    @staticmethod
    def _padded(common: CommonAttentionMetadata) -> bool:
        """Whether a batch of single tokens has empty rows behind all others, and a token for each of them."""
        count = common.num_actual_tokens
        starts = common.query_start_loc_cpu.numpy()
        return bool(starts[count] == count) and len(common.slot_mapping) >= common.num_reqs

    def _decodes(self, common: CommonAttentionMetadata) -> B:
        """The quick way: every row but those of padding continues a state by one token."""
        total, count = common.num_reqs, common.num_actual_tokens
        starts = self._front(total + 1)
        blocks = self._decode_blocks(common.block_table_tensor, count, total)
        rows = StateRows(total, 1, 1, starts, blocks, starts, starts, blocks)
        return self._metadata_type(
            total, count, count, count, 0, 0, 0, 0, common.query_start_loc, common.seq_lens, rows, None, self.chunk_size
        )

    def _decode_blocks(self, block_table: Tensor, count: int, total: int) -> Tensor:
        """The blocks of ``count`` decodes in ``total`` rows; where a graph reads them, in this builder's own buffer."""
        blocks = _first_column(block_table)
        if count == total and self._on_host:
            return blocks
        self._blocks_of_graph[:count] = blocks[:count]
        self._blocks_of_graph[count:total] = 0
        return self._blocks_of_graph[:total]

    def _rows_whole(self, common: CommonAttentionMetadata) -> B:
        """Rows of any length, each one chunk, its state in column 0."""
        count, tokens, loc = common.num_reqs, common.num_actual_tokens, common.query_start_loc
        starts: Ints = common.query_start_loc_cpu.numpy()
        lens = starts[1:] - starts[:-1]
        if not count or np.count_nonzero(lens) < count:
            return self._planned(common)
        # 1 where a row continues a state, in the element type of all operands: a cast would double the time.
        continued: Ints = np.minimum(common.num_computed_tokens_cpu.numpy(), self._one)
        # No row is empty: a length equals its flag where it is 1 and the row continues a state.
        single = lens == continued
        # The first row that is no decode; where all are, argmin is 0.
        first = int(single.argmin())
        decodes = count if single[first] else first
        blocks = _first_column(common.block_table_tensor)
        if self._on_host:
            # Half the time of as_tensor.
            initial = torch.frombuffer(blocks.numpy() * continued, dtype=torch.int32)
        else:
            initial = blocks * self._sent(continued)
        front, host = self._front(count + 1), common.query_start_loc_cpu
        rows = StateRows(tokens, 1, common.max_query_len, loc, initial, front, loc, blocks, False, host)
        prefills = (count - decodes, tokens - decodes)
        return self._metadata_type(
            count, tokens, decodes, decodes, *prefills, 0, 0, loc, common.seq_lens, rows, None, self.chunk_size
        )

    def _planned(self, common: CommonAttentionMetadata) -> B:
        """Rows in chunks, their states wherever the mode keeps them."""
        starts: Ints = common.query_start_loc_cpu.numpy()
        computed: Ints = common.num_computed_tokens_cpu.numpy()
        lens = starts[1:] - starts[:-1]
        accepted, speculative = read_speculation(common, self.num_speculative)
        uniform = self._uniform_rows(common, computed, speculative)
        if uniform:
            kept = None if accepted is None else accepted[:uniform]
            plan = plan_uniform(self.kv_cache_spec, computed[:uniform], common.num_reqs, common.max_query_len, kept)
        else:
            plan = plan_chunks(self.kv_cache_spec, starts, computed, self._step, accepted, speculative)
        single = (lens == 1) & (computed > 0)
        num_filled = int(np.count_nonzero(lens))
        if speculative is None:
            decodes, spec_rows, spec_tokens = _num_leading(single), 0, 0
        else:
            decodes = int(np.count_nonzero(single & ~speculative))
            spec_rows, spec_tokens = int(np.count_nonzero(speculative)), int(lens[speculative].sum())
        tokens = common.num_actual_tokens
        rows = self._rows_of(plan, common)
        return self._metadata_type(
            common.num_reqs,
            tokens,
            decodes,
            decodes,
            num_filled - decodes - spec_rows,
            tokens - decodes - spec_tokens,
            spec_rows,
            spec_tokens,
            common.query_start_loc,
            common.seq_lens,
            rows,
            plan,
            self.chunk_size,
        )

    def _uniform_rows(
        self, common: CommonAttentionMetadata, computed: Ints, speculative: npt.NDArray[np.bool_] | None
    ) -> int:
        """How many rows a graph of uniform decodes would take this batch for; 0 where it is none."""
        query_len = common.max_query_len
        count = common.num_actual_tokens // query_len if query_len else 0
        if not count or query_len > 1 + self.num_speculative or count * query_len != common.num_actual_tokens:
            return 0
        # No row is longer than query_len: if so many have all tokens, each of them has its share.
        if common.query_start_loc_cpu.numpy()[count] != common.num_actual_tokens:
            return 0
        if count < common.num_reqs and len(common.slot_mapping) < common.num_reqs * query_len:
            return 0
        if query_len > 1 and (speculative is None or np.count_nonzero(speculative[:count]) < count):
            return 0
        return count if np.count_nonzero(computed[:count]) == count else 0

    def _rows_of(self, plan: ChunkPlan, common: CommonAttentionMetadata) -> StateRows:
        initial, stored = self._gathered(plan, common.block_table_tensor)
        if not plan.uniform:
            loc, chunks, starts = common.query_start_loc, self._sent(plan.row_chunks), self._sent(plan.chunk_start_loc)
            sizes = (common.num_actual_tokens, plan.max_chunks, plan.max_chunk_len)
            host = common.query_start_loc_cpu
            return StateRows(*sizes, loc, initial, chunks, starts, stored, self._last_only, host)
        num_tokens = len(stored)
        starts = self._front(num_tokens + 1)
        loc = starts if plan.max_chunks == 1 else self._multiples(plan.max_chunks, len(initial) + 1)
        return StateRows(num_tokens, plan.max_chunks, 1, loc, initial, loc, starts, stored)

    def _gathered(self, plan: ChunkPlan, block_table: Tensor) -> tuple[Tensor, Tensor]:
        """The blocks that the plan's columns name: initial states, and stored ones."""
        every = np.arange(len(plan.initial_column), dtype=np.int32)
        initial = self._blocks(block_table, every, plan.initial_column)
        stored = self._blocks(block_table, plan.chunk_row, plan.chunk_column)
        if not plan.uniform:
            return initial, stored
        return _put(self._initial_of_graph, initial), _put(self._blocks_of_graph, stored)

    def _blocks(self, block_table: Tensor, rows: Ints, columns: Ints) -> Tensor:
        """``block_table[rows, columns]``, the null block where a column is -1."""
        widest = int(columns.max(initial=-1))
        if widest >= block_table.shape[1]:
            row = int(rows[int(columns.argmax())])
            raise ValueError(
                f"row {row} has its state in column {widest}, but the block table has {block_table.shape[1]} columns; "
                "give state-space groups as many as MambaSpec.max_num_blocks_per_req says"
            )
        if self._on_host:
            table: Ints = block_table.numpy()
            return torch.as_tensor(np.where(columns < 0, 0, table[rows, columns]).astype(np.int32, copy=False))
        at, chosen = self._sent(columns), self._sent(rows).long()
        return torch.where(at < 0, 0, block_table[chosen, at.clamp(min=0).long()])

    def _front(self, count: int) -> Tensor:
        """0, 1, 2 ... of one length; views are kept, since making one costs a tenth of a whole build."""
        found = self._fronts.get(count)
        if found is None:
            found = self._fronts[count] = self._arange[:count]
        return found

    def _multiples(self, step: int, count: int) -> Tensor:
        """0, ``step``, 2 ``step`` ... of one length, likewise kept, so that a graph finds them again."""
        found = self._steps.get((step, count))
        if found is None:
            found = self._steps[step, count] = self._arange[: step * (count - 1) + 1 : step].contiguous()
        return found

    def _sent(self, values: Ints | npt.NDArray[np.bool_]) -> Tensor:
        """A host array on the device."""
        made = torch.as_tensor(values)
        return made if self._on_host else made.pin_memory().to(self.device, non_blocking=True)


def _checked(metadata_type: type[B]) -> type[B]:
    """``metadata_type``, if it can be made of the shared fields alone."""
    shared = {field.name for field in fields(BaseMambaMetadata)}
    missing = [
        field.name
        for field in fields(metadata_type)
        if field.init and field.name not in shared and field.default is field.default_factory is MISSING
    ]
    if missing:
        raise TypeError(
            f"{metadata_type.__qualname__} adds fields without defaults to BaseMambaMetadata: {', '.join(missing)}; "
            "give them defaults, or set them in build()"
        )
    return metadata_type


def _first_column(block_table: Tensor) -> Tensor:
    """The first column, contiguous; the table itself where it has no other."""
    return block_table.view(-1) if block_table.shape[1] == 1 else block_table.select(1, 0).contiguous()


def _num_leading(flags: npt.NDArray[np.bool_]) -> int:
    """How many flags are set before the first that is not."""
    first = int(flags.argmin()) if len(flags) else 0
    return len(flags) if len(flags) and flags[first] else first


def _put(buffer: Tensor, values: Tensor) -> Tensor:
    """``values`` at the front of ``buffer``."""
    front = buffer[: len(values)]
    return front.copy_(values)
