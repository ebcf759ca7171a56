from transformers.configuration_utils import PreTrainedConfig

class FalconMambaConfig(PreTrainedConfig):
    conv_kernel: int
    hidden_act: str
    layer_types: list[str]
    state_size: int
    use_bias: bool
    use_conv_bias: bool

    def __init__(
        self,
        *,
        vocab_size: int = ...,
        hidden_size: int = ...,
        num_hidden_layers: int = ...,
        state_size: int = 16,
        conv_kernel: int = 4,
        hidden_act: str = "silu",
        use_bias: bool = False,
        use_conv_bias: bool = True,
    ) -> None: ...
