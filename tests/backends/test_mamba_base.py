"""The builder that all state-space back ends share: which states a batch reads and stores, and how its rows are counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from state_batches import CHUNK, CPU, Told, bind_state, block_of, counts, expected, ints, state_batch, state_spec, tell
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.adapter import StateAdapter
from genericbuilders.backends import mamba_base, state_plan
from genericbuilders.backends.bailing_linear import BAILING_LINEAR
from genericbuilders.backends.gdn import GDN
from genericbuilders.backends.linear import LINEAR
from genericbuilders.backends.mamba1 import MAMBA1
from genericbuilders.backends.mamba2 import MAMBA2
from genericbuilders.backends.mamba_base import BaseMambaMetadata, BaseMambaMetadataBuilder
from genericbuilders.backends.short_conv import SHORT_CONV
from genericbuilders.backends.state_plan import ChunkPlan
from genericbuilders.config import EngineConfig, StateLayerConfig
from genericbuilders.kernels.ints import Ints
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaCacheMode, MambaSpec

M = TypeVar("M", bound=BaseMambaMetadata)
X = TypeVar("X")

Build = Callable[[MambaSpec, CommonAttentionMetadata], BaseMambaMetadata]


def building(adapter: StateAdapter[M, MambaSpec, X], chunk_size: int = CHUNK) -> Build:
    """The back end's ``build()``, bound anew for each spec."""
    return lambda spec, batch: bind_state(adapter, spec, chunk_size).builder.build(0, batch)


FAMILY: Sequence[Build] = (
    building(MAMBA1),
    building(MAMBA2),
    building(GDN),
    building(LINEAR),
    building(BAILING_LINEAR),
    building(SHORT_CONV),
)
Rows = Sequence[tuple[int, int]]

ROW = st.tuples(st.integers(0, 20), st.integers(0, 40))
DECODE = st.tuples(st.just(1), st.integers(1, 40))
MIXED = st.tuples(st.lists(DECODE, max_size=3), st.lists(ROW, min_size=1, max_size=3)).map(
    lambda two: [*two[0], *two[1]]
)
ROWS = st.lists(ROW, min_size=1, max_size=6) | st.lists(DECODE, min_size=1, max_size=6) | MIXED


def nonempty(rows: Rows) -> bool:
    return any(new for new, _ in rows)


@given(
    rows=ROWS.filter(nonempty),
    mode=st.sampled_from(("none", "align", "all")),
    block_size=st.sampled_from((1, 3, 4, 8)),
    padding=st.integers(0, 3),
    chunk_size=st.sampled_from((1, 4, 6)),
)
def test_states_are_read_and_stored_where_the_mode_says(
    rows: Rows, mode: MambaCacheMode, block_size: int, padding: int, chunk_size: int
) -> None:
    spec = state_spec(mode, block_size)
    batch = state_batch(rows, padding=padding)
    builds: Sequence[Build] = (building(MAMBA1), building(MAMBA2, chunk_size))
    for build in builds:
        built = build(spec, batch)
        assert tell(built.rows) == [*expected(rows, spec), *[Told(0, {})] * padding]
        decodes, prefills, speculative = counts(built)
        assert (decodes + prefills, speculative) == (sum(new > 0 for new, _ in rows), 0)
        assert built.num_decode_tokens + built.num_prefill_tokens == built.num_actual_tokens
        assert all(new == 1 and old for new, old in rows[:decodes])
        on_host = built.rows.query_start_loc_cpu
        if on_host is None:
            assert built.rows.max_chunk_len == 1, "only rows that a graph may hold need no lengths on the host"
        else:
            assert torch.equal(on_host, built.rows.query_start_loc)


@given(
    rows=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 30), st.integers(1, 7), st.booleans()), min_size=1),
    padding=st.integers(0, 2),
)
def test_speculative_rows_store_every_candidate(rows: list[tuple[int, int, int, bool]], padding: int) -> None:
    plain = [(new, old) for new, old, _, _ in rows]
    if not nonempty(plain):
        return
    accepted = [kept for _, _, kept, _ in rows]
    # A row that continues a state may carry drafts; a prompt never does.
    drafts = [new - 1 if draft and old and new else -1 for new, old, _, draft in rows]
    spec = state_spec(num_speculative=6)
    batch = state_batch(plain, accepted=accepted, drafts=drafts, padding=padding)
    built = bind_state(GDN, spec).builder.build(0, batch)
    assert tell(built.rows) == [*expected(plain, spec, accepted, drafts), *[Told(0, {})] * padding]
    assert sum(counts(built)) == sum(new > 0 for new, _ in plain)
    assert built.num_spec_decodes == sum(draft >= 0 for draft in drafts)
    tokens = built.num_decode_tokens + built.num_prefill_tokens + built.num_spec_decode_tokens
    assert tokens == built.num_actual_tokens


@given(rows=ROWS.filter(nonempty), mode=st.sampled_from(("none", "align", "all")), padding=st.integers(0, 2))
def test_case_13_another_group_gets_blocks_of_its_own_table(rows: Rows, mode: MambaCacheMode, padding: int) -> None:
    batch = state_batch(rows, padding=padding)
    check_moved(MAMBA1, mode, batch)
    check_moved(MAMBA2, mode, batch)


def check_moved(adapter: StateAdapter[M, MambaSpec, X], mode: MambaCacheMode, batch: CommonAttentionMetadata) -> None:
    other = torch.where(batch.block_table_tensor != 0, batch.block_table_tensor + 10_000, 0)
    first, second = bind_state(adapter, state_spec(mode)), bind_state(adapter, state_spec(mode))
    made = first.builder.build(0, batch)
    moved = second.update_block_table(made, other, batch.slot_mapping)
    anew = second.builder.build(0, batch.for_group(other, batch.slot_mapping))
    assert tell(moved.rows) == tell(anew.rows)
    for mine, theirs in (
        (moved.rows.initial_state, made.rows.initial_state),
        (moved.rows.chunk_state, made.rows.chunk_state),
    ):
        assert torch.equal(mine, torch.where(theirs != 0, theirs + 10_000, 0))
        assert mine.data_ptr() != theirs.data_ptr() or not len(mine)


def test_case_06_a_prompt_as_long_as_a_speculative_row_starts_empty() -> None:
    spec = state_spec(num_speculative=3)
    batch = state_batch([(4, 0), (4, 9)], accepted=[1, 2], drafts=[-1, 3])
    built = bind_state(GDN, spec).builder.build(0, batch)
    assert counts(built) == (0, 1, 1)
    prompt, decode = tell(built.rows)
    assert prompt == Told(0, {4: block_of(0, 0)})
    assert decode == Told(block_of(1, 1), {5 + index: block_of(1, index) for index in range(4)})


def test_case_06_a_prompt_of_one_token_is_no_decode() -> None:
    for build in FAMILY:
        built = build(state_spec(), state_batch([(1, 5), (1, 0)]))
        assert counts(built) == (1, 1, 0)
        assert tell(built.rows) == [Told(block_of(0, 0), {1: block_of(0, 0)}), Told(0, {2: block_of(1, 0)})]


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        ([(1, 3)] * 6 + [(20, 0), (30, 4)], (6, 50)),
        ([(1, 3)] * 6, (6, 0)),
        ([(20, 0), (30, 4)], (0, 50)),
    ],
    ids=("mixed", "decodes", "prefills"),
)
def test_case_15_a_batch_is_split_in_tokens(rows: Rows, sizes: tuple[int, int]) -> None:
    check_split(rows, sizes)


def check_split(rows: Rows, sizes: tuple[int, int]) -> None:
    for build in FAMILY:
        built = build(state_spec(), state_batch(rows))
        assert (built.num_decode_tokens, built.num_prefill_tokens) == sizes
        assert len(built.state_indices_tensor_d) == built.num_decodes
        assert len(built.state_indices_tensor_p) == built.num_prefills
        starts = built.query_start_loc_p
        assert (0 if starts is None else int(starts[-1])) == sizes[1]


@pytest.mark.parametrize(
    ("rows", "drafts", "classes"),
    [
        ([(4, 9), (2, 5)], [3, 1], (0, 0, 2)),
        ([(1, 9), (1, 5)], [-1, -1], (2, 0, 0)),
        ([(1, 9), (4, 5), (6, 0), (1, 4)], [-1, 3, -1, -1], (2, 1, 1)),
    ],
    ids=("speculative", "decodes", "all"),
)
def test_case_16_every_mix_of_classes_builds(rows: Rows, drafts: list[int], classes: tuple[int, int, int]) -> None:
    check_classes(rows, drafts, classes)


def check_classes(rows: Rows, drafts: list[int], classes: tuple[int, int, int]) -> None:
    group = bind_state(GDN, state_spec(num_speculative=3))
    built = group.builder.build(0, state_batch(rows, accepted=[1] * len(rows), drafts=drafts))
    assert counts(built) == classes
    assert sum(classes) == len(rows)


def test_case_17_six_speculative_tokens() -> None:
    spec = state_spec(num_speculative=6)
    built = bind_state(GDN, spec).builder.build(0, state_batch([(7, 20)], accepted=[7], drafts=[6]))
    assert tell(built.rows) == [Told(block_of(0, 6), {1 + index: block_of(0, index) for index in range(7)})]


def test_case_11_a_block_gets_the_state_at_its_own_end_whatever_the_pieces() -> None:
    spec = state_spec("all", block_size=2048)
    for pieces in ([1866, 1160], [3026], [2048, 978], [2047, 1, 978]):
        stored: dict[int, int] = {}
        done = 0
        for piece in pieces:
            layer = StateLayerConfig(spec.shapes, spec.dtypes, 256)
            config = EngineConfig(max_model_len=4096, layers={"l0": layer})
            group = MAMBA2.bind(spec, [MAMBA2.layer("l0", layer)], config, CPU)
            (told,) = tell(group.builder.build(0, state_batch([(piece, done)])).rows)
            # The last state that a block got, as the number of tokens that it stands for.
            stored |= {block: done + tokens for tokens, block in told.stores.items()}
            done += piece
        assert stored == {block_of(0, 0): 2048, block_of(0, 1): 3026}, pieces


def test_case_14_blocks_that_are_no_multiple_of_the_chunk_are_cut_where_both_end() -> None:
    spec = state_spec("all", block_size=100)
    layer = StateLayerConfig(spec.shapes, spec.dtypes, 64)
    config = EngineConfig(max_model_len=512, layers={"l0": layer})
    group = MAMBA2.bind(spec, [MAMBA2.layer("l0", layer)], config, CPU)
    built = group.builder.build(0, state_batch([(250, 30)]))
    assert tell(built.rows) == expected([(250, 30)], spec)
    ends = {30 + int(end) for end in built.cu_chunk_seqlen}
    assert {64, 100, 128, 192, 200, 256, 280} <= ends


def test_chunks_stand_at_the_same_places_however_a_prompt_is_fed() -> None:
    group = bind_state(MAMBA2, state_spec(), chunk_size=4)
    built = group.builder.build(0, state_batch([(1, 9), (6, 3), (5, 0), (3, 8)]))
    assert ints(built.cu_chunk_seqlen) == [0, 1, 2, 6, 7, 11, 12, 15]
    assert ints(built.seq_idx) == [0, 1, 1, 1, 2, 2, 3]
    assert ints(built.last_chunk_indices) == [0, 3, 5, 6]
    assert built.seq_idx_p is not None
    assert built.cu_chunk_seqlen_p is not None
    assert built.last_chunk_indices_p is not None
    assert ints(built.cu_chunk_seqlen_p) == [0, 1, 5, 6, 10, 11, 14]
    assert ints(built.seq_idx_p) == [0, 0, 0, 1, 1, 2]
    assert ints(built.last_chunk_indices_p) == [2, 4, 5]
    assert built.prep_initial_states


@pytest.mark.parametrize("stale", [0, 1, 7])
@pytest.mark.parametrize("padded_tokens", [0, 1])
def test_padding_is_neutral_whatever_stands_in_the_buffers(stale: int, padded_tokens: int) -> None:
    check_padding(stale, padded_tokens)


def check_padding(stale: int, padded_tokens: int) -> None:
    rows = [(1, 5), (1, 9)]
    for build in FAMILY:
        for more in ([], [(3, 0)]):
            batch = state_batch([*rows, *more], padding=3, padded_tokens=padded_tokens, stale=stale)
            built = build(state_spec(), batch)
            assert counts(built) == (2, len(more), 0)
            assert tell(built.rows)[-3:] == [Told(0, {})] * 3
            assert tell(built.rows)[:-3] == expected([*rows, *more], state_spec())


LAYER = StateLayerConfig(state_spec().shapes, state_spec().dtypes, CHUNK)
CONFIG = EngineConfig(max_model_len=8, layers={"l0": LAYER})


def test_states_of_other_shapes_than_the_layers_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"layer 'l0' keeps states of shapes \(\(3, 5\), .* but its cache is made for \(\(9,"
    ):
        MAMBA2.bind(state_spec(shapes=((9, 5), (2, 3, 4))), [MAMBA2.layer("l0", LAYER)], CONFIG, CPU)


@pytest.mark.parametrize(
    ("adapter", "shapes", "told"),
    [
        (SHORT_CONV, ((3, 5), (2, 3, 5)), r"needs 1 tensor: \[conv_width - 1, dim\]"),
        (MAMBA1, ((3, 5),), r"needs 2 tensors: \[conv_width - 1, dim\], \[dim, state_size\]"),
        (GDN, ((3, 5), (3, 4)), r"\[num_value_heads, value_dim, key_dim\]"),
    ],
)
def test_states_that_a_back_end_cannot_unpack_are_refused_when_bound(
    adapter: StateAdapter[M, MambaSpec, X], shapes: tuple[tuple[int, ...], ...], told: str
) -> None:
    with pytest.raises(ValueError, match=rf"layers \['l0'\] keep states of shapes .*{told}"):
        bind_state(adapter, state_spec(shapes=shapes))


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64, torch.float8_e4m3fn])
def test_states_in_dtypes_that_no_kernel_has_are_refused_when_bound(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=rf"\['l0'\] keep states in {dtype}; the kernels have torch.float32, torch.bf"):
        bind_state(MAMBA1, MambaSpec(8, ((4, 5), (5, 4)), (dtype, torch.float16)))


@dataclass
class MarkedMetadata(BaseMambaMetadata):
    mark: int


class MarkedMetadataBuilder(BaseMambaMetadataBuilder[MarkedMetadata]):
    @property
    @override
    def metadata_type(self) -> type[MarkedMetadata]:
        return MarkedMetadata


def test_metadata_that_build_cannot_make_is_refused_when_bound() -> None:
    with pytest.raises(TypeError, match="MarkedMetadata adds fields without defaults to BaseMambaMetadata: mark; give"):
        MarkedMetadataBuilder(state_spec(), ["l0"], CONFIG, CPU)


def test_speculation_needs_the_mode_none() -> None:
    spec = state_spec("align", num_speculative=2)
    with pytest.raises(ValueError, match=r"keep 2 speculative states in the mode 'align'"):
        GDN.bind(spec, [GDN.layer("l0", LAYER)], CONFIG, CPU)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (state_batch([(2, 4)], accepted=[9], drafts=[1]), "row 0 has 9 accepted tokens; .* it must be 1 to 4"),
        (state_batch([(6, 4)], accepted=[1], drafts=[5]), "row 0 carries 6 candidates; .* there can be 4"),
        (state_batch([(4, 4)], accepted=[1], drafts=[1]), "row 0 has 4 tokens and 1 drafts"),
        (state_batch([(4, 9)], drafts=[3]), "row 0 continues one of 4 states, but common.inputs does not say which"),
    ],
)
def test_impossible_speculation_is_refused(batch: CommonAttentionMetadata, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bind_state(GDN, state_spec(num_speculative=3)).builder.build(0, batch)


def test_a_table_too_narrow_for_a_state_is_refused() -> None:
    group = bind_state(MAMBA1, state_spec("align", block_size=4))
    with pytest.raises(ValueError, match="row 0 has its state in column 2, but the block table has 2 columns"):
        group.builder.build(0, state_batch([(1, 10)], columns=2))


def wrong_start(
    spec: MambaSpec, loc: Ints, computed: Ints, step: int, accepted: Ints | None, drafts: npt.NDArray[np.bool_] | None
) -> ChunkPlan:
    plan = state_plan.plan_chunks(spec, loc, computed, step, accepted, drafts)
    return replace(plan, initial_column=np.maximum(plan.initial_column, 0))


def stored_at_the_end_only(spec: MambaSpec, chunk_size: int | None) -> int:
    return state_plan.UNCHUNKED


def kernel_s_chunk(spec: MambaSpec, chunk_size: int | None) -> int:
    return chunk_size or state_plan.UNCHUNKED


def first_group_s_blocks(builder: object, metadata: BaseMambaMetadata, *rest: Tensor) -> BaseMambaMetadata:
    return metadata


def split_behind_two(flags: Ints) -> int:
    return min(len(flags), 2)


def no_speculation(common: CommonAttentionMetadata, num_speculative: int) -> tuple[None, None]:
    return None, None


def no_row_is_empty(values: Ints) -> int:
    return len(values)


def at_most_four(common: CommonAttentionMetadata, num_speculative: int) -> tuple[None, None]:
    raise ValueError("more than 4 candidates")


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        ((mamba_base, "plan_chunks", wrong_start), test_case_06_a_prompt_as_long_as_a_speculative_row_starts_empty),
        (
            (mamba_base, "chunk_step", stored_at_the_end_only),
            test_case_11_a_block_gets_the_state_at_its_own_end_whatever_the_pieces,
        ),
        (
            (BaseMambaMetadataBuilder, "update_block_table", first_group_s_blocks),
            partial(check_moved, MAMBA1, "none", state_batch([(1, 5)])),
        ),
        (
            (mamba_base, "chunk_step", kernel_s_chunk),
            test_case_14_blocks_that_are_no_multiple_of_the_chunk_are_cut_where_both_end,
        ),
        ((mamba_base, "_num_leading", split_behind_two), partial(check_split, [(1, 3)] * 6 + [(20, 0)], (6, 20))),
        (
            (mamba_base, "read_speculation", no_speculation),
            partial(check_classes, [(4, 9), (2, 5)], [3, 1], (0, 0, 2)),
        ),
        ((mamba_base, "read_speculation", at_most_four), test_case_17_six_speculative_tokens),
        ((np, "count_nonzero", no_row_is_empty), partial(check_padding, 7, padded_tokens=0)),
    ],
    ids=("06", "11", "13", "14", "15", "16", "17", "padding"),
)
def test_each_check_fails_for_a_wrong_builder(
    spoil: tuple[object, str, object], check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    check()
    monkeypatch.setattr(*spoil)
    with pytest.raises((AssertionError, ValueError, BaseExceptionGroup)):
        check()
