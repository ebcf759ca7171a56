"""A model loader for tests of the command line: a tiny model over bytes, whose behaviour the prompt decides.

The next byte is the last one plus one; after ``z`` the text ends. ``!`` in a batch makes the model raise, ``%`` makes
the loader's model give no finite logits, ``~`` makes every step take long, ``&`` for ever, in native code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from toy_backends import dense_adapter
from typing_extensions import override

from genericbuilders.config import AttentionLayerConfig
from genericbuilders.model import ForwardContext, LoadedModel, LoadError, LoadOptions, Model, ModelLoader, PlacedLayer
from genericbuilders.plugins import Plugin
from genericbuilders.specs import FullAttentionSpec

__all__ = ["ARCHITECTURE", "LOADER", "PLUGIN", "TWIN", "TinyLoader", "TinyModel", "TinyTokenizer", "make_model_folder"]

ARCHITECTURE = "TinyForCausalLM"
EOS = 0
HEADS = AttentionLayerConfig(num_heads=2, num_kv_heads=2, head_size=4, scale=0.5)
DENSE = dense_adapter("tiny_dense")
TWIN = dense_adapter("tiny_dense")


class TinyTokenizer:
    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(token for token in token_ids if token != EOS).decode(errors="replace")


class TinyModel(Model):
    def __init__(self, options: LoadOptions) -> None:
        self.vocab_size = 256
        self.max_model_len = 64
        self.eos_token_ids = frozenset({EOS})
        self.dtype = options.dtype or torch.float32
        self.device = options.device
        spec = FullAttentionSpec(
            block_size=options.block_size, num_kv_heads=HEADS.num_kv_heads, head_size=HEADS.head_size, dtype=self.dtype
        )
        self.layers = [PlacedLayer(DENSE.layer(f"layers.{index}", HEADS), spec) for index in range(2)]

    @override
    def forward(self, input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        seen = bytes(int(token) for token in input_ids)
        if b"!" in seen:
            raise RuntimeError("the model met an exclamation mark")
        if b"~" in seen:
            time.sleep(30)
        if b"&" in seen:
            # One call that Ctrl-C cannot cut short, and that lets other threads run.
            torch.ones(3000, 3000, dtype=torch.float64).matrix_power(2**62)
        last = input_ids[logits_indices]
        following = torch.where(last == ord("z"), EOS, (last + 1) % self.vocab_size)
        logits = torch.nn.functional.one_hot(following, self.vocab_size).to(self.dtype)
        return torch.where((last == ord("%"))[:, None], torch.nan, logits)


class TinyLoader(ModelLoader):
    """Loads any folder; a file ``slow`` in it makes that take long. It has a default model if the environment says."""

    @property
    @override
    def name(self) -> str:
        return "tiny"

    @override
    def architectures(self) -> Sequence[str]:
        return (ARCHITECTURE,)

    @override
    def default_model(self, progress: Callable[[str], None]) -> Path | None:
        folder = os.environ.get("TINY_DEFAULT_MODEL")
        if folder is None:
            return None
        progress("bringing the tiny model")
        return Path(folder)

    @override
    def load(self, path: Path, options: LoadOptions) -> LoadedModel:
        print("a model's code may print")
        if (path / "broken").exists():
            raise LoadError(f"{path} is broken; mend it")
        if (path / "buggy").exists():
            raise ArithmeticError("a fault of the loader")
        if (path / "slow").exists():
            time.sleep(30)
        return LoadedModel(TinyModel(options), TinyTokenizer())


LOADER = TinyLoader()
PLUGIN = Plugin("tiny", adapters=(DENSE,), model_loaders=(LOADER,))


def make_model_folder(folder: Path, architecture: str = ARCHITECTURE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(f'{{"architectures": ["{architecture}"]}}', encoding="utf-8")
    return folder
