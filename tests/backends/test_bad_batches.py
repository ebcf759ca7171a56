"""Every attention back end on batches that are odd or wrong: the right result or a clear error, never a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import latent_rigs
import pytest
import rig_base
import torch
from attention_batches import make_batch
from backend_rigs import RIGS
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_batches import (
    ODD,
    STALE,
    WRONG,
    Change,
    block_negative,
    block_too_large,
    fewer_lengths,
    fewer_tokens,
    generous_bounds,
    longer_query,
    negative_length,
    padded,
    shuffled,
    slot_too_large,
    strided_rows,
)
from rig_base import M, Rig, Route, S, Shape, built
from torch import Tensor

from genericbuilders.backends.mla import MLAInputs
from genericbuilders.builder import AttentionMetadataBuilder
from genericbuilders.kernels.tolerance import compare
from genericbuilders.metadata import CommonAttentionMetadata

DTYPES = (torch.float32, torch.float64)
Rows = Sequence[tuple[int, int]]
MIXES: dict[str, Rows] = {"decodes": [(1, 14), (1, 6), (1, 3)], "mixed": [(3, 12), (1, 3), (5, 4)]}

by_rig = pytest.mark.parametrize("rig", RIGS, ids=lambda rig: rig.name)
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=("native", "portable"))


def batch(rig: Rig, rows: Rows, block_size: int) -> CommonAttentionMetadata:
    """Rows of new and old tokens; an encoder has no old ones."""
    kept = [(new, 0 if rig.name.startswith("encoder_only") else old) for new, old in rows]
    return make_batch([new for new, _ in kept], [old for _, old in kept], block_size)


def check(
    rig: Rig,
    common: CommonAttentionMetadata,
    clean: CommonAttentionMetadata,
    shape: Shape,
    seed: int = 0,
    route: Route = built,
) -> None:
    """``common`` gives for the tokens of ``clean`` what those must give, and zeros behind them."""
    got = rig.run(common, clean, shape, seed, route)
    exact, working = (rig.expect(clean, shape, dtype, seed) for dtype in (torch.float64, shape.dtype))
    tokens = clean.num_actual_tokens
    comparison = compare(got[:tokens], working[:tokens], exact[:tokens])
    assert comparison.passed, comparison
    nothing = -1.0 if rig.name == "indexer" else 0.0
    assert bool((got[tokens:] == nothing).all())


@by_rig
@settings(max_examples=6, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=5).filter(
        lambda rows: sum(new for new, _ in rows) <= 40
    ),
    block_size=st.sampled_from([1, 2, 4, 8, 7, 16]),
    dtype=st.sampled_from(DTYPES),
    heads=st.sampled_from([(4, 2, 16), (3, 1, 9), (2, 2, 17), (5, 5, 33)]),
    columns=st.sampled_from([0, 1, 300]),
    padding=st.sampled_from([(0, 0), (2, 3), (0, 4)]),
    seed=st.integers(0, 99),
)
def test_any_batch_gives_what_the_oracle_does(
    rig: Rig,
    rows: Rows,
    block_size: int,
    dtype: torch.dtype,
    heads: tuple[int, int, int],
    columns: int,
    padding: tuple[int, int],
    seed: int,
) -> None:
    """Blocks in any order, garbage behind them, padding behind the rows, and NaN wherever nothing is stored."""
    shape = Shape(block_size, dtype, *heads)
    if not rig.takes(shape):
        shape = replace(shape, block_size=4, head_size=16)
    clean = shuffled(batch(rig, rows, shape.block_size), shape.block_size, columns, seed)
    clean = replace(
        clean, block_table_tensor=torch.where(clean.block_table_tensor == STALE, 0, clean.block_table_tensor)
    )
    common = shuffled(batch(rig, rows, shape.block_size), shape.block_size, columns, seed)
    check(rig, padded(common, *padding, stale=0), clean, shape, seed)


HARMLESS = {
    *(("encoder_only", change) for change in WRONG if change not in (fewer_tokens, longer_query)),
    ("cross", slot_too_large),
    ("mla", block_too_large),
    ("mla", block_negative),
    ("mla-drafts", block_too_large),
    ("mla-drafts", block_negative),
    ("mla_sparse", negative_length),
    ("mla_sparse", fewer_lengths),
    ("mla_sparse-drafts", fewer_lengths),
}
"""What is wrong, but not read: caches that there are none of, blocks and slots of tokens that come with the batch."""


def right_or_refused(
    rig: Rig,
    change: Change,
    clean: CommonAttentionMetadata,
    shape: Shape,
) -> bool:
    """Whether a changed batch ran, and gave what it must; it may be refused by a sentence of ours instead."""
    try:
        check(rig, change(clean), clean, shape)
    except (ValueError, TypeError):
        return False
    return True


@by_rig
@by_dtype
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("change", WRONG)
def test_wrong_batches_are_refused(change: Change, mix: str, dtype: torch.dtype, rig: Rig) -> None:
    """Or are right, where what is wrong is not read, as the cache of tokens that come with the batch."""
    if change is longer_query and (mix == "decodes" or rig.name.startswith("cross")):
        pytest.skip("a sequence of no length sees nothing; an encoder's output may be shorter than a request")
    shape = Shape(4, dtype)
    ran = right_or_refused(rig, change, batch(rig, MIXES[mix], 4), shape)
    assert not ran or (rig.name.removesuffix("-scored"), change) in HARMLESS


@by_rig
@by_dtype
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("change", ODD)
def test_odd_batches_are_right_or_refused(change: Change, mix: str, dtype: torch.dtype, rig: Rig) -> None:
    """Integers of another width, tensors with gaps, padding behind stale buffers, bounds that nothing reaches."""
    ran = right_or_refused(rig, change, batch(rig, MIXES[mix], 4), Shape(4, dtype))
    assert ran or change not in (strided_rows, generous_bounds)


@by_rig
def test_a_sequence_of_no_length_gives_nothing_or_is_refused(rig: Rig) -> None:
    """As a graph's dummy batch has them."""
    lengths, starts = torch.zeros(2, dtype=torch.int32), torch.tensor([0, 1, 2], dtype=torch.int32)
    clean = batch(rig, [(1, 20), (1, 0)], 4)
    common = replace(clean, seq_lens=lengths, seq_lens_cpu=lengths, query_start_loc=starts, query_start_loc_cpu=starts)
    for max_seq_len in (0, 20):
        try:
            got = rig.run(replace(common, max_seq_len=max_seq_len), clean, Shape())
        except ValueError:
            assert rig.name.startswith(("chunked_local", "cross", "sink-3", "mla_sparse"))
            continue
        nothing = -1.0 if rig.name == "indexer" else 0.0
        # An encoder has no lengths; what a sparse layer reads is selected, here for the batch as it was.
        assert rig.name.startswith(("encoder_only", "mla_sparse")) or bool((got == nothing).all())


def moved(builder: AttentionMetadataBuilder[M, S], common: CommonAttentionMetadata) -> M:
    """Built for another group of layers, all in the null block, then given this one's blocks and slots."""
    other = replace(
        common,
        block_table_tensor=torch.zeros_like(common.block_table_tensor),
        slot_mapping=torch.full_like(common.slot_mapping, -1),
    )
    return builder.update_block_table(builder.build(0, other), common.block_table_tensor, common.slot_mapping)


def drafted(builder: AttentionMetadataBuilder[M, S], common: CommonAttentionMetadata) -> M:
    """As a draft model's first step."""
    return builder.build_for_drafting(common, 0)


def captured(builder: AttentionMetadataBuilder[M, S], common: CommonAttentionMetadata) -> M:
    """As a graph is captured."""
    return builder.build_for_cudagraph_capture(common)


@by_rig
@by_dtype
@pytest.mark.parametrize("mix", MIXES)
def test_each_way_to_metadata_gives_what_building_does(mix: str, dtype: torch.dtype, rig: Rig) -> None:
    shape, clean = Shape(4, dtype), batch(rig, MIXES[mix], 4)
    expected = rig.run(clean, clean, shape)
    assert torch.equal(rig.run(clean, clean, shape, route=drafted), expected)
    assert torch.equal(rig.run(clean, clean, shape, route=captured), expected)
    if rig.name.startswith("chunked_local") or rig.name.startswith("encoder_only"):
        # Virtual rows have tables of their own; an encoder has none.
        with pytest.raises(NotImplementedError, match=r"call build\(\) for the group"):
            rig.run(clean, clean, shape, route=moved)
    else:
        assert torch.equal(rig.run(clean, clean, shape, route=moved), expected)


Inputs = tuple[Tensor, Tensor, Tensor]


def one_kv_head(query: Tensor, key: Tensor, value: Tensor) -> Inputs:
    """One key-value head, which an assignment would spread over two."""
    return query, key[:, :1], value[:, :1]


def one_value_head(query: Tensor, key: Tensor, value: Tensor) -> Inputs:
    """One head of values."""
    return query, key, value[:, :1]


def one_element(query: Tensor, key: Tensor, value: Tensor) -> Inputs:
    """Heads of one element, which an assignment would spread over all."""
    return query, key[..., :1], value[..., :1]


def one_value(query: Tensor, key: Tensor, value: Tensor) -> Inputs:
    """The value of one token."""
    return query, key, value[:1]


def small_heads(query: Tensor, key: Tensor, value: Tensor) -> Inputs:
    """Heads of another layer."""
    return query[..., :8], key[..., :8], value[..., :8]


def odd_heads(query: Tensor, key: Tensor, value: Tensor) -> Inputs:
    """Query heads that key-value heads do not divide."""
    return query[:, :3], key, value


def bytes_for_numbers(query: Tensor, key: Tensor, value: Tensor) -> Inputs:
    """A dtype that no kernel has."""
    return query.char(), key.char(), value.char()


@pytest.mark.parametrize(
    "rig", [rig for rig in RIGS if "mla" not in rig.name and not rig.name.startswith(("cross", "indexer"))]
)
@by_dtype
@pytest.mark.parametrize(
    "change", [one_kv_head, one_value_head, one_element, one_value, small_heads, odd_heads, bytes_for_numbers]
)
def test_inputs_of_other_heads_or_dtypes_are_refused(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor, Tensor, Tensor], Inputs], dtype: torch.dtype, rig: Rig
) -> None:
    given = rig_base.inputs_of
    clean, shape = batch(rig, MIXES["mixed"], 4), Shape(4, dtype)

    def changed(common: CommonAttentionMetadata, shape: Shape, seed: int) -> Inputs:
        return change(*given(common, shape, seed))

    monkeypatch.setattr("backend_rigs.inputs_of", changed)
    with pytest.raises((ValueError, TypeError), match=r"head|dtype|tokens|take"):
        rig.run(clean, clean, shape)


@pytest.mark.parametrize("rig", [rig for rig in RIGS if "mla" in rig.name])
@pytest.mark.parametrize("field", ["query", "latent", "kv_up"])
def test_latents_of_another_layer_are_refused(monkeypatch: pytest.MonkeyPatch, field: str, rig: Rig) -> None:
    """One head, or one element, which sums would spread over all."""
    given = latent_rigs.latent_inputs
    clean = batch(rig, MIXES["mixed"], 4)

    def changed(common: CommonAttentionMetadata, shape: Shape, seed: int) -> MLAInputs:
        inputs = given(common, shape, seed)
        parts = {"query": inputs.query[:, :1], "latent": inputs.latent[:, :1], "kv_up": inputs.kv_up[:1]}
        return replace(inputs, **{field: parts[field]})

    monkeypatch.setattr(latent_rigs, "latent_inputs", changed)
    with pytest.raises(ValueError, match="the layer wants"):
        rig.run(clean, clean, Shape())


@by_rig
@pytest.mark.parametrize("head_size", [257, 1])
def test_any_head_size_is_right_or_refused(head_size: int, rig: Rig) -> None:
    shape = Shape(4, head_size=head_size)
    assert right_or_refused(rig, lambda common: common, batch(rig, MIXES["mixed"], 4), shape) or not rig.takes(shape)
