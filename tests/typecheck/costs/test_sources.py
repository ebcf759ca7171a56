from __future__ import annotations

from pathlib import Path

from made_up_study import a_study, write

from typecheck.corpus import Design, read_corpus
from typecheck.costs.sources import sources


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
