"""What vLLM's entry points name. Importing it imports neither torch, nor vLLM, nor this library."""

from __future__ import annotations

import importlib.util
import logging
from importlib.metadata import entry_points

__all__ = ["BACKEND_PATH", "PLATFORM_PATH", "platform", "register"]

BACKEND_PATH = "genericbuilders_vllm.inside.flash_attn.FlashAttnBackend"
"""The back end that ``--attention-backend CUSTOM`` stands for."""

PLATFORM_PATH = "genericbuilders_vllm.inside.platform.CustomCpuPlatform"
"""vLLM's CPU platform, and the choice of ``CUSTOM`` with it."""

_PLATFORM_GROUP = "vllm.platform_plugins"
# The platform this one stands in for. Where vLLM finds another (Zen with zentorch), it is left alone.
_CPU_PLATFORM = "vllm.platforms.cpu.CpuPlatform"

_logger = logging.getLogger(__name__)


def register() -> None:
    """Give vLLM's name ``CUSTOM`` to a back end of this library; the entry point in ``vllm.general_plugins``.

    Only a path is registered: nothing is imported before a user selects it, and calling it again changes nothing.
    A back end that another plug-in registered as ``CUSTOM`` stays. Never raises: what is wrong is a warning of the
    logger with this module's name.
    """
    try:
        _register()
    except Exception as error:
        _warn("register its back end as CUSTOM", error)


def platform() -> str | None:
    """The platform under which vLLM's CPU build can select ``CUSTOM``; the entry point in ``vllm.platform_plugins``.

    Returns:
        Its path; ``None``, which leaves vLLM's own platform in place, where vLLM does not run on its plain CPU
        platform, or where another platform plug-in is installed and allowed, since vLLM stops if two are active:
        ``VLLM_PLUGINS`` chooses. Never raises, as `register`.
    """
    try:
        return _platform()
    except Exception as error:
        _warn("let the CPU platform select CUSTOM", error)
        return None


def _register() -> None:
    if importlib.util.find_spec("genericbuilders") is None:
        raise ModuleNotFoundError("genericbuilders is not installed; run: pip install genericbuilders")
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    custom = AttentionBackendEnum.CUSTOM
    if custom.is_overridden():
        if custom.get_path() != BACKEND_PATH:
            _logger.info("CUSTOM is %s already; %s is not registered", custom.get_path(), BACKEND_PATH)
        return
    register_backend(custom, BACKEND_PATH)


def _platform() -> str | None:
    from vllm.platforms import cpu_platform_plugin

    if cpu_platform_plugin() != _CPU_PLATFORM or _other_platforms():
        return None
    # vLLM does not guard this import; a failure here would stop it.
    importlib.import_module(PLATFORM_PATH.rpartition(".")[0])
    return PLATFORM_PATH


def _other_platforms() -> list[str]:
    """Other platform plug-ins that vLLM would ask."""
    from vllm import envs

    allowed = envs.VLLM_PLUGINS
    found = [point for point in entry_points(group=_PLATFORM_GROUP) if not point.value.startswith(f"{__name__}:")]
    return [point.name for point in found if allowed is None or point.name in allowed]


def _warn(what: str, error: Exception) -> None:
    _logger.warning("the vLLM plug-in of genericbuilders cannot %s: %s: %s", what, type(error).__name__, error)
