"""What vLLM carries from the builder to the layers."""

from __future__ import annotations

from dataclasses import dataclass

from vllm.v1.attention.backend import AttentionMetadata

from genericbuilders.adapter import Step

__all__ = ["InsideMetadata"]


@dataclass
class InsideMetadata(AttentionMetadata):
    """One batch's metadata of a group.

    Attributes:
        num_actual_tokens: tokens of the batch, vLLM's padding included.
        step: this library's metadata, at its type under each layer.
    """

    num_actual_tokens: int
    step: Step
