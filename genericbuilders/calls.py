"""The calls that the library makes on a back end, checked against the signatures it meets."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

__all__ = ["BUILDER_CALLS", "IMPL_CALLS", "INPUTS_IMPL_CALLS", "Call", "SignatureMismatchError", "check_calls"]


class SignatureMismatchError(TypeError):
    """A back end's method does not take what the library passes to it."""


class Call:
    """One call: a method, the arguments passed by position and those passed by keyword."""

    def __init__(self, method: str, positional: Sequence[str], keywords: Sequence[str] = ()) -> None:
        self.method = method
        self.positional: tuple[str, ...] = tuple(positional)
        self.keywords: tuple[str, ...] = tuple(keywords)


BUILDER_CALLS = (
    Call("__init__", ("self", "kv_cache_spec", "layer_names", "config", "device")),
    Call("get_cudagraph_support", ("config", "kv_cache_spec")),
    Call("get_kv_cache_shape", ("num_blocks", "kv_cache_spec")),
    Call("get_kv_cache_dtype", ("kv_cache_spec",)),
    Call("common_prefix_rule", ("self",)),
    Call("build", ("self", "common_prefix_len", "common_attn_metadata"), ("fast_build",)),
    Call("build_for_cudagraph_capture", ("self", "common_attn_metadata")),
    Call("build_for_drafting", ("self", "common_attn_metadata", "draft_index")),
    Call("update_block_table", ("self", "metadata", "blk_table", "slot_mapping")),
)
IMPL_CALLS = (
    Call("__init__", ("self", "layer")),
    Call("forward", ("self", "query", "key", "value"), ("kv_cache", "attn_metadata")),
    Call("forward_rotary", ("self", "query", "key", "value"), ("rotary", "kv_cache", "attn_metadata")),
    Call("read", ("self", "query"), ("kv_cache", "attn_metadata")),
)
INPUTS_IMPL_CALLS = (
    Call("__init__", ("self", "layer")),
    Call("forward", ("self", "inputs"), ("kv_cache", "attn_metadata")),
)


def check_calls(cls: type[object], calls: Sequence[Call]) -> None:
    """Refuse ``cls`` if one of ``calls`` on it would fail by its signature alone.

    Methods are looked up when this runs, so one that was replaced after import is the one that is checked.

    Raises:
        SignatureMismatchError: names the method, and the argument that it does not take or asks for besides.
    """
    for call in calls:
        signature = inspect.signature(getattr(cls, call.method))
        try:
            signature.bind(*call.positional, **dict.fromkeys(call.keywords))
        except TypeError as error:
            passed = ", ".join((*call.positional, *(f"{name}=" for name in call.keywords)))
            raise SignatureMismatchError(
                f"{cls.__qualname__}.{call.method}{signature} cannot be called as ({passed}): {error}; "
                f"give {call.method} the signature of its base class"
            ) from None
