from transformers.configuration_utils import PreTrainedConfig

class Mamba2Config(PreTrainedConfig):
    chunk_size: int
    conv_kernel: int
    head_dim: int
    hidden_act: str
    layer_types: list[str]
    n_groups: int
    num_heads: int
    state_size: int
    time_step_limit: list[float] | tuple[float, ...]

    def __init__(
        self,
        *,
        vocab_size: int = ...,
        hidden_size: int = ...,
        num_hidden_layers: int = ...,
        chunk_size: int = 256,
        conv_kernel: int = 4,
        head_dim: int = 64,
        hidden_act: str = "silu",
        n_groups: int = 8,
        num_heads: int = 128,
        state_size: int = 128,
        time_step_limit: list[float] | tuple[float, ...] = ...,
    ) -> None: ...
