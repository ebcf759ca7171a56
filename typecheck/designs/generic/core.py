"""The core of this design is the library's own; this module only gives it the names that every design has."""

from __future__ import annotations

from genericbuilders.adapter import Adapter, AttentionLayer, BackendAdapter, BoundGroup, Group, Layer, Step
from genericbuilders.builder import AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder
from genericbuilders.registry import Registry

__all__ = [
    "Adapter",
    "AttentionCGSupport",
    "AttentionImpl",
    "AttentionLayer",
    "AttentionMetadataBuilder",
    "BackendAdapter",
    "BoundGroup",
    "Group",
    "Layer",
    "Registry",
    "Step",
]
