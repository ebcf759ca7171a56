from collections.abc import Collection, Mapping
from os import PathLike
from typing import Literal, overload

import torch
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils.quantization_config import GgufConfig

class AutoConfig:
    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | PathLike[str], *, local_files_only: bool = False
    ) -> PreTrainedConfig: ...

class AutoModelForCausalLM:
    @classmethod
    def from_config(
        cls,
        config: PreTrainedConfig,
        *,
        attn_implementation: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> PreTrainedModel: ...
    @overload
    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str],
        *,
        attn_implementation: str | None = None,
        config: PreTrainedConfig | None = None,
        dtype: torch.dtype | Literal["auto"] | None = None,
        gguf_file: str | None = None,
        local_files_only: bool = False,
        low_cpu_mem_usage: bool = False,
        output_loading_info: Literal[False] = False,
        quantization_config: GgufConfig | None = None,
    ) -> PreTrainedModel: ...
    @overload
    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str],
        *,
        attn_implementation: str | None = None,
        config: PreTrainedConfig | None = None,
        dtype: torch.dtype | Literal["auto"] | None = None,
        gguf_file: str | None = None,
        local_files_only: bool = False,
        low_cpu_mem_usage: bool = False,
        output_loading_info: Literal[True],
        quantization_config: GgufConfig | None = None,
    ) -> tuple[PreTrainedModel, Mapping[str, Collection[object]]]: ...

class AutoTokenizer:
    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str],
        *,
        gguf_file: str | None = None,
        local_files_only: bool = False,
        padding_side: Literal["left", "right"] = ...,
        trust_remote_code: bool = False,
    ) -> PreTrainedTokenizerBase: ...
