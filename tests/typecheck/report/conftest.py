from __future__ import annotations

from pathlib import Path

import pytest

from typecheck.report.evidence import Evidence, read_evidence
from typecheck.report.summary import Summary, summarise
from typecheck.study import labels


@pytest.fixture
def evidence(study: Path) -> Evidence:
    return read_evidence(study, labels())


@pytest.fixture
def summary(evidence: Evidence) -> Summary:
    return summarise(evidence)
