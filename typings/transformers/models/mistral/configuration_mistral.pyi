from transformers.modeling_rope_utils import RopeParameters
from transformers.models._decoder import _DecoderConfig

class MistralConfig(_DecoderConfig):
    head_dim: int
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
        head_dim: int | None = None,
        sliding_window: int | None = 4096,
    ) -> None: ...
