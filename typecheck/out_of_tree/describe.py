"""What was measured: the packages, the builders in them, the tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version

from typecheck.out_of_tree.figures import Json, sorted_counts
from typecheck.out_of_tree.inventory import Builder
from typecheck.out_of_tree.packages import VLLM
from typecheck.out_of_tree.study import Study

__all__ = ["describe"]


def describe(study: Study) -> Json:
    """The sources and the builders in them, as the results state them."""
    return {
        "packages": {
            source.package.name: {
                "version": source.package.version,
                "wheel": source.wheel,
                "sha256": source.sha256,
                "files_checked": sum(path.startswith(f"{source.package.module}/") for path in study.files),
            }
            for source in study.sources
        },
        "builders": {package: _count(study.inventory.of(package)) for package in study.tree.packages},
        "not_judged": [f"{path}:{line}: {name}({bases})" for path, line, name, bases in study.inventory.unjudged],
        "imports_mended": {
            origin: [f"{name} from {home}" for name, home in names] for origin, names in study.mended.items()
        },
        "imports_left_broken": list(study.broken),
        "tools": {name: version(name) for name in ("mypy", "pyright", "libcst", "torch", "typing_extensions")},
        "reference": VLLM.name,
    }


def _count(builders: Sequence[Builder]) -> Json:
    direct = [each for each in builders if each.direct]
    hooks = Counter(hint or "(none)" for each in builders for hint in each.hook_hints.values())
    said = Counter((each.own_spec or "(none)") for each in builders)
    return {
        "builders": len(builders),
        "direct": len(direct),
        "direct_with_one_argument": sum(each.arguments == 1 for each in direct),
        "direct_without_argument": sum(each.arguments == 0 for each in direct),
        "direct_with_a_narrow_spec": sum(each.narrow for each in direct),
        "indirect": sum(not each.direct and not each.dynamic_base for each in builders),
        "indirect_with_a_spec_of_their_own": sum(
            each.narrow and not each.direct and not each.dynamic_base for each in builders
        ),
        "made_in_functions": sum(each.nested for each in builders),
        "base_known_at_run_time_only": sum(each.dynamic_base for each in builders),
        "spec_said": sorted_counts(said),
        "hook_overrides": sorted_counts(hooks),
    }
