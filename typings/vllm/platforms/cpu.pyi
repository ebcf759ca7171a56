from vllm.platforms import Platform
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.attention.selector import AttentionSelectorConfig

class CpuPlatform(Platform):
    @classmethod
    def get_device_capability(cls, device_id: int = ...) -> object: ...
    @classmethod
    def get_attn_backend_cls(
        cls,
        selected_backend: AttentionBackendEnum | None,
        attn_selector_config: AttentionSelectorConfig,
        num_heads: int | None = ...,
    ) -> str: ...
