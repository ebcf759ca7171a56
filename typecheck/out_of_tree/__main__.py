"""``python -m typecheck.out_of_tree``: measure the designs in vLLM's own tree and out of it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from platformdirs import user_cache_path

from typecheck.out_of_tree.checking import LANES
from typecheck.out_of_tree.describe import describe
from typecheck.out_of_tree.designs import DESIGNS
from typecheck.out_of_tree.packages import PACKAGES, VLLM, fetch
from typecheck.out_of_tree.study import Study, measure

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Fetch, measure, write; 0 when done, 1 when vLLM itself cannot be had."""
    here = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(prog="python -m typecheck.out_of_tree", description=__doc__)
    parser.add_argument("--cache", type=Path, default=user_cache_path("genericbuilders") / "out-of-tree")
    parser.add_argument("--output", type=Path, default=here / "results" / "out-of-tree.json")
    parser.add_argument("--design", action="append", choices=[design.name for design in DESIGNS])
    options = parser.parse_args(arguments)
    sources, missing = fetch(PACKAGES, options.cache)
    if VLLM.name in missing:
        _say(f"{VLLM.name}=={VLLM.version} cannot be had: {missing[VLLM.name]}")
        return 1
    chosen = [each for each in DESIGNS if each == DESIGNS[0] or not options.design or each.name in options.design]
    study = Study.prepare(sources, options.cache)
    result: dict[str, object] = {
        **describe(study),
        "not_to_be_had": missing,
        "levels": {lane.checker.name: lane.options for lane in LANES},
        "designs": list(measure(study, chosen, options.cache, _say)),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    partial = options.output.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(options.output)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - progress of a run of many minutes


if __name__ == "__main__":
    sys.exit(main())
