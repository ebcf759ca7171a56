"""From a model folder to an engine that serves it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Union

import torch

from genericbuilders.model import LoadedModel, LoadError, LoadOptions, Model, ModelLoader

__all__ = ["EngineOptions", "load_model"]

JSON = Union[dict[str, "JSON"], list["JSON"], str, int, float, bool, None]


@dataclass(frozen=True)
class EngineOptions:
    """How to serve a model.

    Attributes:
        block_size: tokens in one cache block.
        num_blocks: blocks in each group's pool; ``None`` takes what `max_num_seqs` requests of full length need, within
            a quarter of the free memory.
        max_num_batched_tokens: tokens in one step.
        max_num_seqs: requests in one step.
        max_model_len: tokens in one request; ``None`` takes what the model reaches.
        enable_prefix_caching: keep full blocks for later requests with the same prefix.
    """

    block_size: int = 16
    num_blocks: int | None = None
    max_num_batched_tokens: int = 512
    max_num_seqs: int = 64
    max_model_len: int | None = None
    enable_prefix_caching: bool = True


def load_model(path: Path, loaders: Sequence[ModelLoader], options: LoadOptions) -> LoadedModel:
    """Load the model in folder ``path`` with the loader that serves its architecture.

    Raises:
        LoadError: there is no such folder, it has no readable ``config.json``, or no loader serves the architecture.
    """
    if not path.is_dir():
        raise LoadError(f"no model folder at {path}; give the folder that holds config.json and the weights")
    try:
        config: JSON = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LoadError(f"{path} has no config.json, so it is no model folder; give the folder that holds it") from None
    except (ValueError, OSError) as error:
        raise LoadError(f"{path / 'config.json'} cannot be read: {error}") from None
    architectures = _architectures(config)
    for loader in loaders:
        if set(architectures) & set(loader.architectures()):
            return loader.load(path, options)
    served = sorted({name for loader in loaders for name in loader.architectures()})
    raise LoadError(
        f"{path} holds a model of architecture {', '.join(architectures) or '(config.json names none)'}, which no adapter "
        f"serves; served are: {', '.join(served) or 'none, since no model loader is installed'}"
    )


def _architectures(config: JSON) -> list[str]:
    named = config.get("architectures") if isinstance(config, dict) else None
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
