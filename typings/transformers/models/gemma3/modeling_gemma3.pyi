from transformers.modeling_utils import PreTrainedModel
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig

class Gemma3ForCausalLM(PreTrainedModel):
    config: Gemma3TextConfig

    def __init__(self, config: Gemma3TextConfig) -> None: ...
