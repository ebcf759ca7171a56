from transformers.modeling_utils import PreTrainedModel
from transformers.models.llama4.configuration_llama4 import Llama4TextConfig

class Llama4ForCausalLM(PreTrainedModel):
    config: Llama4TextConfig

    def __init__(self, config: Llama4TextConfig) -> None: ...
