"""Loads the causal language models that the adapter serves."""

from __future__ import annotations

import importlib.util
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


class TransformersLoader(ModelLoader):
    """Runs transformers models on their own files: attention and state-space layers call ours, on paged caches."""

    @property
    @override
    def name(self) -> str:
        return "transformers"

    @override
    def architectures(self) -> Sequence[str]:
        return ARCHITECTURES

    @override
    def default_model(self, progress: Callable[[str], None]) -> Path | None:
        _require_transformers()
        from genericbuilders_transformers.default_model import ensure_default_model

        return ensure_default_model(progress)

    @override
    def load(self, path: Path, options: LoadOptions) -> LoadedModel:
        _require_transformers()
        from genericbuilders_transformers.model import load_transformers_model

        return load_transformers_model(path, options)


def _require_transformers() -> None:
    if importlib.util.find_spec("transformers") is None:
        raise LoadError("transformers is not installed; run: pip install 'genericbuilders[transformers]'")
