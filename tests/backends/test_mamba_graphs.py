"""State-space builders used more than once: what graphs read, and batches of different kinds one behind the other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from state_batches import CPU, Told, bind_state, block_of, counts, expected, ints, state_batch, state_spec, tell

from genericbuilders.adapter import Adapter, Step
from genericbuilders.backends.bailing_linear import BAILING_LINEAR
from genericbuilders.backends.gdn import GDN
from genericbuilders.backends.linear import LINEAR
from genericbuilders.backends.mamba1 import MAMBA1
from genericbuilders.backends.mamba2 import MAMBA2
from genericbuilders.backends.short_conv import SHORT_CONV
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import EngineConfig
from genericbuilders.engine.dummy_batch import dummy_batch
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.specs import MambaCacheMode

SINGLE, UNIFORM = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE, AttentionCGSupport.UNIFORM_BATCH


def test_case_13_padded_decodes_of_another_group_stand_in_its_own_buffer() -> None:
    first, second = bind_state(MAMBA2, state_spec()).builder, bind_state(MAMBA2, state_spec()).builder
    batch = state_batch([(1, 5)] * 3, padding=5, padded_tokens=1)
    other = torch.where(batch.block_table_tensor != 0, batch.block_table_tensor + 10_000, 0)
    anew = second.build(0, batch.for_group(other, batch.slot_mapping)).rows.initial_state
    address, blocks = anew.data_ptr(), ints(anew)
    moved = second.update_block_table(first.build(0, batch), other, batch.slot_mapping).rows
    assert moved.initial_state.data_ptr() == moved.chunk_state.data_ptr() == address
    assert ints(moved.initial_state) == blocks == [*[block_of(row, 0) + 10_000 for row in range(3)], *[0] * 5]


def test_padded_decodes_of_a_graph_keep_their_addresses() -> None:
    builder = bind_state(MAMBA2, state_spec()).builder
    one = builder.build(0, state_batch([(1, 5)] * 3, padding=5, padded_tokens=1))
    two = builder.build(0, state_batch([(1, 5)] * 7, padding=1, padded_tokens=1))
    assert one.rows.initial_state.data_ptr() == two.rows.initial_state.data_ptr()
    assert one.rows.num_rows == two.rows.num_rows == two.rows.num_tokens == 8
    assert ints(two.rows.initial_state) == [*[block_of(row, 0) for row in range(7)], 0]


@pytest.mark.parametrize(
    ("drafts", "held", "support"), [(0, 0, SINGLE), (0, 2, SINGLE), (2, 2, UNIFORM), (3, 2, SINGLE)]
)
def test_a_graph_of_candidates_needs_a_state_for_each(drafts: int, held: int, support: AttentionCGSupport) -> None:
    config = EngineConfig(max_model_len=8, num_speculative_tokens=drafts)
    adapters: Sequence[Adapter] = (MAMBA1, MAMBA2, GDN, BAILING_LINEAR, SHORT_CONV)
    for adapter in adapters:
        assert adapter.cudagraph_support(config, state_spec(num_speculative=held)) is support
    assert LINEAR.cudagraph_support(config, state_spec(num_speculative=held)) is SINGLE


@pytest.mark.parametrize("mode", ["align", "all"])
def test_block_ends_are_no_hindrance_to_graphs_of_single_tokens(mode: MambaCacheMode) -> None:
    assert BAILING_LINEAR.cudagraph_support(EngineConfig(max_model_len=8), state_spec(mode)) is SINGLE


@given(
    rows=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 4)), min_size=1, max_size=6),
    num_drafts=st.integers(0, 3),
    padding=st.integers(0, 3),
    mode=st.sampled_from(("none", "align", "all")),
    block_size=st.sampled_from((1, 3, 8)),
)
def test_what_a_graph_reads_is_kept(
    rows: list[tuple[int, int]], num_drafts: int, padding: int, mode: MambaCacheMode, block_size: int
) -> None:
    """A uniform decode's tensors are the captured ones, and say of each row what any batch's tensors say."""
    held = 3 if mode == "none" else 0
    query_len = 1 + num_drafts if held else 1
    spec = state_spec(mode, block_size, num_speculative=held)
    total = len(rows) + padding
    config = EngineConfig(max_model_len=512, max_num_seqs=64, num_speculative_tokens=query_len - 1)
    group = bind_state(BAILING_LINEAR, spec)
    step = Step()
    group.build_for_cudagraph_capture(dummy_batch(config, spec, total, query_len, CPU), step)
    captured = group.metadata(step).rows
    assert tell(captured) == [Told(0, {})] * total

    plain = [(query_len, old) for old, _ in rows]
    accepted = [kept for _, kept in rows] if held else None
    drafts = [query_len - 1 or -1] * len(rows) if held else None
    batch = state_batch(plain, padding=padding, padded_tokens=query_len, accepted=accepted, drafts=drafts)
    built = group.builder.build(0, batch)
    assert addresses(built.rows) == addresses(captured)
    assert built.rows[:3] == captured[:3]
    assert tell(built.rows) == [*expected(plain, spec, accepted, drafts), *[Told(0, {})] * padding]
    assert counts(built) == ((0, 0, len(rows)) if query_len > 1 else (len(rows), 0, 0))
    assert built.num_actual_tokens == len(rows) * query_len


def addresses(rows: StateRows) -> list[int]:
    return [tensor.data_ptr() for tensor in rows[3:8]]


def test_case_13_candidates_of_another_group_stand_in_its_own_buffers() -> None:
    spec = state_spec(num_speculative=2)
    first, second = bind_state(BAILING_LINEAR, spec).builder, bind_state(BAILING_LINEAR, spec).builder
    batch = state_batch([(3, 5), (3, 9)], padding=2, padded_tokens=3, accepted=[1, 3], drafts=[2, 2])
    other = torch.where(batch.block_table_tensor != 0, batch.block_table_tensor + 10_000, 0)
    anew = second.build(0, batch.for_group(other, batch.slot_mapping)).rows
    told, kept = tell(anew), addresses(anew)
    moved = second.update_block_table(first.build(0, batch), other, batch.slot_mapping).rows
    assert tell(moved) == told
    assert addresses(moved)[1:] != addresses(first.build(0, batch).rows)[1:]
    assert [addresses(moved)[index] for index in (1, 4)] == [kept[index] for index in (1, 4)]
    assert told[1] == Told(block_of(1, 2) + 10_000, {4 + i: block_of(1, i) + 10_000 for i in range(3)})


@pytest.mark.parametrize(
    ("rows", "drafts"),
    [
        ([(3, 5), (3, 0)], [2, -1]),  # a prompt as long as the candidates
        ([(3, 5), (3, 6)], [2, -1]),  # a piece of a prompt as long as them
        ([(3, 5), (2, 6)], [2, 1]),
        ([(1, 5), (1, 0)], [-1, -1]),
    ],
)
def test_what_only_looks_uniform_is_no_graph_s(rows: list[tuple[int, int]], drafts: list[int]) -> None:
    spec = state_spec(num_speculative=2)
    built = bind_state(BAILING_LINEAR, spec).builder.build(0, state_batch(rows, accepted=[1, 1], drafts=drafts))
    assert built.plan is not None
    assert not built.plan.uniform
    assert tell(built.rows) == expected(rows, spec, [1, 1], drafts)


def test_a_graph_holds_no_rows_longer_than_its_candidates() -> None:
    group = bind_state(MAMBA2, state_spec())
    step = Step()
    group.build_for_cudagraph_capture(state_batch([(1, 5)]), step)
    assert group.metadata(step).num_decodes == 1
    with pytest.raises(ValueError, match="at most 1 tokens each; the batch to capture has rows of 4"):
        group.build_for_cudagraph_capture(state_batch([(4, 5)]), step)


def test_case_16_one_builder_takes_the_mixes_one_behind_the_other() -> None:
    builder = bind_state(GDN, state_spec(num_speculative=3)).builder
    found = [
        counts(builder.build(0, state_batch(rows, accepted=[1] * len(rows), drafts=drafts)))
        for rows, drafts in (([(4, 9), (2, 5)], [3, 1]), ([(1, 9)], [-1]), ([(4, 5), (6, 0), (1, 4)], [3, -1, -1]))
    ]
    assert found == [(0, 0, 2), (1, 0, 0), (1, 1, 1)]
