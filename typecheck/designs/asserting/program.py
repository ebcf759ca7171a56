"""The clean program: every back end, the plug-in, a runner over mixed groups, layers and cache managers."""

from __future__ import annotations

import torch

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.asserting.attention import FlashInferBackend, FullBackend, MLABackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.layers import Attention, MambaMixer, Module, place
from typecheck.designs.asserting.managers import SlidingWindowManager, make_manager
from typecheck.designs.asserting.plugin import PagedTreeBackend
from typecheck.designs.asserting.runner import Runner, new_registry
from typecheck.designs.asserting.state import GDNBackend, LinearBackend, Mamba2Backend
from typecheck.designs.shared.batch import (
    CONFIG,
    CPU,
    FULL_SPEC,
    LAYER_SPECS,
    MLA_SPEC,
    STATE_SPEC,
    UNIFORM_SPEC,
    WINDOW_SPEC,
    new_pool,
    two_requests,
)

__all__ = ["main"]


def main() -> list[str]:
    """Run one batch through one layer of every back end; what came out, line by line."""
    groups = [
        place(FullBackend, FULL_SPEC),
        place(MLABackend, MLA_SPEC),
        place(FlashInferBackend, UNIFORM_SPEC),
        place(Mamba2Backend, STATE_SPEC),
        place(GDNBackend, STATE_SPEC),
        place(LinearBackend, STATE_SPEC),
        place(PagedTreeBackend, FULL_SPEC),
    ]
    modules: dict[str, Module] = {
        "full": Attention("full", FullBackend),
        "mla": Attention("mla", MLABackend),
        "flashinfer": Attention("flashinfer", FlashInferBackend),
        "mamba2": MambaMixer("mamba2"),
        "gdn": Attention("gdn", GDNBackend),
        "linear": Attention("linear", LinearBackend),
        "paged_tree": Attention("paged_tree", PagedTreeBackend),
    }
    runner = Runner(groups)
    step = runner.build(two_requests())
    lines = [f"{name}: {module.forward(step).sum().item():g}" for name, module in modules.items()]
    lines.append(f"graphs: {runner.cudagraph_support().name}")
    lines.append(f"planned heads: {runner.num_attention_heads()}")
    moved = runner.states_moved_to(step, torch.tensor([[7], [8]]), torch.zeros(4))
    lines.append(f"moved states: {moved[0].item():g}, {moved[1].item():g}")
    return lines + configured() + kept_blocks()


def configured() -> list[str]:
    """Groups made by name, as a configuration file says them; the encoder has no cache and gets none."""
    registry = new_registry()
    groups: dict[str, AttentionGroup] = {}
    for name in ("full", "linear"):
        spec = LAYER_SPECS[name]
        if spec is not None:
            groups[name] = AttentionGroup(registry[name], spec, [name], CONFIG, CPU)
    return [f"configured {name}: {group.kv_cache_spec.page_size_bytes} bytes" for name, group in groups.items()]


def kept_blocks() -> list[str]:
    """What each kind of manager keeps for a request of 64 tokens."""
    specs: list[KVCacheSpec] = [FULL_SPEC, WINDOW_SPEC, STATE_SPEC]
    lines = [f"{type(spec).__name__}: {make_manager(spec, new_pool()).blocks_for_longest(64)} blocks" for spec in specs]
    manager = make_manager(WINDOW_SPEC, new_pool())
    assert isinstance(manager, SlidingWindowManager)
    lines.append(f"window: {manager.sliding_window} tokens")
    return lines
