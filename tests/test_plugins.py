"""Entry points: what they may name, and what happens when they fail."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
from toy_backends import dense_adapter, state_adapter

from genericbuilders.plugins import ENTRY_POINT_GROUP, Plugin, discover
from genericbuilders.registry import DuplicateAdapterError


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("made_up_plugin")
    monkeypatch.setitem(sys.modules, "made_up_plugin", made)
    return made


def point(value: str) -> EntryPoint:
    return EntryPoint(value.partition(":")[2] or value, value, ENTRY_POINT_GROUP)


def test_an_adapter_and_a_plugin_are_both_taken(module: ModuleType) -> None:
    state, dense = state_adapter(), dense_adapter()
    module.__dict__.update(single=state, several=Plugin("several", (dense,)))
    found = discover(found=[point("made_up_plugin:single"), point("made_up_plugin:several")])
    assert list(found.registry) == [state, dense]
    assert not found.failures


def test_one_that_raises_is_listed_and_the_others_load(module: ModuleType) -> None:
    state = state_adapter()
    module.__dict__.update(single=state, number=3)
    found = discover(
        found=[
            point("no_such_package_here:thing"),
            point("made_up_plugin:absent"),
            point("made_up_plugin:number"),
            point("made_up_plugin:single"),
        ]
    )
    assert list(found.registry) == [state]
    reasons = [failure.reason for failure in found.failures]
    assert [failure.entry_point for failure in found.failures] == [
        "thing = no_such_package_here:thing",
        "absent = made_up_plugin:absent",
        "number = made_up_plugin:number",
    ]
    assert "ModuleNotFoundError" in reasons[0]
    assert "AttributeError" in reasons[1]
    assert "is a int; a Plugin, an Adapter or a ModelLoader is expected" in reasons[2]


def test_two_of_one_name_are_an_error_that_names_the_entry_point(module: ModuleType) -> None:
    module.__dict__.update(single=dense_adapter())
    with pytest.raises(DuplicateAdapterError, match=r"made_up_plugin:single.*two adapters are called 'dense'"):
        discover([dense_adapter()], [point("made_up_plugin:single")])


def test_a_plugin_that_quits_or_brings_something_strange_is_listed(module: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "quitting_plugin.py").write_text("import sys\nsys.exit('I quit')\n")
    sys.path.insert(0, str(tmp_path))
    module.__dict__.update(strange=Plugin("strange", adapters=(object(),)), single=state_adapter())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no adapter
    try:
        found = discover(
            found=[point("quitting_plugin:thing"), point("made_up_plugin:strange"), point("made_up_plugin:single")]
        )
    finally:
        sys.path.remove(str(tmp_path))
    assert [adapter.name for adapter in found.registry] == ["state"]
    assert "I quit" in found.failures[0].reason
    assert "neither an Adapter nor a ModelLoader" in found.failures[1].reason
