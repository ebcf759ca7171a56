"""What every spec of a layer's cache has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

from genericbuilders.config import EngineConfig
from genericbuilders.specs.arithmetic import cdiv, require_at_least
from genericbuilders.specs.errors import SpecMergeError

__all__ = ["KVCacheSpec"]


@dataclass(frozen=True)
class KVCacheSpec(ABC):
    """The cache of one layer: what a page holds, and how many pages a request needs.

    Arithmetic only; a spec allocates nothing, never changes, and can be hashed.

    Attributes:
        block_size: tokens in one block. A layer stores one block in one page.

    Raises:
        ValueError: ``block_size`` is below 1.
    """

    block_size: int

    def __post_init__(self) -> None:
        require_at_least(self, "block_size", self.block_size, 1, "tokens")

    @property
    @abstractmethod
    def page_size_bytes(self) -> int:
        """The bytes that one layer's share of one block takes, padding included."""

    @abstractmethod
    def max_resident_blocks(self, config: EngineConfig) -> int:
        """The most blocks that one request of ``config.max_model_len`` tokens holds at any one time.

        Blocks that a manager has given back are not counted, blocks shared by all requests neither.
        """

    @property
    @abstractmethod
    def allocation_key(self) -> tuple[Hashable, ...]:
        """What decides which blocks a request holds, and when it gives them back.

        Two layers of one block size with equal keys need the same blocks at every moment, so that one block table
        can serve both. This does not depend on dtypes, head counts or page sizes.
        """

    @property
    def has_slots(self) -> bool:
        """Whether every token is stored in a slot of its own, so that it has a place in a batch's slot mapping.

        Unless overridden: it is.
        """
        return True

    @property
    def stores_encoder(self) -> bool:
        """Whether what is stored are an encoder's tokens, so that slots stand for them and not for the request's own.

        Unless overridden: they are the request's own.
        """
        return False

    @property
    def num_shared_blocks(self) -> int:
        """Blocks that the pool gives away once, whatever the number of requests. Unless overridden: none."""
        return 0

    def max_memory_usage_bytes(self, config: EngineConfig) -> int:
        """The bytes that one request of ``config.max_model_len`` tokens needs at most in one layer."""
        return self.max_resident_blocks(config) * self.page_size_bytes

    def max_num_blocks_per_req(self, config: EngineConfig, max_len: int) -> int:
        """The columns that a request of ``max_len`` tokens needs in the block table, in blocks.

        More than it holds at once where a manager gives blocks back: their columns stay, as null blocks.
        """
        return cdiv(max_len, self.block_size)

    def copy_with_new_block_size(self, block_size: int) -> Self:
        """The same cache cut into blocks of ``block_size`` tokens.

        Raises:
            ValueError: this cache cannot be cut that way.
        """
        return replace(self, block_size=block_size)

    @classmethod
    def merge(cls, specs: Sequence[Self]) -> Self:
        """The one spec that describes all ``specs``, whatever their order.

        Nothing is dropped: specs merge if they are of one type and agree on every field. Layers that only share
        their block table (same `allocation_key`) are held together by `UniformTypeKVCacheSpecs` instead.

        Raises:
            SpecMergeError: there is no spec, or their types or fields differ; each is named with its values.
        """
        if not specs:
            raise SpecMergeError(f"{cls.__name__}.merge was given no spec; at least one is needed")
        kinds = {type(spec) for spec in specs}
        if len(kinds) > 1 or not issubclass(next(iter(kinds)), cls):
            found = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise SpecMergeError(
                f"{cls.__name__}.merge takes specs of one type that is a {cls.__name__}; got {found}. "
                "Put the layers in groups of their own, or wrap them with UniformTypeKVCacheSpecs.from_specs"
            )
        first = specs[0]
        values = {f.name: [getattr(spec, f.name) for spec in specs] for f in fields(first)}
        differing = {name: found for name, found in values.items() if any(v != found[0] for v in found)}
        if differing:
            told = "; ".join(f"{name} is {_either(found)}" for name, found in differing.items())
            raise SpecMergeError(
                f"{type(first).__name__}s that disagree cannot be merged: {told}. "
                "Put the layers in groups of their own, or wrap them with UniformTypeKVCacheSpecs.from_specs",
                tuple(differing),
            )
        return first

    def is_uniform_with_collection(self, kv_cache_specs: Mapping[str, KVCacheSpec]) -> bool:
        """Whether every one of ``kv_cache_specs`` can share this spec's block table."""
        return all(
            spec.block_size == self.block_size and spec.allocation_key == self.allocation_key
            for spec in kv_cache_specs.values()
        )


def _either(values: Iterable[object]) -> str:
    # Sorted, so that the message does not depend on the order of the layers.
    return " or ".join(sorted({repr(value) for value in values}))
