"""fla-core's scans as this library calls them: layouts, pages and the choice of a function, over functions that compute
with the oracle. The real ones run in tests/peer/test_fla_kernels.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.state import reference
from genericbuilders.kernels.state.fla import FlaFunctions, FlaScanKernels
from genericbuilders.kernels.state.rows import StateRows
from tests.kernels.state.rows_strategy import make_rows, paged_states, state_rows
from tests.kernels.state.scan_cases import ScanInputs, ScanKernels, ScanSizes, judge, make_inputs, random_states

RULES = pytest.mark.parametrize("delta", [False, True], ids=["decay", "delta"])
SIZES = st.builds(
    ScanSizes,
    groups=st.integers(1, 2),
    heads=st.integers(1, 3),
    value=st.sampled_from([1, 8, 21]),
    key=st.sampled_from([1, 5, 16]),
)
# Rows of one chunk each; some are empty.
ROWS = state_rows(max_chunks=1, max_chunk_len=11)
FEW = ScanSizes(groups=1, heads=2, value=5, key=3)


@dataclass
class FakeFla:
    """Functions with fla-core's layouts, that keep what they derive from a tensor of lengths as its functions do.

    Attributes:
        ran: the names of those that were called.
    """

    ran: list[str] = field(default_factory=list[str])
    _kept: list[tuple[Tensor, list[int]]] = field(default_factory=list[tuple[Tensor, list[int]]])

    @property
    def kernels(self) -> ScanKernels:
        functions = FlaFunctions(
            chunk_decay=partial(self._decay, "chunk"),
            step_decay=partial(self._decay, "step"),
            chunk_delta=partial(self._delta, "chunk"),
            step_delta=partial(self._delta, "step"),
        )
        scans = FlaScanKernels(lambda: functions)
        return ScanKernels(scans.decay_scan, scans.delta_scan)

    def _decay(
        self,
        name: str,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        g: Tensor,
        scale: float,
        initial_state: Tensor,
        output_final_state: bool,
        state_v_first: bool,
        cu_seqlens: Tensor,
        cu_seqlens_cpu: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        assert q.shape[2] == v.shape[2]
        assert output_final_state
        assert state_v_first
        inputs = ScanInputs(q[0] * scale, k[0], v[0], g[0], None)
        return self._run(name, inputs, initial_state, cu_seqlens, cu_seqlens_cpu)

    def _delta(
        self,
        name: str,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        g: Tensor,
        beta: Tensor,
        scale: float,
        initial_state: Tensor,
        output_final_state: bool,
        state_v_first: bool,
        cu_seqlens: Tensor,
        cu_seqlens_cpu: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        assert name == "step" or k.shape[3] <= 256
        assert output_final_state
        assert state_v_first
        inputs = ScanInputs(q[0] * scale, k[0], v[0], g[0], beta[0])
        return self._run(name, inputs, initial_state, cu_seqlens, cu_seqlens_cpu)

    def _run(
        self, name: str, inputs: ScanInputs, initial: Tensor, cu_seqlens: Tensor, on_host: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        self.ran.append(name if on_host is None else f"{name} by the host's lengths")
        if on_host is not None:
            assert name == "chunk", "the functions that go token by token have no such argument"
            assert on_host.dtype == torch.int64
            assert on_host.device.type == "cpu"
            assert torch.equal(on_host, cu_seqlens)
            assert all(on_host is not kept for kept, _ in self._kept)
            self._kept.append((on_host, [int(start) for start in on_host]))
        count = len(cu_seqlens) - 1
        assert inputs.query.dtype == inputs.key.dtype == inputs.value.dtype
        assert inputs.log_decay.dtype == initial.dtype == torch.float32
        assert bool(inputs.log_decay.isfinite().all())
        assert len(initial) == count
        starts = next((starts for kept, starts in self._kept if kept is cu_seqlens), None)
        if starts is None:
            starts = [int(start) for start in cu_seqlens]
            self._kept.append((cu_seqlens, starts))
        own = list(range(1, count + 1))
        rows = make_rows([[end - start] for start, end in pairwise(starts)], own, [[x] for x in own])
        states = F.pad(initial, (0, 0, 0, 0, 0, 0, 1, 0))
        covered = inputs.tokens(slice(starts[0], starts[-1]))
        kernels = ScanKernels(reference.decay_scan, reference.delta_scan)
        # Memory that no program writes to.
        out = torch.full_like(inputs.value, torch.nan)
        out[starts[0] : starts[-1]] = covered.run(kernels, states, rows)
        return out[None], states[1:]


@pytest.fixture
def fast_matmul() -> Iterator[None]:
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


@RULES
@settings(max_examples=60, deadline=None)
@given(drawn=ROWS, sizes=SIZES, strength=st.sampled_from([0.1, 2.0, torch.inf]), expanded=st.booleans())
def test_outputs_and_states(
    delta: bool, drawn: tuple[StateRows, int], sizes: ScanSizes, strength: float, expanded: bool
) -> None:
    rows, num_blocks = drawn
    fake = FakeFla()
    inputs = make_inputs(rows.num_tokens, sizes, delta=delta, strength=strength, expanded=expanded)
    judge(fake.kernels, inputs, paged_states(num_blocks, sizes.groups * sizes.heads, sizes.value, sizes.key), rows)
    assert fake.ran == (["step"] if rows.num_tokens else [])


@RULES
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@settings(max_examples=15, deadline=None)
@given(drawn=ROWS, sizes=SIZES)
def test_half_precision(delta: bool, dtype: torch.dtype, drawn: tuple[StateRows, int], sizes: ScanSizes) -> None:
    rows, num_blocks = drawn
    inputs = make_inputs(rows.num_tokens, sizes, delta=delta, dtype=dtype)
    judge(FakeFla().kernels, inputs, random_states(num_blocks, sizes, torch.bfloat16), rows)


@RULES
@pytest.mark.parametrize("narrow", ["query", "key", "value"])
def test_inputs_of_several_dtypes(delta: bool, narrow: str) -> None:
    """They are brought to the widest, in which nothing is lost."""
    given = make_inputs(3, FEW, delta=delta)
    halved = given.each(lambda tensor: tensor.half())
    inputs = replace(
        given,
        query=halved.query if narrow == "query" else given.query,
        key=halved.key if narrow == "key" else given.key,
        value=halved.value if narrow == "value" else given.value,
    )
    rows, fake = make_rows([[2], [1]], [1, 0], [[1], [2]]), FakeFla()
    judge(fake.kernels, inputs, random_states(3, FEW), rows)
    assert fake.ran == ["step"]


@RULES
@settings(max_examples=15, deadline=None)
@given(drawn=ROWS, before=st.integers(0, 3), behind=st.integers(0, 3), padding=st.integers(0, 2))
def test_tokens_of_no_row(delta: bool, drawn: tuple[StateRows, int], before: int, behind: int, padding: int) -> None:
    """Tokens before the first row, behind the last, and behind all that the rows are said to have: outputs are zero."""
    rows, num_blocks = drawn
    apart = rows._replace(
        num_tokens=before + rows.num_tokens + behind,
        query_start_loc=rows.query_start_loc + before,
        chunk_start_loc=rows.chunk_start_loc + before,
    )
    inputs = make_inputs(apart.num_tokens + padding, FEW, delta=delta)
    states, wanted_states = random_states(num_blocks, FEW), random_states(num_blocks, FEW)
    found = inputs.run(FakeFla().kernels, states, apart)
    covered = slice(before, before + rows.num_tokens)
    wanted = inputs.tokens(covered).run(FakeFla().kernels, wanted_states, rows)
    assert torch.equal(found, F.pad(wanted, (0, 0, 0, 0, before, behind + padding)))
    assert torch.equal(states, wanted_states)


@RULES
def test_the_portable_kernels_run_what_fla_cannot(delta: bool) -> None:
    """Several chunks a row, long rows whose float32 is to be exact, numbers wider than float32."""
    for rows in (
        make_rows([[3, 4], [1]], [1, 2], [[3, 1], [2]]),
        make_rows([[2], [65]], [1, 0], [[1], [2]]),
        make_rows([[]], [1], [[]]),
    ):
        fake = FakeFla()
        judge(fake.kernels, make_inputs(rows.num_tokens, FEW, delta=delta), random_states(5, FEW), rows)
        assert not fake.ran
    rows, fake = make_rows([[2]], [1], [[1]]), FakeFla()
    wide = make_inputs(2, FEW, delta=delta)
    for inputs, states in ((wide.double(), random_states(2, FEW)), (wide, random_states(2, FEW, torch.float64))):
        inputs.run(fake.kernels, states, rows)
    assert not fake.ran


@RULES
@pytest.mark.usefixtures("fast_matmul")
def test_long_rows_in_chunks(delta: bool) -> None:
    rows, fake = make_rows([[2], [], [65]], [1, 3, 0], [[1], [], [2]]), FakeFla()
    judge(fake.kernels, make_inputs(67, FEW, delta=delta), random_states(4, FEW), rows)
    assert fake.ran == ["chunk"]


@RULES
@pytest.mark.usefixtures("fast_matmul")
def test_lengths_that_the_host_knows_are_not_read_back(delta: bool) -> None:
    """Chunks are given them, always in a new tensor; functions that go token by token would refuse them."""
    fake, kept = FakeFla(), torch.empty(3, dtype=torch.int32)
    for lengths in ([70, 5], [3, 72], [40, 35]):
        rows = make_rows([[length] for length in lengths], [1, 0], [[1], [2]])
        kept.copy_(rows.query_start_loc)
        rows = rows._replace(query_start_loc_cpu=kept)
        judge(fake.kernels, make_inputs(75, FEW, delta=delta), random_states(3, FEW), rows)
    assert fake.ran == ["chunk by the host's lengths", "chunk by the host's lengths", "step"]


@RULES
def test_long_rows_of_half_precision_in_chunks(delta: bool) -> None:
    rows, fake = make_rows([[65]], [0], [[2]]), FakeFla()
    judge(fake.kernels, make_inputs(65, FEW, delta=delta, dtype=torch.float16), random_states(4, FEW), rows)
    assert fake.ran == ["chunk"]


@RULES
@pytest.mark.usefixtures("fast_matmul")
def test_large_keys(delta: bool) -> None:
    """The delta rule's chunks take keys of up to 256; its steps and the decaying scan take any."""
    large = ScanSizes(groups=1, heads=1, value=1, key=257)
    for length, ran in ((64, ["step"]), (65, [] if delta else ["chunk"])):
        rows, fake = make_rows([[length]], [0], [[1]]), FakeFla()
        judge(fake.kernels, make_inputs(length, large, delta=delta), random_states(2, large), rows)
        assert fake.ran == ran


@RULES
def test_rows_in_a_buffer_that_is_kept(delta: bool) -> None:
    """What fla-core keeps of a tensor of lengths is never taken for those of the next batch in the same tensor."""
    fake, kernels = FakeFla(), FakeFla()
    first, second = (make_rows([[a], [b]], [1, 0], [[1], [2]]) for a, b in ((4, 2), (1, 5)))
    kept = first.query_start_loc.clone()
    inputs = make_inputs(6, FEW, delta=delta)
    for rows in (first, second):
        kept.copy_(rows.query_start_loc)
        states, wanted = random_states(3, FEW), random_states(3, FEW)
        found = inputs.run(fake.kernels, states, rows._replace(query_start_loc=kept))
        assert torch.equal(found, inputs.run(kernels.kernels, wanted, rows))
        assert torch.equal(states, wanted)
    assert fake.ran == ["step", "step"]


@RULES
def test_without_fla_the_portable_kernels_run(delta: bool) -> None:
    asked = list[str]()

    def absent() -> Unavailable:
        asked.append("fla")
        return Unavailable("it cannot be imported")

    scans = FlaScanKernels(absent)
    kernels = ScanKernels(scans.decay_scan, scans.delta_scan)
    assert not asked
    judge(kernels, make_inputs(3, FEW, delta=delta), random_states(3, FEW), make_rows([[3]], [1], [[2]]))
    assert asked == ["fla"]


@RULES
@pytest.mark.parametrize("lengths", [[], [[], []]], ids=["no row", "empty rows"])
def test_rows_without_tokens(delta: bool, lengths: list[list[int]]) -> None:
    rows = make_rows(lengths, [1] * len(lengths), [list[int]()] * len(lengths))._replace(num_tokens=2)
    fake, states, before = FakeFla(), random_states(3, FEW), random_states(3, FEW)
    found = make_inputs(3, FEW, delta=delta).run(fake.kernels, states, rows)
    assert torch.equal(found, torch.zeros(3, 2, 5))
    assert torch.equal(states, before)
    assert not fake.ran


@RULES
def test_bad_input_is_refused(delta: bool) -> None:
    kernels, rows = FakeFla().kernels, make_rows([[2]], [1], [[5]])
    states = random_states(3, FEW)
    before = states.clone()
    with pytest.raises(ValueError, match=r"chunk_state\[0\] is 5; there are the blocks 0 \(null\) to 2"):
        make_inputs(2, FEW, delta=delta).run(kernels, states, rows)
    with pytest.raises(ValueError, match="was the cache made for another layer"):
        make_inputs(2, ScanSizes(1, 2, 5, 4), delta=delta).run(kernels, states, rows)
    assert torch.equal(states, before)
