"""``--target widened``: vLLM's own base as the merged change left it."""

from __future__ import annotations

import pytest
from migrated import migrate_package, migrate_text

from genericbuilders.migration.result import Outcome, Target

HEAD = """from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, KVCacheSpec, MambaSpec


class Meta:
    pass


class Mine(AttentionMetadataBuilder[Meta]):
"""
INIT = """    def __init__(self, kv_cache_spec: MambaSpec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
"""
HOOK = """
    @classmethod
    def get_cudagraph_support(cls, vllm_config: object, kv_cache_spec: MambaSpec) -> int:
        return {}
"""


def widen(source: str) -> str:
    made = migrate_text(source, Target.WIDENED)
    assert "genericbuilders" not in made.text()
    return made.text()


def test_annotation_is_added_and_the_hook_is_widened() -> None:
    after = widen(HEAD + INIT + HOOK.format(0))
    assert "class Mine(AttentionMetadataBuilder[Meta]):\n    kv_cache_spec: MambaSpec\n" in after
    assert "vllm_config: object, kv_cache_spec: KVCacheSpec) -> int" in after
    # No checker holds a constructor against its base's, and the merged change left them narrow.
    assert INIT in after


def test_after_a_docstring() -> None:
    after = widen(f'{HEAD}    """About."""\n\n{INIT}')
    assert (
        '    """About."""\n\n    kv_cache_spec: MambaSpec\n' in after
        or '    """About."""\n    kv_cache_spec: MambaSpec\n' in after
    )


def test_an_annotation_that_is_there_stays() -> None:
    after = widen(f"{HEAD}    kv_cache_spec: MambaSpec\n\n{INIT.replace(': MambaSpec', '')}")
    assert after == f"{HEAD}    kv_cache_spec: MambaSpec\n\n{INIT.replace(': MambaSpec', '')}"


@pytest.mark.parametrize(
    "line",
    [
        "self.n = kv_cache_spec.shapes",
        "helper(kv_cache_spec)",
        "self.mine: MambaSpec = kv_cache_spec",
        "spec = kv_cache_spec",
    ],
)
def test_a_hint_that_the_body_needs_stays(line: str) -> None:
    after = widen(f"{HEAD}{INIT}        {line}\n")
    assert "kv_cache_spec: MambaSpec, layer_names" in after or f"        {line}\n" not in after


def test_a_hook_hint_that_the_body_needs_stays() -> None:
    hook = HOOK.format("kv_cache_spec.num_speculative_blocks")
    after = widen(f"{HEAD}{INIT}{hook}")
    assert hook in after or "isinstance(kv_cache_spec, MambaSpec)" in after


def test_only_the_first_of_a_chain_is_annotated() -> None:
    after = widen(f"{HEAD}{INIT}\n\nclass Second(Mine):\n{INIT}")
    assert after.count("    kv_cache_spec: MambaSpec\n") == 1


def test_a_narrower_one_of_a_chain_is_annotated_too() -> None:
    after = widen(
        f"{HEAD}{INIT.replace('MambaSpec', 'AttentionSpec')}\n\nclass Second(Mine):\n{INIT.replace('MambaSpec', 'FullAttentionSpec')}"
    )
    assert "class Second(Mine):\n    kv_cache_spec: FullAttentionSpec\n" in after


def test_needless_assert_goes_and_narrower_stays() -> None:
    made = widen(
        f"{HEAD}{INIT.replace('MambaSpec', 'AttentionSpec')}        assert isinstance(self.kv_cache_spec, AttentionSpec)\n"
        "        assert isinstance(self.kv_cache_spec, FullAttentionSpec)\n"
    )
    assert "assert isinstance(self.kv_cache_spec, AttentionSpec)" not in made
    assert "assert isinstance(self.kv_cache_spec, FullAttentionSpec)" in made


def test_an_assert_that_a_widened_hint_needs_stays() -> None:
    after = widen(
        f"{HEAD}{INIT}        assert isinstance(kv_cache_spec, MambaSpec)\n        self.n = kv_cache_spec.shapes\n"
    )
    if "kv_cache_spec: KVCacheSpec, layer_names" in after:
        assert "assert isinstance(kv_cache_spec, MambaSpec)" in after
    else:
        assert "kv_cache_spec: MambaSpec, layer_names" in after


def test_a_spec_for_checkers_only_is_quoted() -> None:
    head = (
        "from typing import TYPE_CHECKING\n\nfrom vllm.v1.attention.backend import AttentionMetadataBuilder\n\n"
        "if TYPE_CHECKING:\n    from vllm.v1.kv_cache_interface import MambaSpec\n\n\n"
        "class Meta:\n    pass\n\n\nclass Mine(AttentionMetadataBuilder[Meta]):\n"
    )
    after = widen(head + INIT.replace("MambaSpec", '"MambaSpec"'))
    assert '    kv_cache_spec: "MambaSpec"\n' in after


def test_below_vllms_own_builder_that_is_annotated() -> None:
    source = (
        "from vllm.v1.attention.backends.mamba_attn import BaseMambaAttentionMetadataBuilder\n"
        "from vllm.v1.kv_cache_interface import MambaSpec\n\n\nclass Meta:\n    pass\n\n\n"
        f"class Mine(BaseMambaAttentionMetadataBuilder[Meta]):\n{INIT}"
    )
    assert "    kv_cache_spec: MambaSpec\n" not in widen(source)


def test_below_vllms_own_builder_that_is_not_annotated() -> None:
    source = (
        "from vllm.v1.attention.backends.flash_attn import FlashAttentionMetadataBuilder\n"
        "from vllm.v1.kv_cache_interface import AttentionSpec\n\n\n"
        f"class Mine(FlashAttentionMetadataBuilder):\n{INIT.replace('MambaSpec', 'AttentionSpec')}        self.n = self.kv_cache_spec.head_size\n"
    )
    assert "    kv_cache_spec: AttentionSpec\n" in widen(source)


def test_nothing_known_is_left() -> None:
    source = HEAD + "    pass\n"
    made = migrate_text(source, Target.WIDENED)
    assert made.text() == source
    assert made.report("Mine").outcome in (Outcome.REFUSED, Outcome.UNCHANGED)


def test_chain_over_files() -> None:
    made = migrate_package(
        {"first.py": HEAD + INIT, "second.py": "from .first import Mine\n\n\nclass Second(Mine):\n    pass\n"},
        Target.WIDENED,
    )
    assert made.text("second.py") == made.results["second.py"].before
