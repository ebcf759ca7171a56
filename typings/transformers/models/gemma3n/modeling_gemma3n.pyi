from transformers.modeling_utils import PreTrainedModel
from transformers.models.gemma3n.configuration_gemma3n import Gemma3nTextConfig

class Gemma3nForCausalLM(PreTrainedModel):
    config: Gemma3nTextConfig

    def __init__(self, config: Gemma3nTextConfig) -> None: ...
