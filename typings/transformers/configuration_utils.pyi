from os import PathLike

import torch
from transformers.modeling_rope_utils import RopeParameters

# What the configurations of all four families of decoders have. `head_dim`, `sliding_window`, `layer_types` and
# `attention_bias` are missing from some of them, so each class has its own.
class PreTrainedConfig:
    architectures: list[str] | None
    bos_token_id: int | None
    dtype: str | torch.dtype | None
    eos_token_id: int | list[int] | None
    hidden_act: str
    hidden_size: int
    intermediate_size: int
    max_position_embeddings: int
    model_type: str
    num_attention_heads: int
    num_hidden_layers: int
    num_key_value_heads: int
    pad_token_id: int | None
    rms_norm_eps: float
    rope_parameters: RopeParameters
    tie_word_embeddings: bool
    use_cache: bool
    vocab_size: int

    def save_pretrained(self, save_directory: str | PathLike[str]) -> None: ...
    def to_dict(self) -> dict[str, object]: ...
