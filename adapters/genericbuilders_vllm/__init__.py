"""vLLM's builders on this library, and this library's back ends inside vLLM.

Importing this imports no vLLM, and nothing else before it is asked for: every process of vLLM loads the plug-in.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genericbuilders_vllm.adapter import NoKernel, WrappedAdapter
    from genericbuilders_vllm.batch import from_vllm_batch, to_vllm_batch
    from genericbuilders_vllm.batch_keys import IS_PREFILLING, BuildArgument
    from genericbuilders_vllm.settings import make_vllm_config
    from genericbuilders_vllm.specs import SpecConversionError, from_vllm_spec, to_vllm_spec
    from genericbuilders_vllm.wrapping import WrapOptions, wrap, wrap_despite_hints

__all__ = [
    "IS_PREFILLING",
    "BuildArgument",
    "NoKernel",
    "SpecConversionError",
    "WrapOptions",
    "WrappedAdapter",
    "from_vllm_batch",
    "from_vllm_spec",
    "make_vllm_config",
    "to_vllm_batch",
    "to_vllm_spec",
    "wrap",
    "wrap_despite_hints",
]

_HOMES = {
    "IS_PREFILLING": "batch_keys",
    "BuildArgument": "batch_keys",
    "NoKernel": "adapter",
    "SpecConversionError": "specs",
    "WrapOptions": "wrapping",
    "WrappedAdapter": "adapter",
    "from_vllm_batch": "batch",
    "from_vllm_spec": "specs",
    "make_vllm_config": "settings",
    "to_vllm_batch": "batch",
    "to_vllm_spec": "specs",
    "wrap": "wrapping",
    "wrap_despite_hints": "wrapping",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
