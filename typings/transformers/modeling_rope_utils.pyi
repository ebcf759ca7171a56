from typing import TypedDict

class RopeParameters(TypedDict, total=False):
    rope_theta: float
    rope_type: str
    partial_rotary_factor: float
    factor: float
    original_max_position_embeddings: int
    attention_factor: float
    low_freq_factor: float
    high_freq_factor: float
