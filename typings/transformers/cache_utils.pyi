from transformers.configuration_utils import PreTrainedConfig

class Cache:
    def get_seq_length(self, layer_idx: int = 0) -> int: ...

class DynamicCache(Cache):
    def __init__(self, *, config: PreTrainedConfig | None = None) -> None: ...
