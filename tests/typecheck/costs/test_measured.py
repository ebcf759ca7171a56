from __future__ import annotations

import json
from pathlib import Path

import pytest

from typecheck.corpus import Design
from typecheck.costs.measured import Checking, Cost, Costs, CostsError, Running, compared, read_costs, write_costs

W, G = Design.WIDENED, Design.GENERIC


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    # The machine is twice as slow in the last two rounds; generic takes half as much again in each.
    cost = compared({W: [2.0, 4.0, 4.0], G: [3.0, 6.0, 6.0]})

    assert cost[G] == Cost(6.0, 3.0, 6.0, 1.5)
    assert cost[W] == Cost(4.0, 2.0, 4.0, 1.0)
    # The ratio of the medians would be 0.8.
    assert compared({W: [1.0, 5.0, 9.0], G: [4.0, 20.0, 3.0]})[G].ratio == 4.0


@pytest.mark.parametrize("samples", [{}, {G: [1.0]}, {W: [1.0], G: [1.0, 2.0]}, {W: [], G: []}])
def test_samples_must_belong_together(samples: dict[Design, list[float]]) -> None:
    with pytest.raises(ValueError, match="as many of each"):
        _ = compared(samples)


@pytest.fixture
def costs() -> Costs:
    both = compared({W: [2.0], G: [3.0]})
    return Costs(
        "3.11.9",
        "2.0",
        5,
        100,
        (Checking("mypy", "strict", "2.4.1", both, both),),
        (Running("bind", both),),
        {"ty-all": "x"},
    )


def test_what_is_written_is_read(tmp_path: Path, costs: Costs) -> None:
    path = tmp_path / "new" / "costs.json"
    write_costs(path, costs)

    assert read_costs(path) == costs
    assert read_costs(path).checking[0].label == "mypy-strict"
    assert [each.name for each in path.parent.iterdir()] == ["costs.json"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"rounds": 5', '"rounds": "5"', "rounds"),
        ('"generic"', '"generous"', "generous"),
        ('"median": 2.0', '"middle": 2.0', "median"),
        ('"operation"', '"name"', "operation"),
        ("{", "", "not JSON"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, costs: Costs, old: str, new: str, message: str) -> None:
    path = tmp_path / "costs.json"
    write_costs(path, costs)
    text = path.read_text(encoding="utf-8")
    assert old in text
    _ = path.write_text(text.replace(old, new), encoding="utf-8")

    with pytest.raises(CostsError, match=f"costs.json: .*{message}.*typecheck measure"):
        _ = read_costs(path)


def test_what_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CostsError, match=r"costs\.json: .*typecheck measure"):
        _ = read_costs(tmp_path / "costs.json")


def test_figures_have_four_digits(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    both = compared({W: [3.0], G: [1.0]})
    write_costs(path, Costs("3", "2", 1, 1, (), (Running("bind", both),), {}))

    assert json.loads(path.read_text(encoding="utf-8"))["running"][0]["microseconds"]["generic"]["ratio"] == 0.3333
