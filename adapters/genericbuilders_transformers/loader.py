"""Loads the language models that the adapter serves, with an encoder or without."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from typing_extensions import override

from genericbuilders.model import LoadedModel, LoadError, LoadOptions, ModelLoader

__all__ = ["TransformersLoader"]

ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Gemma3nForCausalLM",
    "GptOssForCausalLM",
    "Llama4ForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "BambaForCausalLM",
    "FalconMambaForCausalLM",
    "JambaForCausalLM",
    "Lfm2ForCausalLM",
    "Mamba2ForCausalLM",
    "MiniMaxForCausalLM",
    "Qwen3NextForCausalLM",
)
# Those whose decoder attends over an encoder's output.
ENCODER_DECODERS = ("BartForConditionalGeneration", "WhisperForConditionalGeneration")
JSON = dict[str, "JSON"] | list["JSON"] | str | int | float | bool | None


class TransformersLoader(ModelLoader):
    """Runs transformers models on their own files: attention and state-space layers call ours, on paged caches."""

    @property
    @override
    def name(self) -> str:
        return "transformers"

    @override
    def architectures(self) -> Sequence[str]:
        return ARCHITECTURES + ENCODER_DECODERS

    @override
    def default_model(self, progress: Callable[[str], None]) -> Path | None:
        _require_transformers()
        from genericbuilders_transformers.default_model import ensure_default_model

        return ensure_default_model(progress)

    @override
    def load(self, path: Path, options: LoadOptions) -> LoadedModel:
        _require_transformers()
        if _attends_over_encoder(path):
            from genericbuilders_transformers.encoder_decoder import load_encoder_decoder

            return load_encoder_decoder(path, options)
        from genericbuilders_transformers.model import load_transformers_model

        return load_transformers_model(path, options)


def _attends_over_encoder(path: Path) -> bool:
    """By the architecture that ``config.json`` names; of a file that cannot be read, transformers complains itself."""
    try:
        config: JSON = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return False
    named = config.get("architectures") if isinstance(config, dict) else None
    return isinstance(named, list) and any(name in ENCODER_DECODERS for name in named)


def _require_transformers() -> None:
    if importlib.util.find_spec("transformers") is None:
        raise LoadError("transformers is not installed; run: pip install 'genericbuilders[transformers]'")
