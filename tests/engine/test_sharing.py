"""Layers that share another layer's cache: whose memory they read, what it costs, and which targets are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hash_model import PAGES, Rows
from tiny_models import IdTokenizer
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import AttentionLayer, BindError, SharingLayer
from genericbuilders.backends.fast_prefill import FAST_PREFILL
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionMetadata, FlashAttentionSpec
from genericbuilders.backends.fp8_kv import FP8_KV
from genericbuilders.backends.mamba2 import MAMBA2
from genericbuilders.cache import (
    allocate_kv_caches,
    allocate_shared_kv_caches,
    copy_blocks,
    with_sharing_layers,
    zero_blocks,
)
from genericbuilders.config import AttentionLayerConfig, EngineConfig, KVCacheLayout, StateLayerConfig
from genericbuilders.engine.cudagraph import CUDAGraphMode
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.setup import EngineOptions, EngineSetup, plan_model, prepare
from genericbuilders.engine.sharing import cache_groups
from genericbuilders.model import ForwardContext, LoadedModel, Model, PlacedLayer
from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, SlidingWindowSpec, promote_to_full

CPU = torch.device("cpu")
HEADS = AttentionLayerConfig(4, 2, 8, scale=0.5)
NARROW = replace(HEADS, sliding_window=8)
FULL = FullAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float32)
WINDOW = SlidingWindowSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float32, sliding_window=8)
OPTIONS = EngineOptions(block_size=4, num_blocks=10, max_num_seqs=2)
Own = AttentionLayer[FlashAttentionMetadata]


class Layers(Model):
    """Layers that nobody runs."""

    def __init__(self, layers: Sequence[PlacedLayer]) -> None:
        self.layers = layers
        self.vocab_size = 97
        self.max_model_len = 64
        self.eos_token_ids = frozenset[int]()
        self.dtype = torch.float32
        self.device = CPU

    @override
    def forward(self, input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        raise NotImplementedError


def placed(layer: Own | SharingLayer[FlashAttentionMetadata], spec: FlashAttentionSpec) -> PlacedLayer:
    return PlacedLayer(layer, spec)


def setup_of(layers: Sequence[PlacedLayer], options: EngineOptions = OPTIONS) -> EngineSetup:
    return prepare(LoadedModel(Layers(layers), IdTokenizer()), options)


def decoder(*, fast: bool, sharing: bool = True) -> list[PlacedLayer]:
    """A window and full attention, each read by a later layer, or with four caches."""
    wide, narrow = FLASH_ATTN.layer("wide", HEADS), FLASH_ATTN.layer("narrow", NARROW)
    adapter = FAST_PREFILL if fast else FLASH_ATTN
    if not sharing:
        later = [FLASH_ATTN.layer("wide again", HEADS), FLASH_ATTN.layer("narrow again", NARROW)]
        return [placed(wide, FULL), placed(narrow, WINDOW), placed(later[0], FULL), placed(later[1], WINDOW)]
    return [
        placed(wide, FULL),
        # Before the next layer that stores: groups that only read come last all the same.
        placed(adapter.sharing_layer("wide again", HEADS, wide), FULL),
        placed(narrow, WINDOW),
        placed(adapter.sharing_layer("narrow again", NARROW, narrow), WINDOW),
    ]


def names(setup: EngineSetup) -> list[tuple[str, ...]]:
    return [group.layer_names for group in setup.groups]


def test_layers_of_one_back_end_are_in_their_target_s_group() -> None:
    setup = setup_of(decoder(fast=False))
    assert names(setup) == [("wide", "wide again"), ("narrow", "narrow again")]
    assert [[layer.name for layer in group.stored_layers] for group in setup.groups] == [["wide"], ["narrow"]]
    assert cache_groups(setup.groups) == (0, 1)


def test_layers_that_skip_tokens_are_groups_of_their_own_behind_the_others() -> None:
    setup = setup_of(decoder(fast=True))
    assert names(setup) == [("wide",), ("narrow",), ("wide again",), ("narrow again",)]
    assert cache_groups(setup.groups) == (0, 1, 0, 1)
    # Decodes may be held in whole graphs, prefills not, and the reason is named.
    resolve = setup.start().runner.resolve_cudagraph_mode
    assert resolve(CUDAGraphMode.FULL_DECODE_ONLY).mode is CUDAGraphMode.FULL_DECODE_ONLY
    lowered = resolve(CUDAGraphMode.FULL)
    assert (lowered.mode, lowered.limiting_backend) == (CUDAGraphMode.FULL_AND_PIECEWISE, "fast_prefill")


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("hybrid", [False, True])
def test_shared_caches_take_no_memory(fast: bool, hybrid: bool) -> None:
    options = replace(OPTIONS, hybrid_kv_cache=hybrid)
    setup, alone = setup_of(decoder(fast=fast), options), setup_of(decoder(fast=fast, sharing=False), options)
    assert 2 * setup.plan.total_bytes == alone.plan.total_bytes
    assert [group.layer_names for group in setup.plan.groups] == [("wide",), ("narrow",)]
    assert setup.plan == plan_model(setup.loaded.model, options)
    # The same number of requests fits into half the bytes, however they are counted.
    unsized = replace(options, num_blocks=None, max_num_seqs=3)
    sized, sized_alone = setup_of(decoder(fast=fast), unsized), setup_of(decoder(fast=fast, sharing=False), unsized)
    assert sized.plan.requests == sized_alone.plan.requests == 3
    assert 2 * sized.plan.total_bytes == sized_alone.plan.total_bytes
    caches = caches_of(setup.start())
    assert caches["wide again"] is caches["wide"]
    assert caches["narrow again"] is caches["narrow"]
    assert caches["wide"].data_ptr() != caches["narrow"].data_ptr()


def caches_of(engine: Engine) -> dict[str, Tensor]:
    return {layer.name: cache for layer, cache in engine.runner.kv_caches.items()}


def test_a_promoted_layer_is_read_by_a_promoted_one() -> None:
    setup = setup_of(decoder(fast=True), replace(OPTIONS, hybrid_kv_cache=False))
    assert [group.kv_cache_spec for group in setup.groups] == [FULL, promote_to_full(WINDOW)] * 2


def test_blocks_are_cleared_and_copied_once() -> None:
    """Twice would be right for clearing, but copying over itself is only by luck."""
    config = EngineConfig(max_model_len=64, layers={"a": HEADS, "b": HEADS})
    own = FLASH_ATTN.layer("a", HEADS)
    group = FLASH_ATTN.bind(FULL, [own, FLASH_ATTN.sharing_layer("b", HEADS, own)], config, CPU)
    stored = allocate_kv_caches([group], 4, CPU)
    assert list(stored) == [own]
    caches = with_sharing_layers(stored, [group])
    caches[own][1], caches[own][2] = 1, 2
    # Each takes the other's content.
    copy_blocks(group, caches, [1, 2], [2, 1])
    assert [float(caches[own][block].mean()) for block in range(4)] == [0, 2, 1, 0]
    zero_blocks(group, caches, [1])
    assert [float(caches[own][block].mean()) for block in range(4)] == [0, 0, 1, 0]


def test_in_one_pool_shared_caches_take_no_part() -> None:
    config = EngineConfig(max_model_len=64, layers={"a": HEADS, "b": HEADS, "c": NARROW})
    own, other = FLASH_ATTN.layer("a", HEADS), FLASH_ATTN.layer("c", NARROW)
    group = FLASH_ATTN.bind(FULL, [own, FLASH_ATTN.sharing_layer("b", HEADS, own)], config, CPU)
    caches = allocate_shared_kv_caches([group, FLASH_ATTN.bind(WINDOW, [other], config, CPU)], 3, 1024, CPU)
    assert list(caches) == [own, other]
    assert caches[own].data_ptr() == caches[other].data_ptr()


def refused(layers: Sequence[PlacedLayer], message: str) -> None:
    with pytest.raises(BindError, match=message):
        setup_of(layers)
    with pytest.raises(BindError, match=message):
        plan_model(Layers(layers), OPTIONS)


def test_a_target_that_is_not_there_or_comes_later_is_refused() -> None:
    own = FLASH_ATTN.layer("own", HEADS)
    reader = FLASH_ATTN.sharing_layer("reader", HEADS, own)
    told = "layer 'reader' cannot share the cache of layer 'own'"
    refused([placed(reader, FULL)], rf"{told}, which is no layer of the model; it has \['reader'\]")
    # Of the same name, and another layer.
    refused([placed(FLASH_ATTN.layer("own", HEADS), FULL), placed(reader, FULL)], f"{told}, which is no layer")
    refused([placed(reader, FULL), placed(own, FULL)], f"{told}, which comes later")


def test_a_target_that_shares_itself_is_refused() -> None:
    own = FLASH_ATTN.layer("own", HEADS)
    reader = FLASH_ATTN.sharing_layer("reader", HEADS, own)
    third = FLASH_ATTN.sharing_layer("third", HEADS, reader)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - refused by the checkers, too
    message = "layer 'third' cannot share the cache of layer 'reader', which has none: it shares that of layer 'own'"
    refused([placed(own, FULL), placed(reader, FULL), placed(third, FULL)], message)
    with pytest.raises(BindError, match=message):
        FLASH_ATTN.bind(FULL, [own, reader, third], EngineConfig(max_model_len=64), CPU)


def test_a_target_of_another_spec_is_refused() -> None:
    own = FLASH_ATTN.layer("own", HEADS)
    reader = FLASH_ATTN.sharing_layer("reader", HEADS, own)
    told = "layer 'reader' cannot share the cache of layer 'own': its spec is"
    larger = replace(FULL, block_size=8)
    refused([placed(own, FULL), placed(reader, larger)], rf"{told} .*block_size=8.* the other's .*block_size=4")
    narrow = FLASH_ATTN.sharing_layer("reader", NARROW, own)
    refused([placed(own, FULL), placed(narrow, WINDOW)], f"{told} SlidingWindowSpec.* the other's FullAttentionSpec")


def wrong_targets() -> list[tuple[Own | SharingLayer[FlashAttentionMetadata], str]]:
    """Layers that no group takes, and what is said of them."""
    own = FLASH_ATTN.layer("own", HEADS)
    states = MAMBA2.layer("own", StateLayerConfig(((2, 3),), (torch.float32,)))
    other = replace(HEADS, kv_cache_layout=KVCacheLayout.KV_FIRST)
    return [
        (
            FLASH_ATTN.sharing_layer("reader", replace(HEADS, num_heads=2, num_kv_heads=1), own),
            "it has 1 key-value heads",
        ),
        (
            FLASH_ATTN.sharing_layer("reader", replace(HEADS, head_size=4), own),
            "it has 2 .* of size 4, the other 2 .* of size 8",
        ),
        (FLASH_ATTN.sharing_layer("reader", other, own), "it reads the layout kv_first, .* stores in block_first"),
        (FP8_KV.sharing_layer("reader", HEADS, own), "its back end is 'fp8_kv', the other's 'flash_attn'"),
        (
            FLASH_ATTN.sharing_layer("reader", HEADS, FP8_KV.layer("own", HEADS)),
            "its back end is 'flash_attn', the other's 'fp8_kv'",
        ),
        (
            FLASH_ATTN.sharing_layer("reader", HEADS, states),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - refused by the checkers, too
            "its back end is 'flash_attn', the other's 'mamba2'",
        ),
    ]


def test_targets_of_another_back_end_head_size_or_layout_are_refused() -> None:
    for layer, told in wrong_targets():
        spec: KVCacheSpec = FULL
        message = f"layer 'reader' cannot share the cache of layer 'own': {told}"
        refused([PlacedLayer(layer.cache_owner, spec), PlacedLayer(layer, spec)], message)
        with pytest.raises(BindError, match=message):
            layer.adapter.bind_any(FULL, [layer], EngineConfig(max_model_len=64), CPU)


def test_a_back_end_that_cannot_read_without_storing_is_refused() -> None:
    own: AttentionLayer[Rows] = PAGES.layer("own", HEADS)
    reader = PAGES.sharing_layer("reader", HEADS, own)
    message = r"layer 'reader' cannot share the cache of layer 'own': the implementation of 'pages' has no read\(\)"
    refused([PlacedLayer(own, FULL), PlacedLayer(reader, FULL)], message)
    with pytest.raises(NotImplementedError, match=r"NoImpl cannot read the cache of another layer; override read\(\)"):
        own.impl.read(torch.empty(0, 4, 8), torch.empty(0), Rows(FULL, [], [], [], [], []))
