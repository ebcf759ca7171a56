"""What checkers make of ``kv_cache_spec``: ``reveal_type`` at call sites, a module of questions on builders."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    """A file with its call sites wrapped; ``sites`` gives the line and the method of each, in order."""

    code: str
    sites: tuple[tuple[int, str], ...]


def reveal_sites(source: str, builder_lines: Sequence[tuple[int, int]]) -> RevealedSites:
    """Wrap calls that yield a builder class, a builder or metadata in ``reveal_type``; lines keep their numbers.

    ``build`` and its kin count when what they are called on has "builder" in its text; calls inside builders
    (``builder_lines``: first and last line of each) and inside ``get_builder_cls`` are no call sites.
    """
    lines = source.encode().splitlines(keepends=True)
    edits: list[tuple[int, int, bytes]] = []
    sites: list[tuple[int, int, int, int, str]] = []
    for call, method in _sites(ast.parse(source)):
        if any(first <= call.lineno <= last for first, last in builder_lines):
            continue
        if call.end_lineno is None or call.end_col_offset is None:
            raise ValueError(f"line {call.lineno}: a call without an end; it was not parsed from text")
        # Outer before inner, which is the order of the columns that the checkers give.
        sites.append((call.lineno, call.col_offset, -call.end_lineno, -call.end_col_offset, method))
        edits.append((call.lineno, call.col_offset, b"reveal_type("))
        edits.append((call.end_lineno, call.end_col_offset, b")"))
    # From the end, so that no edit moves the place of another; at one place, what closes comes before what opens.
    for line, column, text in sorted(edits, key=lambda edit: (edit[0], edit[1], edit[2] != b")"), reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + text + old[column:]
    return RevealedSites(b"".join(lines).decode(), tuple((site[0], site[-1]) for site in sorted(sites)))


def _sites(node: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and child.name == "get_builder_cls":
            continue
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and _yields(child.func):
            yield child, child.func.attr
        yield from _sites(child)


def _yields(function: ast.Attribute) -> bool:
    if function.attr in _METADATA_MAKERS:
        receiver = ast.unparse(function.value)
        return "builder" in receiver and not receiver.startswith("super()")
    return function.attr in _BUILDER_MAKERS
