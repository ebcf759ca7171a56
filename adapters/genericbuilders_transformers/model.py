"""A transformers causal language model behind the engine's `Model` interface."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import logging
from typing_extensions import override

from genericbuilders.adapter import AttentionLayer
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionMetadata
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.model import ForwardContext, LoadedModel, LoadError, LoadOptions, Model, PlacedLayer
from genericbuilders.specs import FullAttentionSpec
from genericbuilders_transformers.attention import ATTENTION_NAME, LayerCalls, register_attention
from genericbuilders_transformers.fuse import fuse_layers
from genericbuilders_transformers.tokenizer import HFTokenizer

__all__ = ["TransformersModel", "load_transformers_model"]

# These scale rotations by the longest sequence of the batch, so that one request would change another.
BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")


class TransformersModel(Model):
    """Runs ``hf`` with every attention module calling the back end `FLASH_ATTN`.

    Args:
        hf: the model, on its device, in its dtype.
        block_size: tokens in one cache block.
        eos_token_ids: tokens that end a text.
        fuse: replace the layers that are known by faster ones on the same weights.

    Raises:
        LoadError: the model needs what this adapter does not serve, such as a window.
    """

    def __init__(
        self, hf: PreTrainedModel, *, block_size: int, eos_token_ids: frozenset[int] = frozenset(), fuse: bool = True
    ) -> None:
        config = hf.config
        check_supported(config)
        register_attention()
        hf.set_attn_implementation(ATTENTION_NAME)
        hf.eval()
        hf.requires_grad_(False)
        self.hf = hf
        self.vocab_size = config.vocab_size
        self.max_model_len = config.max_position_embeddings
        self.eos_token_ids = eos_token_ids
        self.dtype = hf.dtype
        self.device = hf.device
        heads = attention_heads(config)
        self.attention_layers: Sequence[AttentionLayer[FlashAttentionMetadata]] = [
            FLASH_ATTN.layer(f"model.layers.{index}.self_attn", heads) for index in range(config.num_hidden_layers)
        ]
        spec = FullAttentionSpec(
            block_size=block_size, num_kv_heads=heads.num_kv_heads, head_size=heads.head_size, dtype=hf.dtype
        )
        self.layers = [PlacedLayer(layer, spec) for layer in self.attention_layers]
        self.num_fused_layers = fuse_layers(hf, heads) if fuse else 0

    @override
    def forward(self, input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        out = self.hf(
            input_ids=input_ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=logits_indices,
            layer_calls=LayerCalls(self.attention_layers, context),
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
        with _no_progress_bar():
            hf = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True)
        tokenizer = HFTokenizer(path)
        check_weights(path, hf)
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from None
    except Exception as error:
        # Damaged files make transformers raise errors of many kinds; each message names its own cause.
        raise LoadError(f"{path} cannot be loaded: {error}") from error
    eos = _eos_token_ids(hf) | frozenset(tokenizer.eos_token_ids)
    model = TransformersModel(hf.to(options.device), block_size=options.block_size, eos_token_ids=eos)
    return LoadedModel(model, tokenizer)


def check_supported(config: PretrainedConfig) -> None:
    """Refuse what the back end would compute wrongly.

    Raises:
        LoadError: the model attends over a window, or its rotations depend on the whole batch.
    """
    layer_types: Sequence[str] | None = getattr(config, "layer_types", None)
    window: int | None = getattr(config, "sliding_window", None)
    windowed = "sliding_attention" in layer_types if layer_types else window is not None
    if windowed:
        raise LoadError(
            f"its layers attend over a window of {window} tokens, which the back end flash_attn does not serve yet; "
            "only models without a window can be run"
        )
    rope_type = _rope_type(config)
    if any(kind in rope_type for kind in BATCH_DEPENDENT_ROPE):
        raise LoadError(
            f"its rotary embedding is of type {rope_type!r}, which depends on the longest sequence in the batch; "
            "requests would change each other's tokens"
        )


def attention_heads(config: PretrainedConfig) -> AttentionLayerConfig:
    """The heads of one attention layer."""
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return AttentionLayerConfig(config.num_attention_heads, config.num_key_value_heads, head_size, head_size**-0.5)


def check_weights(path: Path, hf: PreTrainedModel) -> None:
    """Refuse files that lack a tensor of the model, or hold others; transformers would fill in random ones."""
    files = sorted(path.glob("*.safetensors"))
    if not files:
        return
    stored = {name for file in files for name in _stored_names(file)}
    # Tied parameters stand once, under their first name; older files also hold frequencies, which are computed.
    missing = sorted(name for name, _ in hf.named_parameters() if name not in stored)
    known = set(hf.state_dict())
    unexpected = sorted(name for name in stored - known if not name.endswith("inv_freq"))
    if missing or unexpected:
        raise LoadError(
            f"the weights do not fit config.json: {len(missing)} tensors are missing {missing[:3]}, {len(unexpected)} "
            f"are not the model's {unexpected[:3]}"
        )


def _stored_names(file: Path) -> set[str]:
    """The tensors in a safetensors file: the length of its header in 8 bytes, and the header as JSON."""
    with file.open("rb") as opened:
        header: dict[str, object] = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return set(header) - {"__metadata__"}


@contextmanager
def _no_progress_bar() -> Generator[None, None, None]:
    """transformers draws a bar on standard error, terminal or not; whoever loads a model shows progress itself."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _eos_token_ids(hf: PreTrainedModel) -> frozenset[int]:
    """What the model's settings and its settings for generation name together."""
    named = [hf.config.eos_token_id, hf.generation_config.eos_token_id if hf.generation_config else None]
    return frozenset(token for ids in named if ids is not None for token in ([ids] if isinstance(ids, int) else ids))


def _rope_type(config: PretrainedConfig) -> str:
    parameters = config.rope_parameters
    return str(parameters.get("rope_type", "default")) if parameters else "default"
