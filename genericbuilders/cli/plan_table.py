"""The plan of a model's caches, as a table on stderr."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from genericbuilders.cache import CachePlan, PoolStrategy

__all__ = ["show_cache_plan"]

# Where the width is not known, as in a file.
WIDTH = 120
MIB = 2**20


def show_cache_plan(plan: CachePlan) -> None:
    """Write each group's layers, pages, blocks and waste, and what they come to."""
    table = Table(title="cache plan", title_justify="left")
    for name in ("group", "layers", "spec"):
        table.add_column(name, overflow="fold")
    for name in ("block size", "page bytes", "blocks", "MiB", "waste"):
        table.add_column(name, justify="right", overflow="fold")
    for index, group in enumerate(plan.groups):
        first, count = group.layer_names[0], len(group.layer_names)
        share = 100 * group.waste_bytes / group.total_bytes
        table.add_row(
            str(index),
            f"{count}: {first}{', ...' if count > 1 else ''}",
            group.spec_type,
            str(group.block_size),
            str(group.page_bytes),
            str(group.num_blocks),
            _mib(group.total_bytes),
            f"{group.waste_bytes} B ({share:.1f} %)",
        )
    console = Console(stderr=True)
    if not console.is_terminal:
        console = Console(stderr=True, width=WIDTH)
    console.print(table)
    console.print(_summary(plan), soft_wrap=True, highlight=False)


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
