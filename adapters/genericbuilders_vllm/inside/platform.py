"""vLLM's CPU platform, on which ``CUSTOM`` can be selected."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from typing_extensions import override
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.attention.backends.registry import AttentionBackendEnum

if TYPE_CHECKING:
    from vllm.v1.attention.selector import AttentionSelectorConfig

__all__ = ["CustomCpuPlatform"]

# Below vLLM's own, so that it is shown where vLLM's messages are.
_logger = logging.getLogger("vllm.genericbuilders")


class CustomCpuPlatform(CpuPlatform):
    """The CPU platform in everything but one: a selected ``CUSTOM`` is taken, which vLLM's own ignores."""

    @classmethod
    @override
    def get_attn_backend_cls(
        cls,
        selected_backend: AttentionBackendEnum | None,
        attn_selector_config: AttentionSelectorConfig,
        num_heads: int | None = None,
    ) -> str:
        """The path of the back end for a layer.

        Raises:
            ValueError: ``CUSTOM`` is selected, and nothing is registered by that name, it cannot be imported, or it
                does not serve the layer; its reasons are in the message.
        """
        if selected_backend is not AttentionBackendEnum.CUSTOM:
            return super().get_attn_backend_cls(selected_backend, attn_selector_config, num_heads)
        path = selected_backend.get_path()
        try:
            backend = selected_backend.get_class()
        except Exception as error:
            raise ValueError(
                f"attention backend CUSTOM is {path}, which cannot be imported: {type(error).__name__}: {error}"
            ) from error
        reasons = backend.validate_configuration(
            device_capability=cls.get_device_capability(), **attn_selector_config._asdict()
        )
        if reasons:
            raise ValueError(
                f"attention backend CUSTOM is {path}, which does not serve this model and configuration: "
                f"{'; '.join(reasons)}. Select another with --attention-backend, or none"
            )
        _logger.info("Using attention backend CUSTOM: %s", path)
        return path
