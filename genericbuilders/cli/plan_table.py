"""The plan of a model's caches, as a table on stderr."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from genericbuilders.cache import CachePlan, GroupPlan, PoolStrategy

__all__ = ["show_cache_plan"]

# Where the width is not known, as in a file.
WIDTH = 120
# Columns of a terminal from which on a table can be read.
NARROW = 90
MIB = 2**20


def show_cache_plan(plan: CachePlan) -> None:
    """Write each group's layers, pages, blocks and waste, and what they come to."""
    console = Console(stderr=True)
    if not console.is_terminal:
        console = Console(stderr=True, width=WIDTH)
    if console.width < NARROW:
        # A table would have a few letters in a cell.
        for index, group in enumerate(plan.groups):
            told = ", ".join(f"{name} {cell}" for name, cell in _cells(group).items())
            console.print(f"cache group {index}: {told}", soft_wrap=True, highlight=False, markup=False)
    else:
        console.print(_table(plan))
    console.print(_summary(plan), soft_wrap=True, highlight=False)


def _table(plan: CachePlan) -> Table:
    table = Table(title="cache plan", title_justify="left")
    table.add_column("group", overflow="fold")
    for name in _cells(plan.groups[0]):
        table.add_column(name, overflow="fold", justify="left" if name in ("layers", "spec") else "right")
    for index, group in enumerate(plan.groups):
        table.add_row(str(index), *map(Text, _cells(group).values()))
    return table


def _cells(group: GroupPlan) -> dict[str, str]:
    first, count = group.layer_names[0], len(group.layer_names)
    share = 100 * group.waste_bytes / group.total_bytes
    return {
        "layers": f"{count}: {first}{', ...' if count > 1 else ''}",
        "spec": group.spec_type,
        "block size": str(group.block_size),
        "page bytes": str(group.page_bytes),
        "blocks": str(group.num_blocks),
        "MiB": _mib(group.total_bytes),
        "waste": f"{group.waste_bytes} B ({share:.1f} %)",
    }


def _summary(plan: CachePlan) -> str:
    told = (
        f"{plan.strategy}: {_mib(plan.total_bytes)} MiB in all, of which {plan.waste_bytes} B "
        f"({plan.waste_percent:.1f} %) hold nothing with {plan.requests} requests of full length"
    )
    if plan.other_waste_bytes is None:
        return told
    other = PoolStrategy.OWN_POOLS if plan.strategy is PoolStrategy.ONE_POOL else PoolStrategy.ONE_POOL
    return f"{told}; {other} would waste {plan.other_waste_bytes} B"


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / MIB:.2f}"
