"""How many blocks each group of layers gets, and whether groups have pools of their own or share padded pages.

Attention pages grow with the block size, pages of states do not; so groups' pages need not be multiples of each other,
and no block size is changed to make them so. There are two ways to give memory to such groups:

* own pools: each group has as many blocks as it needs, each of its own size. If memory is short, all pools shrink
  together, so that the same number of full-length requests fits; what is left over within the pools is wasted;
* one pool: every block is as large as the largest, in as many layers as the largest group has; any group may take any
  block, and what its pages do not fill is wasted.

Waste is what holds nothing when as many requests of full length run as fit. The way that wastes less is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from math import ceil, floor

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec, KVCacheGroupSpec, KVCacheSpec, MambaSpec, iter_layer_specs, round_up

__all__ = ["CachePlan", "CachePlanError", "GroupPlan", "PoolStrategy", "agree", "plan_caches"]

# Bytes; a multiple of every element's size, so that any page can be read in its own type.
PAGE_ALIGNMENT = 64


class CachePlanError(ValueError):
    """Caches do not fit; the message says what is needed and what there is."""


class PoolStrategy(StrEnum):
    """How groups get their blocks."""

    OWN_POOLS = "own pools"
    ONE_POOL = "one pool"


@dataclass(frozen=True)
class GroupPlan:
    """One group's blocks.

    Attributes:
        group: the layers, and what each holds.
        num_blocks: blocks in the group's pool, the null block included. A shared pool's number comes with each group.
        page_bytes: bytes from one page to the next in one layer; of the largest page where layers differ.
        block_bytes: bytes that one block takes, in all layers together and with padding.
        resident_blocks: blocks that one request of full length holds at most.
        waste_bytes: bytes in the group's blocks that hold nothing when as many full-length requests run as fit.
    """

    group: KVCacheGroupSpec
    num_blocks: int
    page_bytes: int
    block_bytes: int
    resident_blocks: int
    waste_bytes: int = 0

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The group's layers."""
        return self.group.layer_names

    @property
    def block_size(self) -> int:
        """Tokens in one block; for states, tokens between two that may be kept."""
        return self.group.kv_cache_spec.block_size

    @property
    def spec_type(self) -> str:
        """The type of the layers' specs; a wrapper is taken off."""
        specs = iter_layer_specs(self.group.kv_cache_spec)
        return " + ".join(dict.fromkeys(type(spec).__name__ for spec in specs))

    @property
    def content_bytes(self) -> int:
        """Bytes of one block that hold something, in all layers together: without any padding."""
        return sum(_content_bytes(spec) for spec in self.group.layer_specs.values())

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that requests can get: all but the null block and those that all requests share."""
        return max(0, self.num_blocks - 1 - self.group.kv_cache_spec.num_shared_blocks)

    @property
    def total_bytes(self) -> int:
        """Bytes of the group's pool."""
        return self.num_blocks * self.block_bytes


@dataclass(frozen=True)
class CachePlan:
    """All groups' blocks.

    Attributes:
        groups: in the order in which they were given.
        strategy: how they get their blocks.
        requests: requests of full length that fit at once.
        other_waste_bytes: what the other strategy would waste in the same memory; ``None`` if it was no choice.
    """

    groups: tuple[GroupPlan, ...]
    strategy: PoolStrategy
    requests: int
    other_waste_bytes: int | None = None

    @property
    def num_blocks(self) -> tuple[int, ...]:
        """Blocks of each group's pool, null blocks included."""
        return tuple(group.num_blocks for group in self.groups)

    @property
    def total_bytes(self) -> int:
        """Bytes of all caches. A shared pool counts once."""
        sizes = [group.total_bytes for group in self.groups]
        return max(sizes, default=0) if self.strategy is PoolStrategy.ONE_POOL else sum(sizes)

    @property
    def waste_bytes(self) -> int:
        """Bytes that hold nothing when as many full-length requests run as fit."""
        return sum(group.waste_bytes for group in self.groups)

    @property
    def waste_percent(self) -> float:
        """The same in % of all bytes."""
        return 100 * self.waste_bytes / self.total_bytes if self.total_bytes else 0.0


def plan_caches(
    groups: Sequence[KVCacheGroupSpec],
    config: EngineConfig,
    memory_bytes: int | None = None,
    *,
    may_share: bool = True,
) -> CachePlan:
    """The blocks of each group.

    With ``config.num_blocks``, each group whose blocks follow from a request's tokens has that number, and groups that
    keep a fixed number of states a request have what ``config.max_num_seqs`` requests need; every group has a pool
    of its own. Otherwise there is room for ``config.max_num_seqs`` requests of full length, or for as many, and a part
    of one more, as ``memory_bytes`` allow.

    Args:
        groups: the layers by block table.
        config: the run's limits.
        memory_bytes: bytes for all caches; ``None`` if there is no limit.
        may_share: whether one pool of padded pages is a choice, too.

    Raises:
        CachePlanError: the bytes are too few for a null block and one more in each group; both sizes are named.
    """
    unsized = [_unsized(group, config) for group in groups]
    if config.num_blocks is not None:
        return _own_pools(_with_num_blocks(unsized, config.num_blocks, config.max_num_seqs))
    own = _own_pools(_within(unsized, config.max_num_seqs, memory_bytes))
    if len(groups) < 2 or not may_share:
        return own
    shared = _one_pool(unsized, config.max_num_seqs, own.total_bytes if memory_bytes is None else memory_bytes)
    if shared is None:
        return own
    if shared.waste_bytes < own.waste_bytes and shared.requests >= own.requests:
        return replace(shared, other_waste_bytes=own.waste_bytes)
    return replace(own, other_waste_bytes=shared.waste_bytes)


def agree(plans: Sequence[CachePlan]) -> tuple[CachePlan, ...]:
    """The plans of a pipeline's stages, made for the same requests: every stage can hold what any other admits.

    Each stage plans by its own layers and memory. Then groups of equal block tables (block size and allocation key)
    have equally many blocks in all stages, the least of them, and states are kept for no more requests than all stages
    hold.

    Raises:
        CachePlanError: a stage's groups share a pool, so that its block numbers mean nothing in another.
    """
    if any(plan.strategy is PoolStrategy.ONE_POOL for plan in plans):
        raise CachePlanError("stages that are to agree need a pool for each group; plan them with may_share=False")
    least: dict[object, int] = {}
    for group in (group for plan in plans for group in plan.groups):
        key = _table_key(group)
        least[key] = min(least.get(key, group.num_blocks), group.num_blocks)
    agreed = [_own_pools([replace(each, num_blocks=least[_table_key(each)]) for each in plan.groups]) for plan in plans]
    requests = min((plan.requests for plan in agreed if plan.groups), default=0)
    shrunk = [_own_pools([_kept_for(group, requests) for group in plan.groups]) for plan in agreed]
    return tuple(replace(plan, requests=requests) for plan in shrunk)


def _table_key(group: GroupPlan) -> object:
    return (group.block_size, group.group.kv_cache_spec.allocation_key)


def _kept_for(group: GroupPlan, requests: int) -> GroupPlan:
    if not _is_per_request(group.group.kv_cache_spec):
        return group
    return replace(group, num_blocks=min(group.num_blocks, _blocks_for(group, Fraction(requests))))


def _unsized(group: KVCacheGroupSpec, config: EngineConfig) -> GroupPlan:
    pages = [spec.page_size_bytes for spec in group.layer_specs.values()]
    resident = group.kv_cache_spec.max_resident_blocks(config)
    return GroupPlan(group, 2, max(pages), group.block_bytes, resident)


def _is_per_request(spec: KVCacheSpec) -> bool:
    """Whether a request holds a fixed number of blocks, however long it is."""
    return all(isinstance(layer, MambaSpec) and layer.mamba_cache_mode != "all" for layer in iter_layer_specs(spec))


def _blocks_for(group: GroupPlan, requests: Fraction) -> int:
    """The pool for so many requests of full length: whole states, but a part of a request's other blocks."""
    spec, resident = group.group.kv_cache_spec, group.resident_blocks
    usable = max(1, floor(requests)) * resident if _is_per_request(spec) else floor(requests * resident)
    return 1 + spec.num_shared_blocks + max(1, usable)


def _sized(groups: Sequence[GroupPlan], requests: Fraction) -> list[GroupPlan]:
    return [replace(group, num_blocks=_blocks_for(group, requests)) for group in groups]


def _within(groups: Sequence[GroupPlan], max_requests: int, memory_bytes: int | None) -> list[GroupPlan]:
    """As many blocks as ``max_requests`` full-length requests need, or as the memory has."""

    def total(requests: Fraction) -> int:
        return sum(_blocks_for(group, requests) * group.block_bytes for group in groups)

    def fits(requests: Fraction) -> bool:
        return memory_bytes is None or total(requests) <= memory_bytes

    if not fits(Fraction(0)):
        told = "; ".join(
            f"{_blocks_for(group, Fraction(0))} blocks of {group.block_bytes} bytes for {_layers(group)}"
            for group in groups
        )
        raise CachePlanError(
            f"{memory_bytes} bytes are too few for caches: at least {total(Fraction(0))} are needed, null blocks "
            f"included ({told})"
        )
    whole = _last(max_requests, lambda count: fits(Fraction(count)))
    if whole == max_requests:
        return _sized(groups, Fraction(whole))
    parts = max((g.resident_blocks for g in groups if not _is_per_request(g.group.kv_cache_spec)), default=1) or 1
    part = _last(parts - 1, lambda count: fits(whole + Fraction(count, parts)))
    return _sized(groups, whole + Fraction(part, parts))


def _layers(group: GroupPlan) -> str:
    first, *others = group.layer_names
    return f"{first} and {len(others)} more" if others else first


def _last(highest: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to ``highest`` for which a condition holds that holds for 0 and, once not, never again."""
    low = 0
    while low < highest:
        middle = (low + highest + 1) // 2
        low, highest = (middle, highest) if holds(middle) else (low, middle - 1)
    return low


def _with_num_blocks(groups: Sequence[GroupPlan], num_blocks: int, max_requests: int) -> list[GroupPlan]:
    attention = [
        replace(group, num_blocks=num_blocks)
        for group in groups
        if not any(isinstance(spec, MambaSpec) for spec in iter_layer_specs(group.group.kv_cache_spec))
    ]
    found = _requests(attention)
    requests = Fraction(max_requests) if found is None else min(found, Fraction(max_requests))
    sized: list[GroupPlan] = []
    for group in groups:
        spec = group.group.kv_cache_spec
        if _is_per_request(spec):
            count = _blocks_for(group, Fraction(max_requests))
        elif any(isinstance(layer, MambaSpec) for layer in iter_layer_specs(spec)):
            # A state for every block of tokens: for as many tokens as the other pools hold.
            count = 1 + spec.num_shared_blocks + max(1, ceil(requests * group.resident_blocks))
        else:
            count = num_blocks
        sized.append(replace(group, num_blocks=count))
    return sized


def _requests(groups: Sequence[GroupPlan]) -> Fraction | None:
    """Requests of full length, the part of one more included, that fit into pools; ``None`` if any number does."""
    return min(
        (Fraction(group.num_usable_blocks, group.resident_blocks) for group in groups if group.resident_blocks),
        default=None,
    )


def _own_pools(groups: Sequence[GroupPlan]) -> CachePlan:
    requests = _requests(groups) or Fraction(0)
    wasted = [
        replace(
            group,
            waste_bytes=group.num_usable_blocks * group.block_bytes
            - min(ceil(requests * group.resident_blocks), group.num_usable_blocks) * group.content_bytes,
        )
        for group in groups
    ]
    return CachePlan(tuple(wasted), PoolStrategy.OWN_POOLS, floor(requests))


def _one_pool(groups: Sequence[GroupPlan], max_requests: int, memory_bytes: int) -> CachePlan | None:
    """All groups on one pool, or ``None`` if the memory is too small for it."""
    page = max(group.page_bytes for group in groups)
    if any(spec.page_size_bytes != page for group in groups for spec in group.group.layer_specs.values()):
        page = round_up(page, PAGE_ALIGNMENT)
    block = page * max(len(group.layer_names) for group in groups)
    always = 1 + sum(group.group.kv_cache_spec.num_shared_blocks for group in groups)
    resident = sum(group.resident_blocks for group in groups)
    num_blocks = min(always + max_requests * resident, memory_bytes // block)
    if not resident or num_blocks - always < len(groups):
        return None
    requests = Fraction(num_blocks - always, resident)
    planned = [
        replace(
            group,
            num_blocks=num_blocks,
            page_bytes=page,
            block_bytes=block,
            waste_bytes=ceil(requests * group.resident_blocks * (block - group.content_bytes)),
        )
        for group in groups
    ]
    return CachePlan(tuple(planned), PoolStrategy.ONE_POOL, floor(requests))


def _content_bytes(spec: KVCacheSpec) -> int:
    return spec.unpadded_page_size_bytes if isinstance(spec, AttentionSpec | MambaSpec) else spec.page_size_bytes
