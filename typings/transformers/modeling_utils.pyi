from collections.abc import Callable
from os import PathLike
from typing import Literal, Self

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.configuration_utils import PreTrainedConfig
from transformers.generation.configuration_utils import GenerationConfig
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils.quantization_config import GgufConfig

class AttentionInterface:
    @classmethod
    def register(cls, key: str, value: Callable[..., tuple[Tensor, Tensor | None]]) -> None: ...
    def valid_keys(self) -> list[str]: ...
    def __contains__(self, key: object) -> bool: ...

ALL_ATTENTION_FUNCTIONS: AttentionInterface

# As a causal language model has it: `AutoModelForCausalLM` returns no other kind.
class PreTrainedModel(nn.Module):
    config: PreTrainedConfig
    generation_config: GenerationConfig | None
    lm_head: nn.Linear

    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...
    def __call__(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: object,
    ) -> CausalLMOutputWithPast: ...
    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str],
        *,
        config: PreTrainedConfig | None = None,
        dtype: torch.dtype | Literal["auto"] | None = None,
        attn_implementation: str | None = None,
        gguf_file: str | None = None,
        local_files_only: bool = False,
        low_cpu_mem_usage: bool = False,
        quantization_config: GgufConfig | None = None,
    ) -> Self: ...
    def generate(
        self,
        inputs: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: Tensor | None = None,
        do_sample: bool | None = None,
        eos_token_id: int | list[int] | None = None,
        input_ids: Tensor | None = None,
        max_new_tokens: int | None = None,
        min_new_tokens: int | None = None,
        pad_token_id: int | None = None,
    ) -> Tensor: ...
    def get_input_embeddings(self) -> nn.Embedding: ...
    def get_output_embeddings(self) -> nn.Linear: ...
    def save_pretrained(self, save_directory: str | PathLike[str], *, max_shard_size: int | str = "50GB") -> None: ...
    def set_attn_implementation(self, attn_implementation: str) -> None: ...
    def tie_weights(self) -> None: ...
