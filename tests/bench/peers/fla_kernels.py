"""Runs under a Python that has fla-core, causal-conv1d and mamba-ssm: their kernels, called as this library calls them.

    TRITON_INTERPRET=1 PYTHONPATH=REPOSITORY python fla_kernels.py

There is no CUDA device, so Triton's kernels run in its interpreter. For that the autotuner keeps the first of its
configurations, and a kernel's ``range`` gives tensors, as it does where the kernel is compiled. The extensions of
causal-conv1d and mamba-ssm cannot be had: the first is replaced by the package's own functions in torch, and the second is
not needed by what is called.

Each line on stdin names a kernel and a file with its arguments; results are written to the file, and the answer on stdout,
as JSON, says which of the packages' functions ran.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch
import triton.language as tl
from torch import Tensor
from triton.runtime.autotuner import Autotuner

from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.state.causal_conv1d import CausalConv1dFunctions, CausalConv1dKernels, load_causal_conv1d
from genericbuilders.kernels.state.fla import FlaFunctions, FlaScanKernels, find_fla, load_fla
from genericbuilders.kernels.state.mamba_ssm import MambaSsmKernels, load_mamba_ssm
from genericbuilders.kernels.state.rows import StateRows


def main() -> None:
    """Import the packages and serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the packages print goes to stderr
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ran: list[str] = []
    kernels = make_kernels(ran)
    for line in sys.stdin:
        question = json.loads(line)
        path = Path(question["path"])
        arguments = torch.load(path)
        rows = StateRows(**arguments.pop("rows"))
        torch.set_float32_matmul_precision(question["precision"])
        ran.clear()
        states = next(arguments[name] for name in ("ssm_state", "conv_state") if name in arguments)
        torch.save({"out": kernels[question["kernel"]](**arguments, rows=rows), "states": states}, path)
        print(json.dumps({"ran": ran}), file=answers, flush=True)


def make_kernels(ran: list[str]) -> dict[str, Callable[..., Tensor]]:
    """This library's calls by name; what of the packages runs is added to ``ran``."""
    configure_triton()
    found = find_fla()
    if isinstance(found, Unavailable):
        raise SystemExit(found.reason)
    fla = load_fla()
    for name in ("chunk_h", "chunk_delta_h"):
        sys.modules[f"fla.ops.common.{name}"].range = tensors
    noted = FlaFunctions(**{name: note(name, getattr(fla, name), ran) for name in vars(fla)})
    replace_extensions()
    conv, update = load_causal_conv1d(), load_mamba_ssm()
    convolve = CausalConv1dFunctions(note("whole", conv.whole, ran), note("update", conv.update, ran))
    scans = FlaScanKernels(lambda: noted)
    return {
        "decay": scans.decay_scan,
        "delta": scans.delta_scan,
        "conv": CausalConv1dKernels(lambda: convolve).causal_conv,
        "selective": MambaSsmKernels(lambda: note("selective", update, ran)).selective_scan,
    }


def configure_triton() -> None:
    """Make kernels run that are written for a device."""
    construct = Autotuner.__init__

    def with_first(
        self: Autotuner, fn: object, names: object, configs: list[object], *more: object, **named: object
    ) -> None:
        construct(self, fn, names, configs[:1], *more, **named)

    Autotuner.__init__ = with_first
    torch.cuda.device = lambda index: contextlib.nullcontext()


def tensors(*limits: object) -> Iterator[object]:
    """A kernel's ``range``, each number a tensor."""
    for number in builtins.range(*map(int, limits)):
        yield tl.full((), number, tl.int32)


def replace_extensions() -> None:
    """Stand-ins for the compiled modules; nothing is imported of mamba-ssm but what is asked for."""
    extension = ModuleType("causal_conv1d_cuda")
    sys.modules["causal_conv1d_cuda"] = extension
    import causal_conv1d.causal_conv1d_interface as interface

    def forward(x, weight, bias, seq_idx, initial_states, out, final_states_out, silu) -> None:  # noqa: ANN001
        assert seq_idx is initial_states is final_states_out is None
        check(x, weight, bias)
        assert x.stride(1) == 1
        assert x.stride(2) > 1
        assert x.shape[1] % 8 == x.stride(0) % 8 == x.stride(2) % 8 == 0
        out.copy_(interface.causal_conv1d_ref(x, weight, bias, activation="silu" if silu else None))

    def update(x, conv_state, weight, bias, out, silu, cache_seqlens, conv_state_indices) -> None:  # noqa: ANN001
        assert cache_seqlens is conv_state_indices is None
        check(x, weight, bias)
        assert conv_state.dtype == x.dtype
        found = interface.causal_conv1d_update_ref(x, conv_state, weight, bias, "silu" if silu else None)
        out.copy_(found)

    extension.causal_conv1d_fwd, extension.causal_conv1d_update = forward, update
    package = ModuleType("mamba_ssm")
    package.__path__ = list(find_spec("mamba_ssm").submodule_search_locations)
    sys.modules["mamba_ssm"] = package


def check(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """What the extension checks."""
    kinds = (torch.float32, torch.float16, torch.bfloat16)
    assert x.dtype in kinds
    assert weight.dtype in kinds
    assert weight.shape == (x.shape[1], weight.shape[1])
    assert 2 <= weight.shape[1] <= 4
    if bias is not None:
        assert (bias.dtype, bias.shape, bias.stride(-1)) == (weight.dtype, weight.shape[:1], 1)


def note(name: str, function: Callable[..., object], ran: list[str]) -> Callable[..., object]:
    """``function``, whose name is added to ``ran`` when it is called."""

    def noted(*given: object, **named: object) -> object:
        ran.append(name)
        return function(*given, **named)

    return noted


if __name__ == "__main__":
    main()
