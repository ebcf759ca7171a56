"""The decaying scan (Mamba-2, lightning attention) and the gated delta rule: native and portable against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genericbuilders.kernels.state import portable_scan
from genericbuilders.kernels.state.rows import StateRows
from tests.kernels.state.rows_strategy import make_rows, named_blocks, paged_states, state_rows
from tests.kernels.state.scan_cases import (
    ScanInputs,
    ScanSizes,
    judge,
    judge_alone,
    judge_isolation,
    judge_pieces,
    make_inputs,
    random_states,
    scan_kernels,
)

NAMES = pytest.mark.parametrize("name", ["native", "portable"])
RULES = pytest.mark.parametrize("delta", [False, True], ids=["decay", "delta"])
SIZES = st.builds(
    ScanSizes,
    groups=st.integers(1, 2),
    heads=st.integers(1, 3),
    value=st.sampled_from([1, 4, 8, 21]),
    key=st.sampled_from([1, 5, 8, 16, 27]),
)
STRENGTHS = st.sampled_from([0.0, 0.1, 2.0, 100.0])
ROWS = state_rows(max_chunk_len=11)
FEW = ScanSizes(groups=1, heads=2, value=5, key=3)


@RULES
@NAMES
@given(drawn=ROWS, sizes=SIZES, strength=STRENGTHS, expanded=st.booleans(), seed=st.integers(0, 3))
def test_outputs_and_states(
    name: str, delta: bool, drawn: tuple[StateRows, int], sizes: ScanSizes, strength: float, expanded: bool, seed: int
) -> None:
    rows, num_blocks = drawn
    inputs = make_inputs(rows.num_tokens, sizes, delta=delta, strength=strength, expanded=expanded, seed=seed)
    judge(scan_kernels(name), inputs, random_states(num_blocks, sizes), rows)


@RULES
@NAMES
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@settings(max_examples=15)
@given(drawn=ROWS, sizes=SIZES)
def test_half_precision_activations(
    name: str, delta: bool, dtype: torch.dtype, drawn: tuple[StateRows, int], sizes: ScanSizes
) -> None:
    rows, num_blocks = drawn
    inputs = make_inputs(rows.num_tokens, sizes, delta=delta, dtype=dtype)
    judge(scan_kernels(name), inputs, random_states(num_blocks, sizes), rows)


@RULES
@settings(max_examples=15)
@given(drawn=ROWS, sizes=SIZES)
def test_portable_states_in_bfloat16(delta: bool, drawn: tuple[StateRows, int], sizes: ScanSizes) -> None:
    rows, num_blocks = drawn
    inputs = make_inputs(rows.num_tokens, sizes, delta=delta)
    judge(scan_kernels("portable"), inputs, random_states(num_blocks, sizes, torch.bfloat16), rows)


@RULES
@NAMES
@settings(max_examples=15)
@given(drawn=ROWS, sizes=SIZES)
def test_states_in_pages(name: str, delta: bool, drawn: tuple[StateRows, int], sizes: ScanSizes) -> None:
    rows, num_blocks = drawn
    shape = (sizes.groups * sizes.heads, sizes.value, sizes.key)
    states = paged_states(num_blocks, *shape)
    judge(scan_kernels(name), make_inputs(rows.num_tokens, sizes, delta=delta), states, rows)
    pages = torch.empty(0, dtype=torch.int8).set_(states.untyped_storage()).view(num_blocks, -1)
    assert bool((pages[:, 4 * states[0].numel() :] == 77).all())


@RULES
@NAMES
@pytest.mark.parametrize("strength", [0.01, 60.0])
def test_long_rows(name: str, delta: bool, strength: float) -> None:
    """Chunks of more than one piece, rows that end at different times, and every length of a step."""
    rows = make_rows(
        [[1], [90, 40], [150], [33, 1, 2], [], [7]], [0, 2, 0, 1, 3, 0], [[4], [5, 2], [0], [6, 0, 7], [], [8]]
    )
    for sizes in (ScanSizes(groups=1, heads=4, value=64, key=32), ScanSizes(groups=2, heads=1, value=20, key=70)):
        inputs = make_inputs(rows.num_tokens, sizes, delta=delta, strength=strength)
        judge(scan_kernels(name), inputs, random_states(10, sizes), rows)


@RULES
@NAMES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_decodes_than_a_cache_holds(name: str, delta: bool, dtype: torch.dtype) -> None:
    """Single tokens of more rows than are run at a time; some start empty, and padding stores nothing."""
    sizes = ScanSizes(groups=2, heads=2, value=128, key=128)
    inputs = make_inputs(11, sizes, delta=delta, dtype=dtype)
    rows = make_rows([[1]] * 11, [1, 2, 0, 4, 5, 6, 7, 8, 9, 0, 0], [[b] for b in (1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0)])
    assert rows.single_tokens
    assert rows.num_rows * random_states(1, sizes).numel() > 2 * portable_scan.CPU_STATES
    judge(scan_kernels(name), inputs, random_states(10, sizes), rows)


@RULES
@NAMES
@settings(max_examples=15)
@given(
    lengths=st.lists(st.one_of(st.integers(1, 9), st.integers(60, 70)), min_size=1, max_size=5),
    sizes=SIZES,
    continued=st.booleans(),
)
def test_pieces_are_the_whole(name: str, delta: bool, lengths: list[int], sizes: ScanSizes, continued: bool) -> None:
    inputs = make_inputs(sum(lengths), sizes, delta=delta)
    judge_pieces(scan_kernels(name), inputs, random_states(3, sizes), lengths, continued=continued)


@RULES
@NAMES
@settings(max_examples=15)
@given(drawn=ROWS, sizes=SIZES)
def test_rows_do_not_see_each_other(name: str, delta: bool, drawn: tuple[StateRows, int], sizes: ScanSizes) -> None:
    rows, num_blocks = drawn
    inputs = make_inputs(rows.num_tokens, sizes, delta=delta)
    judge_isolation(scan_kernels(name), inputs, random_states(num_blocks, sizes), rows)


@RULES
@settings(max_examples=15)
@given(drawn=ROWS, sizes=SIZES)
def test_native_rows_are_the_same_alone(delta: bool, drawn: tuple[StateRows, int], sizes: ScanSizes) -> None:
    rows, num_blocks = drawn
    inputs = make_inputs(rows.num_tokens, sizes, delta=delta)
    judge_alone(scan_kernels("native"), inputs, random_states(num_blocks, sizes), rows)


@RULES
def test_native_threads_do_not_change_results(delta: bool) -> None:
    sizes = ScanSizes(groups=1, heads=2, value=52, key=40)
    rows = make_rows([[40, 9], [1], [13]], [1, 0, 2], [[0, 1], [3], [4]])
    inputs, kernels = make_inputs(rows.num_tokens, sizes, delta=delta), scan_kernels("native")
    states = [random_states(5, sizes) for _ in range(3)]
    threads = torch.get_num_threads()
    try:
        outputs = list[torch.Tensor]()
        for number, kept in enumerate(states):
            torch.set_num_threads(number + 1)
            outputs.append(inputs.run(kernels, kept, rows))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    assert torch.equal(states[0], states[1])
    assert torch.equal(states[0], states[2])


@RULES
@NAMES
@pytest.mark.parametrize("length", [1, 6, 70])
@pytest.mark.parametrize("log_decay", [0.0, -50.0, -200.0, -1e30, -torch.inf])
def test_extreme_decays(name: str, delta: bool, length: int, log_decay: float) -> None:
    inputs = make_inputs(length, FEW, delta=delta)
    inputs = replace(
        inputs, log_decay=torch.where(torch.rand_like(inputs.log_decay) < 0.5, log_decay, inputs.log_decay)
    )
    judge(scan_kernels(name), inputs, random_states(3, FEW), make_rows([[length]], [1], [[2]]))


@RULES
@NAMES
def test_nothing_leaks_from_the_null_block(name: str, delta: bool) -> None:
    states = torch.full((4, 2, 5, 3), torch.nan)
    for rows in (make_rows([[1], [2], [4]], [0, 0, 0], [[0], [1], [2]]), make_rows([[1], [1]], [0, 0], [[3], [0]])):
        out = make_inputs(rows.num_tokens, FEW, delta=delta).run(scan_kernels(name), states, rows)
        assert bool(out.isfinite().all())
        assert bool(states[named_blocks(rows)].isfinite().all())
        assert bool(states[0].isnan().all())


@RULES
@NAMES
def test_a_later_chunk_of_a_row_wins_its_block(name: str, delta: bool) -> None:
    rows = make_rows([[2, 70, 1], [1, 1]], [1, 0], [[1, 1, 1], [2, 2]])
    judge(scan_kernels(name), make_inputs(75, FEW, delta=delta), random_states(4, FEW), rows)


@RULES
@NAMES
def test_chunks_without_tokens_store_what_there_is(name: str, delta: bool) -> None:
    rows = make_rows([[0, 3, 0], [2], [0]], [1, 0, 2], [[4, 5, 6], [7], [3]])
    judge(scan_kernels(name), make_inputs(5, FEW, delta=delta), random_states(8, FEW), rows)


@RULES
@NAMES
def test_padding_tokens_give_zeros(name: str, delta: bool) -> None:
    inputs, kernels = make_inputs(9, FEW, delta=delta), scan_kernels(name)
    for rows in (
        make_rows([[1], [1]], [0, 0], [[1], [2]]),
        make_rows([[2], [3]], [0, 0], [[1], [2]]),
        make_rows([[]], [0], [[]]),
        make_rows([], [], []),
    ):
        out = inputs.run(kernels, random_states(4, FEW), rows)
        assert out.shape == inputs.value.shape
        assert not out[int(rows.query_start_loc[-1]) :].any()
        padded = inputs.run(kernels, random_states(4, FEW), rows._replace(num_tokens=9))
        torch.testing.assert_close(padded, out)


@RULES
def test_native_takes_any_strides(delta: bool) -> None:
    rows, kernels = make_rows([[9]], [1], [[2]]), scan_kernels("native")
    inputs = make_inputs(9, FEW, delta=delta)
    turned = inputs.each(lambda tensor: tensor.mT.contiguous().mT)
    states, turned_states = random_states(3, FEW), random_states(3, FEW).transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(turned.run(kernels, turned_states, rows), inputs.run(kernels, states, rows))
    assert torch.equal(turned_states, states)


@RULES
@pytest.mark.parametrize("length", [1, 3])
def test_portable_reads_nothing_back_from_a_device(delta: bool, length: int) -> None:
    """A meta tensor has no numbers to read: whatever runs on it can be captured in a graph."""
    rows = make_rows([[length], [1]], [0, 1], [[0], [1]], device="meta")
    inputs = make_inputs(rows.num_tokens + 1, FEW, delta=delta).each(lambda tensor: tensor.to("meta"))
    out = inputs.run(scan_kernels("portable"), torch.empty(4, 2, 5, 3, device="meta"), rows)
    assert out.shape == inputs.value.shape


GOOD = make_rows([[2, 4]], [1], [[1, 2]])
ONE, DELTA = (make_inputs(6, FEW, delta=delta) for delta in (False, True))


def fewer_heads(inputs: ScanInputs) -> ScanInputs:
    beta = None if inputs.beta is None else torch.ones(6, 1)
    return replace(inputs, value=inputs.value[:, :1], log_decay=inputs.log_decay[:, :1], beta=beta)


BAD_TENSORS: Sequence[tuple[Callable[[ScanInputs], ScanInputs], type[Exception], str]] = [
    (lambda one: replace(one, query=one.query[:, :, :2]), ValueError, r"query is \(6, 1, 2\) and key \(6, 1, 3\)"),
    (lambda one: replace(one, value=one.value[:5]), ValueError, r"value is \(5, 2, 5\)"),
    (lambda one: replace(one, value=one.value[0]), ValueError, r"value is \(2, 5\)"),
    (lambda one: replace(one, log_decay=one.log_decay[:, :1]), ValueError, r"log_decay is \(6, 1\)"),
    (fewer_heads, ValueError, "made for another layer"),
    (
        lambda one: replace(one, query=one.query.expand(6, 3, 3), key=one.key.expand(6, 3, 3)),
        ValueError,
        "2 heads and query 3 gr",
    ),
    (lambda one: replace(one, value=one.value.int()), TypeError, "value is torch.int32"),
    (lambda one: replace(one, key=one.key.to("meta")), ValueError, "key is on meta"),
    (lambda one: one.tokens(slice(0, 5)), ValueError, "rows has 6 tokens and query 5"),
]


@NAMES
@RULES
@pytest.mark.parametrize(("spoil", "error", "says"), BAD_TENSORS)
def test_bad_tensors_are_refused(
    name: str, delta: bool, spoil: Callable[[ScanInputs], ScanInputs], error: type[Exception], says: str
) -> None:
    check_refused(name, spoil(DELTA if delta else ONE), GOOD, error, says)


@NAMES
@pytest.mark.parametrize(
    ("beta", "error", "says"),
    [
        (torch.ones(6, 3), ValueError, r"beta is \(6, 3\)"),
        (torch.ones(6, 2).int(), TypeError, "beta is torch.int32"),
    ],
)
def test_bad_betas_are_refused(name: str, beta: torch.Tensor, error: type[Exception], says: str) -> None:
    check_refused(name, replace(DELTA, beta=beta), GOOD, error, says)


def check_refused(name: str, inputs: ScanInputs, rows: StateRows, error: type[Exception], says: str) -> None:
    states = random_states(3, FEW)
    with pytest.raises(error, match=says):
        inputs.run(scan_kernels(name), states, rows)
    assert torch.equal(states, random_states(3, FEW))


def _ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@NAMES
@RULES
@pytest.mark.parametrize(
    ("rows", "error", "says"),
    [
        (GOOD._replace(initial_state=_ints(3)), ValueError, r"initial_state\[0\] is 3"),
        (GOOD._replace(chunk_state=_ints(1, -1)), ValueError, r"chunk_state\[1\] is -1"),
        (GOOD._replace(chunk_start_loc=_ints(0, 2, 7)), ValueError, "chunk_start_loc runs from 0 to 7"),
        (GOOD._replace(chunk_start_loc=_ints(0, 7, 6)), ValueError, "chunk_start_loc falls from 7 to 6"),
        (GOOD._replace(row_chunks=_ints(0, 3)), ValueError, "row_chunks runs from 0 to 3"),
        (GOOD._replace(query_start_loc=_ints(0, 5)), ValueError, r"query_start_loc\[1\] is 5"),
        (GOOD._replace(chunk_state=_ints(1)), ValueError, "rows.chunk_start_loc is"),
        (GOOD._replace(initial_state=_ints(1).long()), TypeError, "rows.initial_state is torch.int64"),
    ],
)
def test_bad_rows_are_refused(name: str, delta: bool, rows: StateRows, error: type[Exception], says: str) -> None:
    check_refused(name, DELTA if delta else ONE, rows, error, says)


@RULES
def test_native_names_what_it_lacks(delta: bool) -> None:
    one = DELTA if delta else ONE
    kernels = scan_kernels("native")
    with pytest.raises(TypeError, match=r"ssm_state's dtype is torch.bfloat16"):
        one.run(kernels, random_states(3, FEW, torch.bfloat16), GOOD)
    with pytest.raises(TypeError, match=r"value is torch.float64; the compiled kernels take"):
        replace(one, value=one.value.double()).run(kernels, random_states(3, FEW), GOOD)
    with pytest.raises(ValueError, match="last axis has stride 5"):
        one.run(kernels, random_states(3, FEW).mT.contiguous().mT, GOOD)
    on_meta = one.each(lambda tensor: tensor.to("meta"))
    with pytest.raises(ValueError, match="on the CPU"):
        on_meta.run(kernels, random_states(3, FEW).to("meta"), make_rows([[2, 4]], [1], [[1, 2]], device="meta"))


def test_one_decay_for_each_head() -> None:
    """Lightning attention's decays are the same for all tokens: one row, expanded."""
    rows, sizes = make_rows([[70, 3], [1]], [1, 0], [[2, 3], [4]]), ScanSizes(groups=4, heads=1, value=8, key=8)
    inputs = make_inputs(74, sizes, delta=False)
    inputs = replace(inputs, log_decay=-torch.tensor([0.5, 0.1, 1e-3, 0.0]).expand(74, 4))
    for name in ("native", "portable"):
        judge(scan_kernels(name), inputs, random_states(5, sizes), rows)


@NAMES
@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
def test_extreme_corrections(name: str, beta: float) -> None:
    """Beta 0 keeps the state, 1 replaces what a key holds, 2 reflects it; nothing grows over a long row."""
    sizes, rows = ScanSizes(groups=1, heads=1, value=8, key=8), make_rows([[200]], [1], [[2]])
    inputs = make_inputs(200, sizes, delta=True, strength=0.0)
    inputs = replace(inputs, beta=torch.full((200, 1), beta))
    judge(scan_kernels(name), inputs, random_states(3, sizes), rows)


@NAMES
def test_a_key_written_with_beta_one_is_read_back(name: str) -> None:
    """What the rule is for: after ``v`` is written at ``k``, asking for ``k`` gives ``v``, whatever was there."""
    sizes, rows = ScanSizes(groups=1, heads=1, value=8, key=8), make_rows([[20]], [1], [[2]])
    inputs = make_inputs(20, sizes, delta=True)
    inputs = replace(inputs, query=inputs.key, beta=torch.ones(20, 1))
    out = inputs.run(scan_kernels(name), random_states(3, sizes), rows)
    torch.testing.assert_close(out, inputs.value.contiguous(), rtol=0.0, atol=1e-5)
