from os import PathLike

import torch

# What the configurations of all families have. The rest is missing from some of them, so each class has its own.
class PreTrainedConfig:
    architectures: list[str] | None
    bos_token_id: int | None
    dtype: str | torch.dtype | None
    eos_token_id: int | list[int] | None
    hidden_size: int
    model_type: str
    num_hidden_layers: int
    pad_token_id: int | None
    tie_word_embeddings: bool
    use_cache: bool
    vocab_size: int

    def save_pretrained(self, save_directory: str | PathLike[str]) -> None: ...
    def to_dict(self) -> dict[str, object]: ...
