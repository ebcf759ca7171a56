"""fla-core's and mamba-ssm's Triton kernels, in Triton's interpreter, and causal-conv1d's functions, called as this
library calls them, against float64; in an environment of its own (make test-fla)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.state import reference
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.tolerance import compare
from tests.kernels.state.rows_strategy import make_rows, named_blocks, paged_states, state_rows
from tests.kernels.state.scan_cases import REFERENCE, ScanInputs, ScanSizes, make_inputs, random_states

ROOT = Path(__file__).resolve().parents[2]
PEER = ROOT / "tests" / "bench" / "peers" / "fla_kernels.py"
RULES = pytest.mark.parametrize("delta", [False, True], ids=["decay", "delta"])
DRAWN = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
SIZES = st.builds(
    ScanSizes,
    groups=st.integers(1, 2),
    heads=st.integers(1, 2),
    value=st.sampled_from([4, 16, 21]),
    key=st.sampled_from([5, 16, 70]),
)
# Rows of one chunk each; some are empty.
ROWS = state_rows(max_chunks=1, max_chunk_len=5)
# Empty rows at every place, one chunk of fla-core's that is full, rows that need several, and one that starts empty.
LONG = make_rows([[], [64], [1], [], [150], [2], []], [1, 2, 3, 0, 0, 4, 5], [[], [6], [3], [], [7], [8], []])


@dataclass(frozen=True)
class Answer:
    """What the packages made of a batch: outputs, all states behind it, and which of their functions ran."""

    out: Tensor
    states: Tensor
    ran: list[str]


class Peer:
    """A process that runs the packages."""

    def __init__(self, python: str, folder: Path) -> None:
        self._file = folder / "arguments.pt"
        env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [python, str(PEER)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(
        self, kernel: str, arguments: dict[str, Tensor | bool | None], rows: StateRows, fast: bool = False
    ) -> Answer:
        """Run a kernel; ``fast`` allows products of float32 to be less exact."""
        torch.save({**arguments, "rows": rows._asdict()}, self._file)
        question = {"kernel": kernel, "path": str(self._file), "precision": "high" if fast else "highest"}
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps(question), file=stdin, flush=True)
        line = stdout.readline()
        assert line, "the process with the packages has ended; what it said is on stderr"
        found = torch.load(self._file)
        return Answer(found["out"], found["states"], json.loads(line)["ran"])

    def close(self) -> None:
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            # It has answered all questions; on a busy machine its end takes longer.
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    python = os.environ.get("GENERICBUILDERS_FLA_PYTHON")
    if python is None:
        pytest.fail("GENERICBUILDERS_FLA_PYTHON must name the Python of an environment with fla-core: make test-fla")
    with tempfile.TemporaryDirectory() as folder:
        started = Peer(python, Path(folder))
        yield started
        started.close()


def judge_scan(
    peer: Peer,
    inputs: ScanInputs,
    states: Tensor,
    rows: StateRows,
    *,
    fast: bool = False,
    roundings: float = 4.0,
    sums: torch.dtype = torch.float32,
) -> list[str]:
    """Compare with the oracle, whose own error with states in ``sums`` is allowed; gives which functions ran.

    Blocks that no row names must not have changed.
    """
    arguments: dict[str, Tensor | bool | None] = {
        "query": inputs.query,
        "key": inputs.key,
        "value": inputs.value,
        "log_decay": inputs.log_decay,
        "ssm_state": states,
    }
    if inputs.beta is not None:
        arguments["beta"] = inputs.beta
    answer = peer.ask("decay" if inputs.beta is None else "delta", arguments, rows, fast)
    working_states, exact_states = states.to(sums, copy=True), states.double()
    working = inputs.run(REFERENCE, working_states, rows)
    exact = inputs.double().run(REFERENCE, exact_states, rows)
    named = named_blocks(rows)
    assert answer.out.dtype == inputs.value.dtype
    for found in (
        compare(answer.out, working, exact, roundings=roundings),
        compare(answer.states[named], working_states[named].to(states.dtype), exact_states[named], roundings=roundings),
    ):
        assert found.passed, str(found)
    others = [block for block in range(len(states)) if block not in named]
    assert torch.equal(answer.states[others], states[others])
    return answer.ran


@pytest.mark.peer
@RULES
@DRAWN
@given(drawn=ROWS, sizes=SIZES, strength=st.sampled_from([0.1, 2.0, torch.inf]))
def test_token_by_token(
    peer: Peer, delta: bool, drawn: tuple[StateRows, int], sizes: ScanSizes, strength: float
) -> None:
    rows, num_blocks = drawn
    inputs = make_inputs(rows.num_tokens, sizes, delta=delta, strength=strength)
    states = paged_states(num_blocks, sizes.groups * sizes.heads, sizes.value, sizes.key)
    ran = judge_scan(peer, inputs, states, rows)
    assert ran == ([f"step_{'delta' if delta else 'decay'}"] if rows.num_tokens else [])


@pytest.mark.peer
@RULES
@pytest.mark.parametrize("strength", [0.01, 3.0, torch.inf])
@pytest.mark.parametrize(
    "sizes", [ScanSizes(groups=1, heads=2, value=16, key=16), ScanSizes(groups=2, heads=1, value=21, key=70)], ids=str
)
def test_in_chunks(peer: Peer, delta: bool, strength: float, sizes: ScanSizes) -> None:
    """Decays within a chunk are differences of sums over up to 64 tokens, and lose as many roundings as those are large."""
    inputs = make_inputs(LONG.num_tokens, sizes, delta=delta, strength=strength)
    roundings = 16.0 + 64 * min(strength, 104.0)
    ran = judge_scan(peer, inputs, random_states(10, sizes), LONG, fast=True, roundings=roundings)
    assert ran == [f"chunk_{'delta' if delta else 'decay'}"]


@pytest.mark.peer
@RULES
def test_in_chunks_of_half_precision(peer: Peer, delta: bool) -> None:
    """What passes between chunks is of half precision too. Here the host knows the lengths."""
    sizes = ScanSizes(groups=1, heads=2, value=16, key=16)
    inputs = make_inputs(LONG.num_tokens, sizes, delta=delta, strength=0.1).each(lambda tensor: tensor.half())
    rows = LONG._replace(query_start_loc_cpu=LONG.query_start_loc)
    ran = judge_scan(peer, inputs, random_states(10, sizes), rows, sums=torch.float16)
    assert ran == [f"chunk_{'delta' if delta else 'decay'}"]


@pytest.mark.peer
@RULES
def test_a_row_in_pieces(peer: Peer, delta: bool) -> None:
    """A prompt fed in pieces of every kind leaves the outputs and the state of one that is fed at once."""
    sizes = ScanSizes(groups=1, heads=2, value=16, key=16)
    lengths, ran = [1, 70, 64, 3, 90], list[str]()
    inputs = make_inputs(sum(lengths), sizes, delta=delta, strength=0.1)
    states, start = random_states(3, sizes), 0
    exact_states = states.double()
    exact = inputs.double().run(REFERENCE, exact_states, make_rows([[sum(lengths)]], [2], [[1]]))
    for number, length in enumerate(lengths):
        piece, rows = inputs.tokens(slice(start, start + length)), make_rows([[length]], [1 if number else 2], [[1]])
        arguments: dict[str, Tensor | bool | None] = {
            "query": piece.query,
            "key": piece.key,
            "value": piece.value,
            "log_decay": piece.log_decay,
            "ssm_state": states,
        }
        if piece.beta is not None:
            arguments["beta"] = piece.beta
        answer = peer.ask("delta" if delta else "decay", arguments, rows, fast=True)
        assert float((answer.out.double() - exact[start : start + length]).abs().max()) < 1e-4
        states, start = answer.states, start + length
        ran += answer.ran
    assert float((states[1].double() - exact_states[1]).abs().max()) < 1e-4
    assert [name.partition("_")[0] for name in ran] == ["step", "chunk", "step", "step", "chunk"]


@pytest.mark.peer
@DRAWN
@given(
    drawn=state_rows(),
    dim=st.sampled_from([8, 24]),
    width=st.integers(2, 4),
    silu=st.booleans(),
    has_bias=st.booleans(),
)
def test_causal_conv1d(
    peer: Peer, drawn: tuple[StateRows, int], dim: int, width: int, silu: bool, has_bias: bool
) -> None:
    """The package's own functions in torch, behind its real interface."""
    rows, num_blocks = drawn
    numbers = torch.Generator().manual_seed(0)
    x, weight = torch.randn(rows.num_tokens, dim, generator=numbers), torch.randn(dim, width, generator=numbers)
    bias = torch.randn(dim, generator=numbers) if has_bias else None
    states = paged_states(num_blocks, width - 1, dim)
    answer = peer.ask("conv", {"x": x, "weight": weight, "bias": bias, "conv_state": states, "silu": silu}, rows)
    working_states, exact_states = states.clone(), states.double()
    working = reference.causal_conv(x, weight, bias, working_states, rows, silu=silu)
    exact = reference.causal_conv(
        x.double(), weight.double(), None if bias is None else bias.double(), exact_states, rows, silu=silu
    )
    found = compare(answer.out, working, exact)
    assert found.passed, str(found)
    assert torch.equal(answer.states, working_states)
    assert answer.ran == (["update" if rows.single_tokens else "whole"] if rows.num_tokens else [])


@pytest.mark.peer
@DRAWN
@given(count=st.integers(1, 4), dim=st.sampled_from([5, 40]), size=st.sampled_from([1, 3, 16, 20]), has_d=st.booleans())
def test_selective_state_update(peer: Peer, count: int, dim: int, size: int, has_d: bool) -> None:
    numbers = torch.Generator().manual_seed(0)
    rows = make_rows([[1]] * count, [0, 1, 2, 1][:count], [[3], [0], [2], [4]][:count])
    x, dt = (torch.randn(count, dim, generator=numbers) for _ in range(2))
    b, c = (torch.randn(count, size, generator=numbers) for _ in range(2))
    dt, a = F.softplus(dt), -torch.rand(dim, size, generator=numbers)
    d = torch.randn(dim, generator=numbers) if has_d else None
    states = paged_states(5, dim, size)
    answer = peer.ask("selective", {"x": x, "dt": dt, "a": a, "b": b, "c": c, "d": d, "ssm_state": states}, rows)
    working_states, exact_states = states.clone(), states.double()
    working = reference.selective_scan(x, dt, a, b, c, d, working_states, rows)
    wide = [tensor.double() for tensor in (x, dt, a, b, c)]
    exact = reference.selective_scan(
        wide[0], wide[1], wide[2], wide[3], wide[4], None if d is None else d.double(), exact_states, rows
    )
    for found in (compare(answer.out, working, exact), compare(answer.states, working_states, exact_states)):
        assert found.passed, str(found)
    assert answer.ran == ["selective"]
