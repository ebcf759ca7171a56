from transformers.modeling_utils import PreTrainedModel
from transformers.models.gemma2.configuration_gemma2 import Gemma2Config

class Gemma2ForCausalLM(PreTrainedModel):
    config: Gemma2Config

    def __init__(self, config: Gemma2Config) -> None: ...
