from __future__ import annotations

from pathlib import Path

import pytest
from made_up_study import a_study


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return a_study(tmp_path)
