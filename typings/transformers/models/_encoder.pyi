from collections.abc import Collection, Mapping
from os import PathLike
from typing import Literal, Self

import torch
from torch import nn

# Stubs only: `PreTrainedModel` is typed as a causal language model has it, and an encoder's result is another.

class _Encoder(nn.Module):
    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str],
        *,
        dtype: torch.dtype | None = None,
        local_files_only: bool = False,
        output_loading_info: Literal[True],
    ) -> tuple[Self, Mapping[str, Collection[object]]]: ...
    def save_pretrained(self, save_directory: str | PathLike[str]) -> None: ...
    def set_attn_implementation(self, attn_implementation: str) -> None: ...
