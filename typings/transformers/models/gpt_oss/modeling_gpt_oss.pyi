from transformers.modeling_utils import PreTrainedModel
from transformers.models.gpt_oss.configuration_gpt_oss import GptOssConfig

class GptOssForCausalLM(PreTrainedModel):
    config: GptOssConfig

    def __init__(self, config: GptOssConfig) -> None: ...
