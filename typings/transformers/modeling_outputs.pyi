from torch import Tensor
from transformers.cache_utils import Cache

class BaseModelOutputWithPast:
    last_hidden_state: Tensor
    cache: Cache | None

class CausalLMOutputWithPast:
    logits: Tensor
    loss: Tensor | None
    cache: Cache | None

class BaseModelOutput:
    last_hidden_state: Tensor

class BaseModelOutputWithPooling:
    last_hidden_state: Tensor
    pooler_output: Tensor | None

class TokenClassifierOutput:
    logits: Tensor
    loss: Tensor | None

class Seq2SeqLMOutput:
    logits: Tensor
    loss: Tensor | None
