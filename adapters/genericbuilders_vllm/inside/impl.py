"""vLLM's attention implementation around one of this library's."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic

from torch import Tensor
from typing_extensions import TypeVar, override
from vllm.v1.attention.backend import AttentionImpl, AttentionLayer, AttentionType

from genericbuilders.adapter import AttentionLayer as OurLayer
from genericbuilders.adapter import BindError, Layer
from genericbuilders.config import AttentionLayerConfig
from genericbuilders_vllm.inside.convert import convert_cache
from genericbuilders_vllm.inside.metadata import InsideMetadata

__all__ = ["ErasedImpl", "InsideImpl"]

M = TypeVar("M")


class ErasedImpl(AttentionImpl[InsideMetadata]):
    """An `InsideImpl` whatever its metadata: what a builder asks of it."""

    @abstractmethod
    def open(self, name: str) -> Layer:
        """This library's layer for vLLM's layer ``name``: the same one at every call.

        Raises:
            BindError: it was opened under another name.
        """


class InsideImpl(ErasedImpl, Generic[M]):
    """One layer of a back end of this library; a subclass says of which: `make_layer`.

    Args:
        num_heads: query heads.
        head_size: elements in a head.
        scale: factor on the scores.
        num_kv_heads: key-value heads.
        alibi_slopes: must be ``None``, as must the next.
        sliding_window: see above.
        kv_cache_dtype: refused if it is a quantised one.
        logits_soft_cap: must be ``None`` or 0.
        attn_type: must be that of a decoder.
        kv_sharing_target_layer_name: must be ``None``: every layer writes a cache of its own.
        others: what single models ask for beyond that; refused by name.

    Raises:
        ValueError: the layer needs what this library does not compute; everything is named.
    """

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        **others: object,
    ) -> None:
        wanted: dict[str, object] = {
            "alibi_slopes": alibi_slopes,
            "sliding_window": sliding_window,
            "logits_soft_cap": logits_soft_cap or None,
            "kv_sharing_target_layer_name": kv_sharing_target_layer_name,
            **others,
        }
        refused = [_told(name, value) for name, value in wanted.items() if value is not None]
        if kv_cache_dtype not in ("auto", "float16", "bfloat16"):
            refused.append(_told("kv_cache_dtype", kv_cache_dtype))
        if attn_type != AttentionType.DECODER:
            refused.append(_told("attn_type", attn_type))
        if refused:
            raise ValueError(
                f"{type(self).__name__} of genericbuilders does not compute a layer with {', '.join(refused)}; "
                "select another attention backend for this model"
            )
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.kv_cache_dtype = kv_cache_dtype
        self._layer: OurLayer[M] | None = None
        self._cache: tuple[Tensor, Tensor] | None = None

    @abstractmethod
    def make_layer(self, name: str, config: AttentionLayerConfig) -> OurLayer[M]:
        """A layer of the back end: ``ADAPTER.layer(name, config)``."""

    @override
    def open(self, name: str) -> OurLayer[M]:
        if self._layer is None:
            self._layer = self.make_layer(
                name, AttentionLayerConfig(self.num_heads, self.num_kv_heads, self.head_size, self.scale)
            )
        if self._layer.name != name:
            raise BindError(f"one implementation serves layer {self._layer.name!r} already; {name!r} needs its own")
        return self._layer

    @override
    def forward(
        self,
        layer: AttentionLayer,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kv_cache: Tensor,
        attn_metadata: InsideMetadata | None,
        output: Tensor,
        output_scale: Tensor | None = None,
        output_block_scale: Tensor | None = None,
    ) -> Tensor:
        """Store keys and values, attend, and write to ``output``.

        Args:
            layer: vLLM's layer; not read.
            query: ``[num_tokens, num_heads, head_size]``.
            key: ``[num_tokens, num_kv_heads, head_size]``.
            value: ``[num_tokens, num_kv_heads, head_size]``.
            kv_cache: see `genericbuilders_vllm.inside.convert.convert_cache`.
            attn_metadata: what the builder made; ``None`` when vLLM measures memory, which gives zeros.
            output: ``[num_tokens, num_heads, head_size]``, changed in place.
            output_scale: must be ``None``, as must the next.
            output_block_scale: see above.

        Returns:
            ``output``.

        Raises:
            ValueError: a quantised output is asked for.
            BindError: no builder has opened the layer.
        """
        if output_scale is not None or output_block_scale is not None:
            raise ValueError(f"{type(self).__name__} of genericbuilders does not quantise its output")
        if attn_metadata is None:
            return output.zero_()
        ours = self._layer
        if ours is None:
            raise BindError(f"{type(self).__name__} runs before a builder of genericbuilders was made for its layer")
        if self._cache is None or self._cache[0] is not kv_cache:
            self._cache = (kv_cache, convert_cache(kv_cache))
        count = attn_metadata.num_actual_tokens
        made = ours.impl.forward(
            query[:count],
            key[:count],
            value[:count],
            kv_cache=self._cache[1],
            attn_metadata=attn_metadata.step[ours],
        )
        output[:count].copy_(made)
        return output


def _told(name: str, value: object) -> str:
    """A setting with its value, unless that is long: slopes and sinks are one a head."""
    return f"{name}={value!r}" if isinstance(value, int | float | str) else name
