from __future__ import annotations

from pathlib import Path

import pytest
from made_up_study import a_study

from typecheck.report.evidence import Evidence, read_evidence
from typecheck.report.summary import Summary, summarise
from typecheck.study import labels


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return a_study(tmp_path)


@pytest.fixture
def evidence(study: Path) -> Evidence:
    return read_evidence(study, labels())


@pytest.fixture
def summary(evidence: Evidence) -> Summary:
    return summarise(evidence)
