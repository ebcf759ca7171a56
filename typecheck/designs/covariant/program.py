"""The clean program: every back end, the plug-in, a runner over mixed groups, layers and cache managers."""

from __future__ import annotations

import torch

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.attention import FLASHINFER, FULL, MLA
from typecheck.designs.covariant.core import Group
from typecheck.designs.covariant.layers import Attention, MambaMixer, Module, place
from typecheck.designs.covariant.managers import make_manager
from typecheck.designs.covariant.plugin import PAGED_TREE
from typecheck.designs.covariant.runner import Runner, new_registry
from typecheck.designs.covariant.state import GDN, LINEAR, MAMBA2
from typecheck.designs.shared.batch import (
    CONFIG,
    CPU,
    FULL_SPEC,
    HEADS,
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
    full, full_layer = place(FULL, FULL_SPEC)
    mla, mla_layer = place(MLA, MLA_SPEC)
    flashinfer, flashinfer_layer = place(FLASHINFER, UNIFORM_SPEC)
    mamba2, mamba2_layer = place(MAMBA2, STATE_SPEC)
    gdn, gdn_layer = place(GDN, STATE_SPEC)
    linear, linear_layer = place(LINEAR, STATE_SPEC)
    paged_tree, paged_tree_layer = place(PAGED_TREE, FULL_SPEC)
    modules: dict[str, Module] = {
        "full": Attention(full_layer),
        "mla": Attention(mla_layer),
        "flashinfer": Attention(flashinfer_layer),
        "mamba2": MambaMixer(mamba2_layer),
        "gdn": Attention(gdn_layer),
        "linear": Attention(linear_layer),
        "paged_tree": Attention(paged_tree_layer),
    }
    runner = Runner([full, mla, flashinfer, mamba2, gdn, linear, paged_tree])
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
    groups: dict[str, Group] = {}
    for adapter, layer in ((FULL, FULL.layer("full", HEADS)), (LINEAR, LINEAR.layer("linear", HEADS))):
        spec = LAYER_SPECS[adapter.name]
        if spec is not None:
            groups[adapter.name] = registry.by_name(adapter.name).bind_any(spec, [layer], CONFIG, CPU)
    return [f"configured {name}: {group.kv_cache_spec.page_size_bytes} bytes" for name, group in groups.items()]


def kept_blocks() -> list[str]:
    """What each kind of manager keeps for a request of 64 tokens."""
    specs: list[KVCacheSpec] = [FULL_SPEC, WINDOW_SPEC, STATE_SPEC]
    lines = [f"{type(spec).__name__}: {make_manager(spec, new_pool()).blocks_for_longest(64)} blocks" for spec in specs]
    lines.append(f"window: {make_manager(WINDOW_SPEC, new_pool()).spec.sliding_window} tokens")
    return lines
