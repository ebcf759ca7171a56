from __future__ import annotations

from pathlib import Path

import pytest
from made_up_study import a_study, write

from typecheck.corpus import Design, read_corpus
from typecheck.costs.sources import SourcesError, sources


def test_core_authors_and_back_ends(tmp_path: Path) -> None:
    corpus = read_corpus(a_study(tmp_path))

    generic = sources(corpus, Design.GENERIC)
    assert len(generic.core) == 2
    assert "def narrow" in generic.core[1]
    assert len(generic.authors) == 2
    assert len(generic.back_ends) == 1
    assert "FullSpec" in generic.back_ends[0]
    assert not any("Shared" in text for text in (*generic.core, *generic.authors))


def test_a_core_that_defines_something_hands_nothing_on(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    text = "from study_core.adapter import narrow\n\n\nclass Base: ...\n"
    write(study, "designs/generic/core.py", text)

    assert sources(read_corpus(study), Design.GENERIC).core == (text,)


def test_a_package_that_is_handed_on_is_read_with_the_modules_that_it_hands_on(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    whole = (tmp_path / "study_core" / "adapter.py").read_text(encoding="utf-8")
    (tmp_path / "study_core" / "adapter.py").unlink()
    write(tmp_path, "study_core/adapter/__init__.py", "from study_core.adapter.bound import narrow\n")
    write(tmp_path, "study_core/adapter/bound.py", whole)

    core = sources(read_corpus(study), Design.GENERIC).core
    assert len(core) == 3
    assert core[2] == whole


def test_a_module_that_is_not_found_counts_not_as_nothing(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    (tmp_path / "study_core" / "adapter.py").unlink()

    with pytest.raises(SourcesError, match=r"study_core\.adapter is neither .* nor a package"):
        _ = sources(read_corpus(study), Design.GENERIC)
