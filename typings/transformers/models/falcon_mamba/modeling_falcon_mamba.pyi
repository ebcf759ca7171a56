from transformers.modeling_utils import PreTrainedModel
from transformers.models._mixer import _MambaMixer
from transformers.models.falcon_mamba.configuration_falcon_mamba import FalconMambaConfig

class FalconMambaMixer(_MambaMixer): ...

class FalconMambaForCausalLM(PreTrainedModel):
    config: FalconMambaConfig

    def __init__(self, config: FalconMambaConfig) -> None: ...
