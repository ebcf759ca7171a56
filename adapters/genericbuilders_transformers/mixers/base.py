"""What all mixers share: their layer and its cache, the step that runs, and the checks of their weights."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor, nn
from typing_extensions import TypeVar

from genericbuilders.adapter import StateAdapter
from genericbuilders.config import StateLayerConfig
from genericbuilders.model import ForwardContext, LoadError, PlacedLayer
from genericbuilders.specs import MambaCacheMode, MambaSpec

__all__ = ["Mixer", "MixerPlace", "RunningStep", "StateMixer", "check_conv", "check_shape", "refused_module"]

M = TypeVar("M")
X = TypeVar("X")

# The kernels' convolutions; a width of 1 would leave no state.
CONV_WIDTHS = range(2, 9)


class RunningStep:
    """The step that a model is in, where its mixers find it.

    Not every family hands its keyword arguments down to its mixers, as all of them do to their attention.
    """

    def __init__(self) -> None:
        self._context: ForwardContext | None = None

    @property
    def context(self) -> ForwardContext:
        """This step's metadata and caches.

        Raises:
            RuntimeError: no step runs.
        """
        if self._context is None:
            raise RuntimeError(
                "the model was called outside a step; its mixers keep states in caches, so call TransformersModel"
            )
        return self._context

    @contextmanager
    def of(self, context: ForwardContext) -> Generator[None, None, None]:
        """Let mixers find ``context`` inside a ``with`` statement."""
        self._context = context
        try:
            yield
        finally:
            self._context = None


@dataclass(frozen=True)
class MixerPlace:
    """Where a mixer goes.

    Attributes:
        name: of its layer: the path of the module that it replaces.
        block_size: tokens in one cache block.
        mamba_block_size: tokens between two states that may be kept.
        mamba_cache_mode: which states are kept.
        dtype: of weights and activations.
        running: where it finds the step.
    """

    name: str
    block_size: int
    mamba_block_size: int
    mamba_cache_mode: MambaCacheMode
    dtype: torch.dtype
    running: RunningStep


class Mixer(nn.Module):
    """A module with a layer of its own, of any back end: a state-space mixer, or attention on more than query and key.

    Attributes:
        placed: its layer, with what the layer's cache holds.
    """

    placed: PlacedLayer

    @property
    def all_placed(self) -> Sequence[PlacedLayer]:
        """Its layers, for one that has several caches; else `placed` alone."""
        return (self.placed,)


class StateMixer(Mixer, Generic[M, X]):
    """A mixer that runs on the back end whose metadata is ``M`` and whose inputs are ``X``.

    Args:
        adapter: the back end.
        place: where the mixer goes.
        shapes: of a state's tensors.
        dtypes: of them.
        chunk_size: tokens that the layer's prefill takes at a time.
    """

    def __init__(
        self,
        adapter: StateAdapter[M, MambaSpec, X],
        place: MixerPlace,
        shapes: tuple[tuple[int, ...], ...],
        dtypes: tuple[torch.dtype, ...],
        chunk_size: int = 1,
    ) -> None:
        super().__init__()
        self.layer = adapter.layer(place.name, StateLayerConfig(shapes, dtypes, chunk_size))
        spec = MambaSpec(
            place.mamba_block_size,
            shapes=shapes,
            dtypes=dtypes,
            mamba_type=adapter.name,
            mamba_cache_mode=place.mamba_cache_mode,
        )
        self.placed = PlacedLayer(self.layer, spec)
        self.running = place.running

    def run(self, inputs: X) -> Tensor:
        """The back end's output for this step."""
        context = self.running.context
        return self.layer.impl.forward(
            inputs, kv_cache=context.kv_caches[self.layer], attn_metadata=context.step[self.layer]
        )


def check_shape(layer: str, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Check that a weight has the shape that the layer's settings, and so its states, are made for.

    Raises:
        LoadError: it has another.
    """
    if tensor.shape != shape:
        raise LoadError(f"{layer}.{name} is {tuple(tensor.shape)}; the layer's settings make it {shape}")


def check_conv(layer: str, name: str, conv: nn.Conv1d, dim: int, width: int) -> Tensor:
    """Check a depthwise convolution's weight.

    Returns:
        The weight as ``[dim, width]``, the same memory.

    Raises:
        LoadError: it has another shape, or a width that the kernels do not serve.
    """
    check_shape(layer, f"{name}.weight", conv.weight, (dim, 1, width))
    if width not in CONV_WIDTHS:
        raise LoadError(
            f"{layer}.{name} has a width of {width}; the kernels serve widths of {CONV_WIDTHS[0]} to {CONV_WIDTHS[-1]}"
        )
    return conv.weight.detach().squeeze(1)


def refused_module(place: MixerPlace, module: nn.Module, known: str) -> LoadError:
    """The error for a module that is not of the class that its family has there."""
    return LoadError(f"{place.name} is a {type(module).__name__}, not a {known}; its mixer cannot be served")
