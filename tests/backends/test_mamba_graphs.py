"""State-space builders used more than once: what graphs read, and batches of different kinds one behind the other."""

from __future__ import annotations

import pytest
import torch
from state_batches import bind_state, block_of, counts, ints, state_batch, state_spec

from genericbuilders.adapter import Step
from genericbuilders.backends.gdn import GDN
from genericbuilders.backends.mamba2 import MAMBA2
from genericbuilders.specs import MambaSpec


def test_case_13_padded_decodes_of_another_group_stand_in_its_own_buffer() -> None:
    first, second = bind_state(MAMBA2, state_spec()).builder, bind_state(MAMBA2, state_spec()).builder
    batch = state_batch([(1, 5)] * 3, padding=5, padded_tokens=True)
    other = torch.where(batch.block_table_tensor != 0, batch.block_table_tensor + 10_000, 0)
    anew = second.build(0, batch.for_group(other, batch.slot_mapping)).rows.initial_state
    address, blocks = anew.data_ptr(), ints(anew)
    moved = second.update_block_table(first.build(0, batch), other, batch.slot_mapping).rows
    assert moved.initial_state.data_ptr() == moved.chunk_state.data_ptr() == address
    assert ints(moved.initial_state) == blocks == [*[block_of(row, 0) + 10_000 for row in range(3)], *[0] * 5]


def test_padded_decodes_of_a_graph_keep_their_addresses() -> None:
    builder = bind_state(MAMBA2, state_spec()).builder
    one = builder.build(0, state_batch([(1, 5)] * 3, padding=5, padded_tokens=True))
    two = builder.build(0, state_batch([(1, 5)] * 7, padding=1, padded_tokens=True))
    assert one.rows.initial_state.data_ptr() == two.rows.initial_state.data_ptr()
    assert one.rows.num_rows == two.rows.num_rows == two.rows.num_tokens == 8
    assert ints(two.rows.initial_state) == [*[block_of(row, 0) for row in range(7)], 0]


def test_a_graph_holds_no_rows_longer_than_its_candidates() -> None:
    group = bind_state(MAMBA2, state_spec())
    step = Step()
    group.build_for_cudagraph_capture(state_batch([(1, 5)]), step)
    assert group.metadata(step).num_decodes == 1
    with pytest.raises(ValueError, match="one token a row; the batch to capture has rows of 4"):
        group.build_for_cudagraph_capture(state_batch([(4, 5)]), step)


def test_case_16_one_builder_takes_the_mixes_one_behind_the_other() -> None:
    builder = bind_state(GDN, state_spec(num_speculative=3)).builder
    found = [
        counts(builder.build(0, state_batch(rows, accepted=[1] * len(rows), drafts=drafts)))
        for rows, drafts in (([(4, 9), (2, 5)], [3, 1]), ([(1, 9)], [-1]), ([(4, 5), (6, 0), (1, 4)], [3, -1, -1]))
    ]
    assert found == [(0, 0, 2), (1, 0, 0), (1, 1, 1)]


@pytest.mark.parametrize("spec", [state_spec("align"), state_spec(num_speculative=2)])
def test_what_is_not_promised_is_not_captured(spec: MambaSpec) -> None:
    with pytest.raises(ValueError, match="is not captured with speculative states, or in the mode"):
        bind_state(GDN, spec).builder.build_for_cudagraph_capture(state_batch([(1, 5)]))
