"""What checkers make of ``kv_cache_spec``: ``reveal_type`` at call sites, and a module of questions about each builder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider

from typecheck.out_of_tree.inventory import Builder

__all__ = ["PROBE_FILE", "QUESTIONS", "ProbeModule", "RevealedSites", "probe_module", "reveal_sites"]

PROBE_FILE = "probe_of_builders.py"
# One line each, in this order, behind the builder's def line.
QUESTIONS = ("attribute", "hook", "constructor", "class_slot", "instance_slot")
_BUILDER_MAKERS = ("get_builder_cls", "get_metadata_builder")
_METADATA_MAKERS = ("build", "build_for_cudagraph_capture", "build_for_drafting", "update_block_table")


@dataclass(frozen=True)
class ProbeModule:
    """A module with `QUESTIONS` for each of ``builders``; ``first_lines[i]`` is the line of its first question."""

    code: str
    builders: tuple[Builder, ...]
    first_lines: tuple[int, ...]


def probe_module(builders: Sequence[Builder]) -> ProbeModule:
    """Ask about every builder that a module can import, from outside its class."""
    asked = tuple(builder for builder in builders if not builder.nested)
    lines = [
        "import torch",
        "from vllm.config import VllmConfig",
        "from vllm.v1.attention.backend import AttentionMetadataBuilder",
        "from vllm.v1.kv_cache_interface import KVCacheSpec",
    ]
    lines += [f"from {each.module} import {each.name} as B{number}" for number, each in enumerate(asked)]
    first_lines: list[int] = []
    for number in range(len(asked)):
        lines.append(
            f"def ask{number}(b: B{number}, c: VllmConfig, wide: KVCacheSpec, n: list[str], d: torch.device) -> None:"
        )
        first_lines.append(len(lines) + 1)
        lines += [
            "    reveal_type(b.kv_cache_spec)",
            f"    B{number}.get_cudagraph_support(c, wide)",
            f"    B{number}(wide, n, c, d)",
            f"    held: type[AttentionMetadataBuilder] = B{number}",
            "    one: AttentionMetadataBuilder = b",
        ]
    return ProbeModule("\n".join(lines) + "\n", asked, tuple(first_lines))


@dataclass(frozen=True)
class RevealedSites:
    """A file with its call sites wrapped; ``sites`` gives the line and the method of each."""

    code: str
    sites: tuple[tuple[int, str], ...]


def reveal_sites(source: str, builder_lines: Sequence[tuple[int, int]]) -> RevealedSites:
    """Wrap calls that yield a builder class, a builder or metadata in ``reveal_type``; lines keep their numbers.

    ``build`` and its kin count when what they are called on has "builder" in its text; calls inside builders
    (``builder_lines``: first and last line of each) and inside ``get_builder_cls`` are no call sites.
    """
    wrapper = MetadataWrapper(cst.parse_module(source))
    revealer = _Revealer(builder_lines)
    code = wrapper.visit(revealer).code
    return RevealedSites(code, tuple(sorted(revealer.sites)))


class _Revealer(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, builder_lines: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self._builder_lines = builder_lines
        self.sites: list[tuple[int, str]] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return node.name.value != "get_builder_cls"

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if not isinstance(original_node.func, cst.Attribute):
            return updated_node
        method = original_node.func.attr.value
        line = self.get_metadata(PositionProvider, original_node).start.line
        if any(first <= line <= last for first, last in self._builder_lines):
            return updated_node
        if method in _METADATA_MAKERS:
            receiver = cst.Module([]).code_for_node(original_node.func.value)
            if "builder" not in receiver or m.matches(original_node.func.value, m.Call(func=m.Name("super"))):
                return updated_node
        elif method not in _BUILDER_MAKERS:
            return updated_node
        self.sites.append((line, method))
        return cst.Call(func=cst.Name("reveal_type"), args=[cst.Arg(value=updated_node)])
