from transformers.modeling_utils import PreTrainedModel
from transformers.models._mixer import _MambaMixer
from transformers.models.jamba.configuration_jamba import JambaConfig

class JambaMambaMixer(_MambaMixer): ...

class JambaForCausalLM(PreTrainedModel):
    config: JambaConfig

    def __init__(self, config: JambaConfig) -> None: ...
