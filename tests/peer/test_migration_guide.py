"""Follows docs/migration-guide.md, command by command, on copies of a released plug-in and of vLLM (make test-peer)."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from genericbuilders.migration.result import Outcome, Target
from typecheck.migration.checked import PROBE, PROBE_FILE, Checked, check_tree, differences
from typecheck.migration.copies import Migrated, copy_sources, migrate_copy
from typecheck.migration.measure import sources
from typecheck.out_of_tree.checking import LANES, Finding, find
from typecheck.out_of_tree.inventory import Builder
from typecheck.out_of_tree.packages import VLLM, Unpacked
from typecheck.out_of_tree.study import Study

GUIDE = Path(__file__).parents[2] / "docs" / "migration-guide.md"
COMMAND = re.compile(r"^genericbuilders (migrate src.*)$", re.MULTILINE)
PLUGIN = "vllm-kunlun"
CALLS = "call_sites.py"
# Step 4 of the guide, with names that the copy has.
CALL_SITES = """import torch
from vllm.v1.attention.backends.mamba1_attn import Mamba1AttentionMetadata, Mamba1AttentionMetadataBuilder

from genericbuilders.adapter import Step
from genericbuilders.config import EngineConfig, StateLayerConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaSpec
from genericbuilders_vllm import wrap

STATES = wrap(Mamba1AttentionMetadataBuilder, spec=MambaSpec, metadata=Mamba1AttentionMetadata)


def run(spec: MambaSpec, config: EngineConfig, heads: StateLayerConfig, common: CommonAttentionMetadata) -> None:
    layer = STATES.layer("layers.0", heads)
    group = STATES.bind(spec, [layer], config, torch.device("cpu"))
    step = Step()
    group.build(common, step)
    reveal_type(group.spec)
    reveal_type(step[layer])
"""


@dataclass(frozen=True)
class Followed:
    """What came of the steps that rewrite, by target."""

    root: Path
    migrated: dict[Target, list[Migrated]]
    checked: dict[Target, list[Checked]]


@pytest.fixture(scope="module")
def followed() -> Followed:
    cache = user_cache_path("genericbuilders")
    found = [each for each in sources(cache / "out-of-tree") if each.package.name in (PLUGIN, VLLM.name)]
    work = cache / "migration-guide"
    study = Study.prepare(found, work)
    trees = {name: work / name for name in ("before", *Target)}
    shutil.rmtree(work / "checker-caches", ignore_errors=True)
    copy_sources(trees["before"], found, {**study.shims, PROBE_FILE: PROBE})
    migrated: dict[Target, list[Migrated]] = {}
    root = trees["before"]
    for target in (Target.WIDENED, Target.GENERIC):  # each step starts from what the last one left
        shutil.rmtree(trees[target], ignore_errors=True)
        shutil.copytree(root, trees[target])
        root = trees[target]
        # Their lines are those of the files as they were.
        builders = study.inventory.builders if not migrated else ()
        migrated[target] = [_migrate(root, each, target, builders) for each in found]
    files = sorted({file for each in migrated.values() for package in each for file in package.changed})
    findings = [check_tree(trees["before"], files, work / "checker-caches")]
    checked: dict[Target, list[Checked]] = {}
    before = trees["before"]
    for target, packages in migrated.items():
        findings.append(check_tree(trees[target], files, work / "checker-caches", before.name))
        checked[target] = differences(findings[-2], findings[-1], (before, trees[target]), packages)
        before = trees[target]
    return Followed(root, migrated, checked)


def _migrate(root: Path, source: Unpacked, target: Target, builders: Sequence[Builder]) -> Migrated:
    return migrate_copy(root, source, target, [each for each in builders if each.package == source.package.module])


@pytest.mark.peer
def test_the_commands_of_the_page_are_those_that_are_followed() -> None:
    assert COMMAND.findall(GUIDE.read_text(encoding="utf-8")) == [
        "migrate src",
        "migrate src --target widened --write",
        "migrate src --write",
        "migrate src --check",
    ]


@pytest.mark.peer
@pytest.mark.parametrize("target", list(Target))
def test_each_step_leaves_the_checkers_no_worse(followed: Followed, target: Target) -> None:
    assert [fault for each in followed.migrated[target] for fault in each.faults] == []
    assert [line for each in followed.checked[target] for line in (*each.new, *each.elsewhere)] == []
    counts = {each.module: each.count(Outcome.MIGRATED) for each in followed.migrated[target]}
    assert all(counts.values()), counts


@pytest.mark.peer
@pytest.mark.parametrize("module", ["vllm_kunlun", "vllm"])
def test_at_the_end_nothing_is_left_to_do(followed: Followed, module: str) -> None:
    last = shlex.split(COMMAND.findall(GUIDE.read_text(encoding="utf-8"))[-1].replace("src", module))
    done = subprocess.run(
        [sys.executable, "-m", "genericbuilders.cli", *last], cwd=followed.root, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.peer
@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.checker.name)
def test_a_call_site_of_a_migrated_builder_is_typed(followed: Followed, lane: object) -> None:
    (used,) = [each for each in LANES if each is lane]
    (followed.root / CALLS).write_text(CALL_SITES, encoding="utf-8")
    caches = followed.root.parent / "checker-caches"
    findings, _ = find(used, followed.root, [CALLS], caches / f"{used.checker.name}-{followed.root.name}")
    assert _by_kind(findings, "error") == []
    assert [each.rpartition(".")[2] for each in _by_kind(findings, "reveal")] == [
        "MambaSpec",
        "Mamba1AttentionMetadata",
    ]


def _by_kind(findings: list[Finding], kind: str) -> list[str]:
    return [each.message for each in findings if each.kind == kind]
