"""Adapters: builder, specification, implementation and metadata of one back end, tied together once."""

from __future__ import annotations

from genericbuilders.adapter.attention import AttentionLayer, BackendAdapter
from genericbuilders.adapter.bound import BoundGroup, TypedAdapter, TypedLayer
from genericbuilders.adapter.erased import (
    Adapter,
    AnyAttentionLayer,
    AttentionAdapter,
    BackendUnavailableError,
    BindError,
    Group,
    Layer,
    Step,
)
from genericbuilders.adapter.index import IndexAdapter, IndexLayer
from genericbuilders.adapter.latent import LatentAdapter, LatentLayer
from genericbuilders.adapter.sharing import SharingLayer
from genericbuilders.adapter.state import StateAdapter, StateLayer

__all__ = [
    "Adapter",
    "AnyAttentionLayer",
    "AttentionAdapter",
    "AttentionLayer",
    "BackendAdapter",
    "BackendUnavailableError",
    "BindError",
    "BoundGroup",
    "Group",
    "IndexAdapter",
    "IndexLayer",
    "LatentAdapter",
    "LatentLayer",
    "Layer",
    "SharingLayer",
    "StateAdapter",
    "StateLayer",
    "Step",
    "TypedAdapter",
    "TypedLayer",
]
