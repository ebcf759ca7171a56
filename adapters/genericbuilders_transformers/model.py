"""A transformers causal language model behind the engine's `Model` interface."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.modeling_rope_utils import RopeParameters
from transformers.utils import logging
from typing_extensions import override

from genericbuilders.adapter import AnyAttentionLayer, AttentionAdapter, SharingLayer
from genericbuilders.backends.flash_attn import FlashAttentionMetadata
from genericbuilders.model import ForwardContext, LoadedModel, LoadError, LoadOptions, Model
from genericbuilders.specs import KVQuantMode, MambaCacheMode
from genericbuilders_transformers.attention import ATTENTION_NAME, LayerCalls, register_attention
from genericbuilders_transformers.families import attention_indices, family_of, is_latent, place_mixers
from genericbuilders_transformers.fuse import fuse_layers
from genericbuilders_transformers.layers import attention_heads, attention_layers, layer_reach
from genericbuilders_transformers.mixers.base import RunningStep
from genericbuilders_transformers.quantised import quantised_layers, unquantised
from genericbuilders_transformers.sharing import shared_caches, sharing_layers, skip_tokens
from genericbuilders_transformers.tokenizer import HFTokenizer

__all__ = ["TransformersModel", "check_weights", "eos_token_ids", "load_transformers_model", "no_progress_bar"]

# These scale rotations by the longest sequence of the batch, so that one request would change another.
BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")
# Tokens in one request of a model that names no limit, as those without attention do; buffers grow with it.
UNBOUNDED_MODEL_LEN = 1 << 16


class TransformersModel(Model):
    """Runs ``hf`` with its attention on `FLASH_ATTN`, or on another back end that is asked for, and on `CHUNKED_LOCAL`.

    Other layers run on back ends of their own.

    Args:
        hf: the model, on its device, in its dtype; changed in place, so that it runs through this class only.
        block_size: tokens in one cache block.
        eos_token_ids: tokens that end a text.
        fuse: replace the layers that are known by faster ones on the same weights.
        mamba_cache_mode: which states of a request state-space layers keep.
        mamba_block_size: tokens between two of them; ``None`` takes ``block_size``.
        kv_cache_dtype: how the caches of attention layers are quantised, which then run on another back end.
        fast_prefill: run layers that share another's cache for the tokens alone whose logits are wanted.
        attention: the back end of layers that attend over full sequences or windows; ``None`` takes `FLASH_ATTN`.

    Attributes:
        attention_layers: the layers that attend over caches of their own, by their place in the model.
        sharing_layers: those that attend over another layer's, likewise.
        num_fused_layers: decoder layers that were replaced by faster ones.

    Raises:
        LoadError: the model needs what this adapter does not serve, or weights do not fit its settings.
    """

    def __init__(
        self,
        hf: PreTrainedModel,
        *,
        block_size: int,
        eos_token_ids: frozenset[int] = frozenset(),
        fuse: bool = True,
        mamba_cache_mode: MambaCacheMode = "none",
        mamba_block_size: int | None = None,
        kv_cache_dtype: KVQuantMode = KVQuantMode.NONE,
        fast_prefill: bool = True,
        attention: AttentionAdapter | None = None,
    ) -> None:
        config = hf.config
        check_supported(config)
        hf.eval()
        hf.requires_grad_(False)
        self.hf = hf
        self.vocab_size = config.vocab_size
        self.max_model_len: int = getattr(config, "max_position_embeddings", None) or UNBOUNDED_MODEL_LEN
        self.eos_token_ids = eos_token_ids
        self.dtype = hf.dtype
        self.device = hf.device
        self._running = RunningStep()
        states = block_size if mamba_block_size is None else mamba_block_size
        mixers = place_mixers(hf, block_size, states, mamba_cache_mode, self._running)
        placed = {index: mixer.all_placed for index, mixer in mixers.items()}
        self.attention_layers: Mapping[int, AnyAttentionLayer] = {}
        self.sharing_layers: Mapping[int, SharingLayer[FlashAttentionMetadata]] = {}
        self.num_fused_layers = 0
        indices = attention_indices(config)
        if not indices and kv_cache_dtype is not KVQuantMode.NONE:
            raise LoadError(
                "no layer of it caches plain keys and values, so that there is nothing to quantise to "
                f"{kv_cache_dtype.name}"
            )
        if not indices and attention is not None:
            raise LoadError(
                f"no layer of it attends over plain keys and values, so that none can run on {attention.name!r}"
            )
        if indices or is_latent(config):
            # Under a name that has no mask function, transformers makes no masks; nobody would read them.
            register_attention()
            hf.set_attn_implementation(ATTENTION_NAME)
        if indices:
            heads, shared = attention_heads(config), shared_caches(config)
            own = [index for index in indices if index not in shared]
            plain = attention_layers(hf, own, heads, block_size, unquantised(attention, kv_cache_dtype))
            made = quantised_layers(plain.made, kv_cache_dtype)
            self.attention_layers = {index: layer for index, (layer, _) in made.items()}
            placed |= {index: (each,) for index, (_, each) in made.items()}
            readers = sharing_layers(hf, shared, made, plain.flash, heads, fast_prefill=fast_prefill)
            self.sharing_layers = {index: layer for index, (layer, _) in readers.items()}
            placed |= {index: (each,) for index, (_, each) in readers.items()}
            if fast_prefill and shared:
                skip_tokens(hf, shared)
            self.num_fused_layers = fuse_layers(hf, heads) if fuse else 0
        self.layers = [each for index in sorted(placed) for each in placed[index]]

    @override
    def forward(self, input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        kept = logits_indices if context.skips_tokens else None
        with self._running.of(context):
            out = self.hf(
                input_ids=input_ids[None],
                position_ids=positions[None],
                use_cache=False,
                # The last layers have kept no other tokens.
                logits_to_keep=logits_indices if kept is None else 0,
                layer_calls=LayerCalls(self.attention_layers, context, self.sharing_layers, kept),
            )
        return out.logits[0]


def load_transformers_model(path: Path, options: LoadOptions) -> LoadedModel:
    """Load the model in folder ``path``, from its own files only.

    Raises:
        LoadError: the folder's files cannot be read as a model that this adapter serves.
    """
    dtype = options.dtype or (torch.bfloat16 if options.device.type == "cuda" else torch.float32)
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        check_supported(config)
        with no_progress_bar():
            hf, info = AutoModelForCausalLM.from_pretrained(
                path, dtype=dtype, local_files_only=True, output_loading_info=True
            )
        tokenizer = HFTokenizer(path)
        check_weights(info)
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from None
    except Exception as error:
        # Damaged files make transformers raise errors of many kinds; each message names its own cause.
        raise LoadError(f"{path} cannot be loaded: {error}") from error
    eos = eos_token_ids(hf.config, hf.generation_config) | frozenset(tokenizer.eos_token_ids)
    try:
        model = TransformersModel(
            hf.to(options.device),
            block_size=options.block_size,
            eos_token_ids=eos,
            mamba_cache_mode=options.mamba_cache_mode,
            mamba_block_size=options.mamba_block_size,
            kv_cache_dtype=options.kv_cache_dtype,
            fast_prefill=options.fast_prefill,
            attention=options.attention,
        )
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from None
    return LoadedModel(model, tokenizer)


def check_supported(config: PretrainedConfig) -> None:
    """Refuse what the back ends would compute wrongly.

    Raises:
        LoadError: a layer is of a type that is not served, the model's rotations depend on the whole batch, or its
            state-space layers have settings that are not served.
    """
    family = family_of(config)
    if family is None:
        for index in range(config.num_hidden_layers):
            layer_reach(config, index)
    # Hybrids call their layers full even where a window is set.
    elif (window := getattr(config, "sliding_window", None)) is not None:
        raise LoadError(
            f"its layers attend over a window of {window} tokens; windows are served for models of attention alone"
        )
    rope_type = _rope_type(config)
    if any(kind in rope_type for kind in BATCH_DEPENDENT_ROPE):
        raise LoadError(
            f"its rotary embedding is of type {rope_type!r}, which depends on the longest sequence in the batch; "
            "requests would change each other's tokens"
        )
    if family is not None:
        family.check(config)


def check_weights(info: Mapping[str, Collection[object]]) -> None:
    """Refuse files that lack a tensor of the model, or hold others; transformers fills in random ones.

    Args:
        info: what transformers tells about the tensors that it loaded.

    Raises:
        LoadError: tensors are missing or unknown.
    """
    missing = sorted(map(str, info["missing_keys"]))
    # Older files also hold frequencies, which are computed.
    unexpected = sorted(name for name in map(str, info["unexpected_keys"]) if not name.endswith("inv_freq"))
    if missing or unexpected:
        raise LoadError(
            f"the weights do not fit config.json: {len(missing)} tensors are missing {missing[:3]}, {len(unexpected)} "
            f"are not the model's {unexpected[:3]}"
        )


@contextmanager
def no_progress_bar() -> Generator[None, None, None]:
    """transformers draws a bar on standard error, terminal or not; whoever loads a model shows progress itself."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def eos_token_ids(config: PretrainedConfig, generation: GenerationConfig | None) -> frozenset[int]:
    """The tokens that end a text: what a model's settings and its settings for generation name together."""
    named = [config.eos_token_id, generation.eos_token_id if generation else None]
    return frozenset(token for ids in named if ids is not None for token in ([ids] if isinstance(ids, int) else ids))


def _rope_type(config: PretrainedConfig) -> str:
    parameters: RopeParameters | None = getattr(config, "rope_parameters", None)
    return str(parameters.get("rope_type", "default")) if parameters else "default"
