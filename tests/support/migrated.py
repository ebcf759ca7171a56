"""Migrates a small package in memory, with what must hold of every migration checked on the way."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import types
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ForwardRef, Generic, TypeVar
from unittest.mock import patch

import typing_extensions

from genericbuilders import specs
from genericbuilders.migration.engine import migrate
from genericbuilders.migration.project import Project
from genericbuilders.migration.result import ClassReport, FileResult, Finding, Target

__all__ = ["Migration", "comments", "migrate_package", "migrate_text"]

ROOT = Path("/project/mine")
OUR_BASES = ("genericbuilders.builder", "genericbuilders_vllm.base")
VLLM_BASES = ("vllm.v1.attention.backend", "vllm.v1.attention.backends.utils")


@dataclass(frozen=True)
class Migration:
    """What came of a package."""

    results: Mapping[str, FileResult]

    def text(self, name: str = "attention.py") -> str:
        """A file as it would be."""
        return self.results[name].after

    def report(self, cls: str) -> ClassReport:
        """What is said of one class, in whatever file."""
        (found,) = [each for result in self.results.values() for each in result.classes if each.name == cls]
        return found

    def rules(self, changes: bool) -> set[str]:
        """The rules of all findings that change something, or that do not."""
        return {each.rule for each in self.findings() if each.changes is changes}

    def findings(self) -> list[Finding]:
        """All findings, of classes and of files."""
        found: list[Finding] = []
        for result in self.results.values():
            found += [*result.findings, *(each for cls in result.classes for each in cls.findings)]
        return found

    def told(self, cls: str) -> str:
        """All that is said of one class, in one text."""
        report = self.report(cls)
        return " ".join([str(report.evidence), *(f"{each.rule}: {each.message}" for each in report.findings)])

    def base(self, cls: str, index: int = 0, name: str = "attention.py") -> str:
        """One base of a class as it would be, without quotes and spaces."""
        (found,) = [each for each in ast.walk(ast.parse(self.text(name))) if _is(each, cls)]
        assert isinstance(found, ast.ClassDef)
        return ast.unparse(found.bases[index]).replace("'", "").replace(" ", "")

    def arguments(self, cls: str) -> tuple[str, ...]:
        """What Python itself makes of the arguments of the class's first generic base, once it runs.

        All files are run, in the order in which they import each other, on stand-ins for vLLM.
        """
        base, namespace = self._run(cls)
        return tuple(_name(each, namespace) for each in typing_extensions.get_args(base))

    def _run(self, cls: str) -> tuple[object, dict[str, object]]:
        with patch.dict(sys.modules, _stand_ins()):
            _import({name: self.text(name) for name in self.results})
            for name in self.results:
                found = getattr(sys.modules[_module(name)], cls, None)
                if isinstance(found, type) and found.__module__ == _module(name):
                    bases = [base for base in typing_extensions.get_original_bases(found) if hasattr(base, "__args__")]
                    return bases[0], dict(vars(sys.modules[_module(name)]))
        raise LookupError(f"no class {cls}")


def migrate_text(source: str, target: Target = Target.GENERIC) -> Migration:
    """Migrate a package of one file."""
    return migrate_package({"attention.py": source}, target)


def migrate_package(files: Mapping[str, str], target: Target = Target.GENERIC) -> Migration:
    """Migrate a package called ``mine``, and check that all imports as before, no comment is lost, and a second time
    nothing changes.

    Files are to come in the order in which they import each other. What needs more than the stand-ins have is not run.
    """
    first = _migrate(files, target)
    for name, result in first.items():
        compile(result.after, name, "exec")
        assert comments(result.after) == comments(result.before), name
        assert result.after.count("\f") == result.before.count("\f"), name
        assert result.before == files[name]
        assert result.changed == any(each.changes for each in _all(result)), (name, _all(result))
        for line in (each.line for each in _all(result)):
            assert 1 <= line <= files[name].count("\n") + 1
    if _fault(files) is None:
        after = _fault({name: result.after for name, result in first.items()})
        assert after is None, f"the new files do not import: {after!r}"
    again = _migrate({name: result.after for name, result in first.items()}, target)
    for name, result in again.items():
        assert result.after == first[name].after, f"a second run changes {name}"
        assert not [each for each in _all(result) if each.changes]
    return Migration(first)


def comments(text: str) -> Counter[str]:
    """How often each comment stands in a text."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(each.string.rstrip() for each in tokens if each.type == tokenize.COMMENT)


def _import(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        module = types.ModuleType(_module(name))
        module.__package__ = "mine"
        sys.modules[module.__name__] = module
        setattr(sys.modules["mine"], name.removesuffix(".py"), module)
        exec(compile(text, name, "exec"), vars(module))


def _fault(files: Mapping[str, str]) -> Exception | None:
    """Why the files cannot be run on the stand-ins."""
    with patch.dict(sys.modules, _stand_ins()):
        try:
            _import(files)
        except Exception as fault:  # whatever they raise
            return fault
    return None


def _all(result: FileResult) -> list[Finding]:
    return [*result.findings, *(each for cls in result.classes for each in cls.findings)]


def _migrate(files: Mapping[str, str], target: Target) -> dict[str, FileResult]:
    texts = {ROOT / "__init__.py": "", **{ROOT / name: text for name, text in files.items()}}
    project = Project.read(texts)
    assert not project.unparsed
    relevant = set(project.relevant())
    made: dict[str, FileResult] = {}
    for name, text in files.items():
        path = ROOT / name
        made[name] = migrate(project, path, target) if path in relevant else FileResult(path, text, text, (), ())
    return made


def _is(node: ast.AST, cls: str) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == cls


def _module(name: str) -> str:
    return f"mine.{name.removesuffix('.py')}"


def _name(argument: object, namespace: dict[str, object]) -> str:
    if isinstance(argument, ForwardRef):
        # What is quoted has to be there at run time all the same: `generic_arguments` looks it up.
        argument = eval(argument.__forward_arg__, namespace)
    return argument.__name__ if isinstance(argument, type | TypeVar) else str(argument)


def _stand_ins() -> dict[str, types.ModuleType]:
    """Modules that have vLLM's names, one-parameter base included, and this library's two-parameter bases."""
    made: dict[str, types.ModuleType] = {}
    first = TypeVar("first")
    SpecT = typing_extensions.TypeVar("SpecT", bound=specs.KVCacheSpec, default=specs.KVCacheSpec)

    class One(Generic[first]):
        pass

    class Two(One[first], Generic[first, SpecT]):
        pass

    contents: dict[str, dict[str, Any]] = {
        **{
            name: {"AttentionMetadataBuilder": One, "AttentionBackend": type("AttentionBackend", (), {})}
            for name in VLLM_BASES
        },
        **{name: {"AttentionMetadataBuilder": Two, "SpecT": SpecT} for name in OUR_BASES},
        "vllm.config": {"VllmConfig": type("VllmConfig", (), {})},
        "vllm.v1.kv_cache_interface": {name: getattr(specs, name) for name in specs.__all__},
        "genericbuilders.specs": {name: getattr(specs, name) for name in specs.__all__},
    }
    for name, content in contents.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            made.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
        vars(made[name]).update(content)
    made["mine"] = types.ModuleType("mine")
    made["mine"].__path__ = []
    return made
