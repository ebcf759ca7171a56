from collections.abc import Callable

from torch import Tensor

class AttentionMaskInterface:
    @classmethod
    def register(cls, key: str, value: Callable[..., Tensor | None]) -> None: ...
    def valid_keys(self) -> list[str]: ...
    def __contains__(self, key: object) -> bool: ...

ALL_MASK_ATTENTION_FUNCTIONS: AttentionMaskInterface
