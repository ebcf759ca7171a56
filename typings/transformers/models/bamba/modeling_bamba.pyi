from transformers.modeling_utils import PreTrainedModel
from transformers.models._mixer import _Mamba2Mixer
from transformers.models.bamba.configuration_bamba import BambaConfig

class BambaMixer(_Mamba2Mixer): ...

class BambaForCausalLM(PreTrainedModel):
    config: BambaConfig

    def __init__(self, config: BambaConfig) -> None: ...
