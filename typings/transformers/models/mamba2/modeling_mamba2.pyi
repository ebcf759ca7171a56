from transformers.modeling_utils import PreTrainedModel
from transformers.models._mixer import _Mamba2Mixer
from transformers.models.mamba2.configuration_mamba2 import Mamba2Config

class Mamba2Mixer(_Mamba2Mixer): ...

class Mamba2ForCausalLM(PreTrainedModel):
    config: Mamba2Config

    def __init__(self, config: Mamba2Config) -> None: ...
