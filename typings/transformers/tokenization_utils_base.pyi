from collections.abc import Sequence
from os import PathLike
from typing import Literal

import torch
from torch import Tensor

# With `return_tensors="pt"`, the only way that this project calls a tokenizer.
class BatchEncoding:
    def __getitem__(self, item: str) -> Tensor: ...
    def keys(self) -> Sequence[str]: ...
    def to(self, device: str | torch.device) -> BatchEncoding: ...

class PreTrainedTokenizerBase:
    all_special_ids: list[int]
    bos_token: str | None
    bos_token_id: int | None
    eos_token: str | None
    eos_token_id: int | None
    pad_token: str | None
    pad_token_id: int | None
    padding_side: str

    def __call__(
        self,
        text: str | list[str],
        *,
        add_special_tokens: bool = True,
        padding: bool = False,
        padding_side: Literal["left", "right"] | None = None,
        return_tensors: Literal["pt"],
    ) -> BatchEncoding: ...
    def __len__(self) -> int: ...
    def convert_ids_to_tokens(self, ids: list[int], skip_special_tokens: bool = False) -> list[str]: ...
    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int]: ...
    def decode(
        self,
        token_ids: list[int] | Tensor,
        skip_special_tokens: bool = False,
        *,
        clean_up_tokenization_spaces: bool = ...,
    ) -> str: ...
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def save_pretrained(self, save_directory: str | PathLike[str]) -> tuple[str, ...]: ...
