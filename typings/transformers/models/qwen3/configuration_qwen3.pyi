from transformers.modeling_rope_utils import RopeParameters
from transformers.models._decoder import _DecoderConfig

class Qwen3Config(_DecoderConfig):
    attention_bias: bool
    head_dim: int
    layer_types: list[str]
    sliding_window: int | None

    def __init__(
        self,
        *,
        architectures: list[str] | None = None,
        bos_token_id: int | None = ...,
        eos_token_id: int | list[int] | None = ...,
        hidden_act: str = "silu",
        hidden_size: int = 4096,
        initializer_range: float = 0.02,
        intermediate_size: int = ...,
        max_position_embeddings: int = ...,
        num_attention_heads: int = 32,
        num_hidden_layers: int = 32,
        num_key_value_heads: int | None = ...,
        pad_token_id: int | None = None,
        rms_norm_eps: float = 1e-6,
        rope_parameters: RopeParameters | None = None,
        tie_word_embeddings: bool = False,
        use_cache: bool = True,
        vocab_size: int = ...,
        attention_bias: bool = False,
        head_dim: int = 128,
        layer_types: list[str] | None = None,
        max_window_layers: int = 28,
        sliding_window: int | None = 4096,
        use_sliding_window: bool = False,
    ) -> None: ...
