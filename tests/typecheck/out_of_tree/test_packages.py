"""Wheels are unpacked whole or not at all, and what cannot be had is named with the reason."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from typecheck.out_of_tree import layout
from typecheck.out_of_tree.inventory import Tree
from typecheck.out_of_tree.packages import PACKAGES, VLLM, Package, Unpacked, fetch, unpack_wheel


def wheel(folder: Path, names: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "plug-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, f"# {name}\n")
    return path


def test_only_the_python_files_of_the_module(tmp_path: Path) -> None:
    made = wheel(tmp_path, ["plug/a.py", "plug/sub/b.py", "plug/c.so", "other/d.py", "plug-1.dist-info/METADATA"])
    unpack_wheel(made, "plug", tmp_path / "out")
    files = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*"))
    assert files == ["plug/a.py", "plug/sub/b.py"]


@pytest.mark.parametrize("name", ["plug/../../evil.py", "/plug/evil.py", "plug\\..\\evil.py"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    made = wheel(tmp_path, ["plug/a.py", name])
    with pytest.raises(ValueError, match="leads out of its folder"):
        unpack_wheel(made, "plug", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_wheel_without_the_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no Python file under plug/"):
        unpack_wheel(wheel(tmp_path, ["other/a.py"]), "plug", tmp_path / "out")


def test_what_is_cached_is_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheel(tmp_path / "wheels" / "plug-1", ["plug/a.py"])
    found, missing = fetch([Package("plug", "1", "plug")], tmp_path)
    assert missing == {}
    assert [(each.wheel, (each.root / "plug" / "a.py").is_file()) for each in found] == [
        ("plug-1-py3-none-any.whl", True)
    ]


def test_what_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    found, missing = fetch([Package("no-such-plug", "1", "plug")], tmp_path)
    assert found == []
    assert "No matching distribution found for no-such-plug==1" in missing["no-such-plug"]


def test_names_and_modules_are_unique_and_vllm_comes_first() -> None:
    assert PACKAGES[0] == VLLM
    assert len({package.name for package in PACKAGES}) == len({package.module for package in PACKAGES}) == len(PACKAGES)


def test_a_changed_file_does_not_reach_the_cached_source(tmp_path: Path, sources: list[Unpacked]) -> None:
    path = "plug/runner.py"
    before = (sources[1].root / path).read_text(encoding="utf-8")
    for _ in range(2):
        layout.lay_out(tmp_path / "laid", sources, {path: "changed\n", "new/file.py": "added\n"})
        assert (tmp_path / "laid" / path).read_text(encoding="utf-8") == "changed\n"
        assert (tmp_path / "laid" / "new" / "file.py").is_file()
        assert (tmp_path / "laid" / "vllm" / "config.py").is_file()
    assert (sources[1].root / path).read_text(encoding="utf-8") == before


def test_imports_that_moved_are_mended_and_the_rest_named(tiny: Path) -> None:
    (tiny / "plug" / "old.py").write_text(
        "from vllm.attention.backends.abstract import AttentionBackend\n"
        "from vllm.v1.attention.backends.full import AttentionMetadataBuilder, FullBuilder\n"
        "from vllm.v1.attention.gone import GoneBuilder, helper\n",
        encoding="utf-8",
    )
    mended, broken = layout.moved_names(Tree(tiny, ["vllm", "plug"]))
    assert mended == {"vllm.attention.backends.abstract": [("AttentionBackend", "vllm.v1.attention.backend")]}
    assert broken == ["plug/old.py:3: from vllm.v1.attention.gone import GoneBuilder"]
