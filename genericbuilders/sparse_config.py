"""What layers of sparse attention are made of, and the indexers that select their tokens; as in `config`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genericbuilders.config import EngineConfig, LatentLayerConfig, LayerConfig

__all__ = ["IndexLayerConfig", "SparseLatentLayerConfig", "check_indexes", "shared_topk"]


@dataclass(frozen=True)
class SparseLatentLayerConfig(LatentLayerConfig):
    """What one layer of sparse latent attention is made of (DeepSeek-V3.2).

    Attributes:
        topk: the most tokens that a token attends over.

    Raises:
        ValueError: a count is not positive.
    """

    topk: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.topk < 1:
            raise ValueError(f"topk is {self.topk}; a token attends over at least 1")


@dataclass(frozen=True)
class IndexLayerConfig(LayerConfig):
    """What one indexer is made of, which selects the tokens that another layer attends over (DeepSeek-V3.2).

    Attributes:
        num_heads: heads of its queries; all share one key a token.
        head_size: elements of a key.
        topk: the most tokens that are selected for a token.
        scale: factor on the products of query and key.

    Raises:
        ValueError: a count is not positive.
    """

    num_heads: int
    head_size: int
    topk: int
    scale: float

    def __post_init__(self) -> None:
        for name in ("num_heads", "head_size", "topk"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")


def check_indexes(config: EngineConfig, layer_names: Sequence[str], head_size: int) -> int:
    """Check that indexers have the keys that their cache is made for.

    Returns:
        The number of tokens that all of them select, at most.

    Raises:
        ValueError: one has others, is no indexer, or is unknown; it is named. Or they disagree, or there is none.
    """
    found: dict[int, str] = {}
    for name in layer_names:
        layer = config.layers.get(name)
        if not isinstance(layer, IndexLayerConfig):
            raise ValueError(f"layer {name!r} is {_told(layer)}; it is no indexer")
        if layer.head_size != head_size:
            raise ValueError(
                f"layer {name!r} has keys of {layer.head_size} elements, but its cache is made for {head_size}"
            )
        found.setdefault(layer.topk, name)
    return _one(found)


def shared_topk(config: EngineConfig, layer_names: Sequence[str]) -> int:
    """The most tokens that a token attends over, which all of ``layer_names`` share.

    Raises:
        ValueError: one is no layer of sparse latent attention, or is unknown; it is named. Or they disagree, or there
            is none.
    """
    found: dict[int, str] = {}
    for name in layer_names:
        layer = config.layers.get(name)
        if not isinstance(layer, SparseLatentLayerConfig):
            raise ValueError(f"layer {name!r} is {_told(layer)}; it has no sparse latent attention")
        found.setdefault(layer.topk, name)
    return _one(found)


def _told(layer: LayerConfig | None) -> str:
    return "not in EngineConfig.layers" if layer is None else f"described by a {type(layer).__name__}"


def _one(found: dict[int, str]) -> int:
    if len(found) != 1:
        raise ValueError(f"layers of one group must share topk; got {found or 'no layer at all'}")
    return next(iter(found))
