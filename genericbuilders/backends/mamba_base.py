"""What all state-space back ends share: the metadata of a batch of states, and the builder that makes it.

One `StateRows` describes the whole batch, decodes, prefills and speculative rows alike, in the runner's order. Which
state a row starts from, and where states are stored, follows from the spec's mode (`MambaSpec.mamba_cache_mode`) and is
worked out here, once for all layers and whatever the recurrence.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.backends.state_plan import ChunkPlan, Ints, chunk_step, plan_chunks
from genericbuilders.builder import AttentionCGSupport, AttentionMetadataBuilder
from genericbuilders.config import EngineConfig, check_states
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.metadata import BuildInput, CommonAttentionMetadata
from genericbuilders.specs import MambaSpec

__all__ = [
    "NUM_ACCEPTED_TOKENS",
    "NUM_DECODE_DRAFT_TOKENS",
    "BaseMambaMetadata",
    "BaseMambaMetadataBuilder",
]

B = TypeVar("B", bound="BaseMambaMetadata")

NUM_ACCEPTED_TOKENS: BuildInput[Tensor] = BuildInput("num_accepted_tokens")
"""``[num_reqs]`` int32 on the host: tokens of each row's last step that were kept, with the sampled one; at least 1."""

NUM_DECODE_DRAFT_TOKENS: BuildInput[Tensor] = BuildInput("num_decode_draft_tokens")
"""``[num_reqs]`` int32 on the host: draft tokens that each row carries; -1 for a row that is no speculative decode."""


@dataclass
class BaseMambaMetadata:
    """One batch for a state-space layer. Names mean what they mean in vLLM; tensors are on the device.

    Rows come as the runner orders them: decodes first, so that the first ``num_decodes`` rows and tokens are theirs,
    unless speculative rows stand between. A decode is a row of one token that continues a state; a row that starts a
    state is a prefill, however short. Rows without tokens (padding) are neither.

    Attributes:
        num_reqs: rows, padding included.
        num_actual_tokens: new tokens of all rows.
        num_decodes: rows at the front of one token each that continue a state.
        num_decode_tokens: their tokens.
        num_prefills: rows that are neither those, nor speculative, nor empty.
        num_prefill_tokens: their tokens.
        num_spec_decodes: rows whose tokens are candidates, one state each.
        num_spec_decode_tokens: their tokens.
        query_start_loc: ``[num_reqs + 1]`` int32.
        seq_lens: ``[num_reqs]`` int32.
        rows: the batch as kernels take it.
        plan: where the states in ``rows`` stand in a block table; ``None`` if each row is one chunk, in column 0.
        chunk_size: tokens of a whole chunk; ``None`` if kernels have no chunks.
    """

    num_reqs: int
    num_actual_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    num_prefill_tokens: int
    num_spec_decodes: int
    num_spec_decode_tokens: int
    query_start_loc: Tensor
    seq_lens: Tensor
    rows: StateRows
    plan: ChunkPlan | None = field(repr=False)
    chunk_size: int | None

    @property
    def has_initial_states(self) -> Tensor:
        """``[num_reqs]`` bool: whether a row continues a state."""
        return self.rows.initial_state != 0

    @property
    def state_indices_tensor(self) -> Tensor:
        """``[num_reqs]`` int32: the block of each row's last state; the null block for rows without tokens."""
        chunks = self.rows.row_chunks
        if len(self.rows.chunk_state) == len(chunks) - 1 == self.num_reqs:
            return self.rows.chunk_state
        last = (chunks[1:] - 1).clamp(min=0).long()
        return torch.where(chunks[1:] > chunks[:-1], self.rows.chunk_state[last], 0)

    @property
    def state_indices_tensor_d(self) -> Tensor:
        """``[num_decodes]`` int32: the blocks of the decodes' states. Without speculative rows in the batch."""
        return self.state_indices_tensor[: self.num_decodes]

    @property
    def state_indices_tensor_p(self) -> Tensor:
        """``[num_prefills]`` int32: the same of the prefills."""
        return self.state_indices_tensor[self.prefill_rows]

    @property
    def has_initial_states_p(self) -> Tensor | None:
        """``[num_prefills]`` bool: whether a prefill continues a state; ``None`` without prefills."""
        return self.has_initial_states[self.prefill_rows] if self.num_prefills else None

    @property
    def query_start_loc_p(self) -> Tensor | None:
        """``[num_prefills + 1]`` int32, from 0: where the prefills start among their tokens."""
        if not self.num_prefills:
            return None
        first = self.num_decodes
        return self.query_start_loc[first : first + self.num_prefills + 1] - self.num_decode_tokens

    @property
    def prefill_rows(self) -> slice:
        """The rows of the prefills, in a batch without speculative rows and without empty rows between others."""
        return slice(self.num_decodes, self.num_decodes + self.num_prefills)


class BaseMambaMetadataBuilder(AttentionMetadataBuilder[B, MambaSpec]):
    """Builds the metadata ``B`` of one state-space back end; a subclass names it.

    Raises:
        ValueError: a layer's states are not those of the spec, or speculative states are to be kept in a mode that
            also keeps block ends.
    """

    def __init__(
        self, kv_cache_spec: MambaSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        check_states(config, layer_names, kv_cache_spec.shapes, kv_cache_spec.dtypes)
        self.num_speculative: int = kv_cache_spec.num_speculative_blocks
        keeps_blocks = kv_cache_spec.mamba_cache_mode != "none"
        if self.num_speculative and keeps_blocks:
            raise ValueError(
                f"layers {list(layer_names)} keep {self.num_speculative} speculative states in the mode "
                f"{kv_cache_spec.mamba_cache_mode!r}; speculative decoding is served in the mode 'none'"
            )
        self._metadata_type = self.metadata_type
        self.chunk_size: int | None = self.kernel_chunk()
        self._step = chunk_step(kv_cache_spec, self.chunk_size)
        # One state a request, always in column 0.
        self._simple = not keeps_blocks and not self.num_speculative
        self._arange = torch.arange(config.max_num_seqs + 1, dtype=torch.int32, device=device)
        self._fronts: dict[int, Tensor] = {}
        # Where a graph of decodes reads the blocks of its rows.
        self._blocks_of_graph = torch.zeros(config.max_num_seqs, dtype=torch.int32, device=device)
        self._on_host = device.type == "cpu"

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: MambaSpec) -> AttentionCGSupport:
        """Decodes of one token whose state stays in one block: only their tensors stand in buffers that are kept."""
        if kv_cache_spec.mamba_cache_mode != "none" or kv_cache_spec.num_speculative_blocks:
            return AttentionCGSupport.NEVER
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    def kernel_chunk(self) -> int | None:
        """The tokens at whose multiples chunks of a prefill end. Unless overridden: the kernel has no chunks."""
        return None

    @property
    @abstractmethod
    def metadata_type(self) -> type[B]:
        """This back end's metadata: a subclass of `BaseMambaMetadata` with the same fields."""

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
        if not self._simple:
            raise ValueError(
                f"{type(self).__name__} is not captured with speculative states, or in the mode "
                f"{self.kv_cache_spec.mamba_cache_mode!r}; ask get_cudagraph_support first"
            )
        if common_attn_metadata.max_query_len > 1:
            raise ValueError(
                f"graphs of {type(self).__name__} hold decodes of one token a row; the batch to capture has rows of "
                f"{common_attn_metadata.max_query_len}"
            )
        return self.build(0, common_attn_metadata)

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
        continued: npt.NDArray[np.bool_] = common.num_computed_tokens_cpu.numpy() > 0
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
        rows = StateRows(tokens, 1, common.max_query_len, loc, initial, self._front(count + 1), loc, blocks)
        prefills = (count - decodes, tokens - decodes)
        return self._metadata_type(
            count, tokens, decodes, decodes, *prefills, 0, 0, loc, common.seq_lens, rows, None, self.chunk_size
        )

    def _planned(self, common: CommonAttentionMetadata) -> B:
        """Rows in chunks, their states wherever the mode keeps them."""
        starts: Ints = common.query_start_loc_cpu.numpy()
        computed: Ints = common.num_computed_tokens_cpu.numpy()
        lens = starts[1:] - starts[:-1]
        accepted, speculative = self._speculation(common)
        plan = plan_chunks(self.kv_cache_spec, starts, computed, self._step, accepted, speculative)
        single = (lens == 1) & (computed > 0)
        num_filled = int(np.count_nonzero(lens))
        if speculative is None:
            decodes, spec_rows, spec_tokens = _num_leading(single), 0, 0
        else:
            decodes = int(np.count_nonzero(single & ~speculative))
            spec_rows, spec_tokens = int(np.count_nonzero(speculative)), int(lens[speculative].sum())
        initial, stored = self._gathered(plan, common.block_table_tensor)
        tokens = common.num_actual_tokens
        rows = StateRows(
            tokens,
            plan.max_chunks,
            plan.max_chunk_len,
            common.query_start_loc,
            initial,
            self._sent(plan.row_chunks),
            self._sent(plan.chunk_start_loc),
            stored,
        )
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

    def _speculation(self, common: CommonAttentionMetadata) -> tuple[Ints | None, npt.NDArray[np.bool_] | None]:
        """Accepted tokens a row, and which rows are speculative, where speculative states are kept."""
        if not self.num_speculative:
            return None, None
        lens = np.diff(common.query_start_loc_cpu.numpy())
        if NUM_ACCEPTED_TOKENS not in common.inputs:
            continued = np.flatnonzero((lens > 0) & (common.num_computed_tokens_cpu.numpy() > 0))
            if continued.size:
                raise ValueError(
                    f"row {continued[0]} continues one of {1 + self.num_speculative} states, but common.inputs does "
                    "not say which: put NUM_ACCEPTED_TOKENS there"
                )
            return None, None
        accepted: Ints = common.inputs[NUM_ACCEPTED_TOKENS].numpy()
        most = 1 + self.num_speculative
        if NUM_DECODE_DRAFT_TOKENS not in common.inputs:
            speculative = np.zeros(len(lens), dtype=np.bool_)
        else:
            drafts: Ints = common.inputs[NUM_DECODE_DRAFT_TOKENS].numpy()
            speculative = (drafts >= 0) & (lens > 0)
            odd = np.flatnonzero(speculative & (lens != drafts + 1))
            if odd.size:
                raise ValueError(
                    f"row {odd[0]} has {lens[odd[0]]} tokens and {drafts[odd[0]]} drafts; a speculative row has one "
                    "token more than drafts, any other -1 drafts"
                )
        wrong = np.flatnonzero(((accepted < 1) | (accepted > most)) & (lens > 0))
        if wrong.size:
            raise ValueError(
                f"row {wrong[0]} has {accepted[wrong[0]]} accepted tokens; with {self.num_speculative} speculative "
                f"states it must be 1 to {most}"
            )
        long = np.flatnonzero(speculative & (lens > most))
        if long.size:
            raise ValueError(
                f"row {long[0]} carries {lens[long[0]]} candidates; with {self.num_speculative} speculative states "
                f"there can be {most}"
            )
        return accepted, speculative

    def _gathered(self, plan: ChunkPlan, block_table: Tensor) -> tuple[Tensor, Tensor]:
        """The blocks that the plan's columns name: initial states, and stored ones."""
        every = np.arange(len(plan.initial_column), dtype=np.int32)
        return (
            self._blocks(block_table, every, plan.initial_column),
            self._blocks(block_table, plan.chunk_row, plan.chunk_column),
        )

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

    def _sent(self, values: Ints | npt.NDArray[np.bool_]) -> Tensor:
        """A host array on the device."""
        made = torch.as_tensor(values)
        return made if self._on_host else made.pin_memory().to(self.device, non_blocking=True)


def _first_column(block_table: Tensor) -> Tensor:
    """The first column, contiguous; the table itself where it has no other."""
    return block_table.view(-1) if block_table.shape[1] == 1 else block_table.select(1, 0).contiguous()


def _num_leading(flags: npt.NDArray[np.bool_]) -> int:
    """How many flags are set before the first that is not."""
    first = int(flags.argmin()) if len(flags) else 0
    return len(flags) if len(flags) and flags[first] else first
