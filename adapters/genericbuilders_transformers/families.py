"""The families with layers of their own kind: states, or latent attention. Where they are, and what replaces them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from genericbuilders.model import LoadError
from genericbuilders.specs import MambaCacheMode
from genericbuilders_transformers.mixers.base import Mixer, MixerPlace, RunningStep

__all__ = ["FAMILIES", "HybridFamily", "attention_indices", "family_of", "is_latent", "place_mixers"]

# What transformers calls a layer's kind; it has no word for the other one, which DeepSeek's layers all are.
ATTENTION = "full_attention"
LATENT = "latent_attention"
SILU = ("silu", "swish")


@dataclass(frozen=True)
class HybridFamily:
    """Where a family keeps what is replaced.

    Attributes:
        layers: the path of its decoder layers.
        mixer: the mixer's name in one of them.
        kind: what the settings call such a layer.
        make: from transformers' module to the mixer that replaces it.
        fixed_silu: whether an activation stands between convolution and scan, where the kernels have SiLU.
    """

    layers: str
    mixer: str
    kind: str
    make: Callable[[nn.Module, MixerPlace], Mixer]
    fixed_silu: bool = True

    def check(self, config: PretrainedConfig) -> None:
        """Refuse settings that the mixers do not serve.

        Raises:
            LoadError: a layer is of another kind, or the activation is not SiLU.
        """
        other = sorted(set(_layer_types(config)) - {ATTENTION, self.kind})
        if other:
            raise LoadError(f"it has layers of type {', '.join(other)}; served are {ATTENTION} and {self.kind}")
        activation: str | None = getattr(config, "hidden_act", None)
        if self.fixed_silu and activation not in SILU:
            raise LoadError(f"its activation is {activation!r}; its state-space layers are served with 'silu' only")


def family_of(config: PretrainedConfig) -> HybridFamily | None:
    """The family with state-space layers that ``config`` belongs to; ``None`` if it has attention only."""
    return FAMILIES.get(config.model_type)


def attention_indices(config: PretrainedConfig) -> list[int]:
    """The layers that attend, by their place in the model."""
    if family_of(config) is None:
        return list(range(config.num_hidden_layers))
    return [index for index, kind in enumerate(_layer_types(config)) if kind == ATTENTION]


def is_latent(config: PretrainedConfig) -> bool:
    """Whether all layers are of latent attention."""
    family = family_of(config)
    return family is not None and family.kind == LATENT


def place_mixers(
    hf: PreTrainedModel,
    block_size: int,
    mamba_block_size: int,
    mamba_cache_mode: MambaCacheMode,
    running: RunningStep,
) -> dict[int, Mixer]:
    """Replace the model's state-space mixers and latent attention by ours, on the same weights.

    Args:
        hf: the model; changed in place.
        block_size: tokens in one cache block.
        mamba_block_size: tokens between two states that may be kept.
        mamba_cache_mode: which states are kept.
        running: where the mixers find the step.

    Returns:
        The mixers by their layer's place in the model; none if the model has attention only.

    Raises:
        LoadError: a mixer's weights do not fit its settings, or it is of an unknown class.
    """
    family = family_of(hf.config)
    if family is None:
        return {}
    mixers: dict[int, Mixer] = {}
    for index, kind in enumerate(_layer_types(hf.config)):
        if kind != family.kind:
            continue
        name = f"{family.layers}.{index}.{family.mixer}"
        mixer = family.make(
            hf.get_submodule(name), MixerPlace(name, block_size, mamba_block_size, mamba_cache_mode, hf.dtype, running)
        )
        hf.set_submodule(name, mixer)
        mixers[index] = mixer
    return mixers


def _layer_types(config: PretrainedConfig) -> Sequence[str]:
    if is_latent(config):
        return [LATENT] * config.num_hidden_layers
    kinds: Sequence[str] | None = getattr(config, "layer_types", None)
    if kinds is None or len(kinds) != config.num_hidden_layers:
        raise LoadError(f"its settings name {len(kinds or ())} layer types for {config.num_hidden_layers} layers")
    return kinds


# Each imports transformers' module of its own family, which is there already where a model was loaded.
def _mamba1(module: nn.Module, place: MixerPlace) -> Mixer:
    from genericbuilders_transformers.mixers.mamba1 import mamba1_mixer

    return mamba1_mixer(module, place)


def _mamba2(module: nn.Module, place: MixerPlace) -> Mixer:
    from genericbuilders_transformers.mixers.mamba2 import mamba2_mixer

    return mamba2_mixer(module, place)


def _gdn(module: nn.Module, place: MixerPlace) -> Mixer:
    from genericbuilders_transformers.mixers.gdn import gdn_mixer

    return gdn_mixer(module, place)


def _lightning(module: nn.Module, place: MixerPlace) -> Mixer:
    from genericbuilders_transformers.mixers.lightning import lightning_mixer

    return lightning_mixer(module, place)


def _short_conv(module: nn.Module, place: MixerPlace) -> Mixer:
    from genericbuilders_transformers.mixers.short_conv import short_conv_mixer

    return short_conv_mixer(module, place)


def _latent(module: nn.Module, place: MixerPlace) -> Mixer:
    from genericbuilders_transformers.mixers.latent import latent_attention

    return latent_attention(module, place)


def _sparse_latent(module: nn.Module, place: MixerPlace) -> Mixer:
    from genericbuilders_transformers.mixers.sparse_latent import sparse_latent_attention

    return sparse_latent_attention(module, place)


FAMILIES: Mapping[str, HybridFamily] = {
    "falcon_mamba": HybridFamily("backbone.layers", "mixer", "linear_attention", _mamba1),
    "jamba": HybridFamily("model.layers", "mamba", "linear_attention", _mamba1),
    "mamba2": HybridFamily("backbone.layers", "mixer", "linear_attention", _mamba2),
    "bamba": HybridFamily("model.layers", "mamba", "linear_attention", _mamba2),
    "qwen3_next": HybridFamily("model.layers", "linear_attn", "linear_attention", _gdn),
    "minimax": HybridFamily("model.layers", "self_attn", "linear_attention", _lightning, fixed_silu=False),
    "deepseek_v2": HybridFamily("model.layers", "self_attn", LATENT, _latent, fixed_silu=False),
    "deepseek_v3": HybridFamily("model.layers", "self_attn", LATENT, _latent, fixed_silu=False),
    "deepseek_v32": HybridFamily("model.layers", "self_attn", LATENT, _sparse_latent, fixed_silu=False),
    "lfm2": HybridFamily("model.layers", "conv", "conv", _short_conv, fixed_silu=False),
}
"""By the model type that ``config.json`` names."""
