"""What a waiting person sees on stderr: moving where it is a terminal, a line a stage where it is not."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from genericbuilders.cli.errors import tell

__all__ = ["counting", "stages"]


@contextmanager
def stages(first: str) -> Generator[Callable[[str], None], None, None]:
    """Show what is going on; the function that comes with it names the next stage."""
    console = Console(stderr=True)
    if not console.is_terminal:
        tell(first)
        yield tell
        return
    with console.status(first) as status:
        yield status.update


@contextmanager
def counting(total: int, shown: bool) -> Generator[Callable[[int, int], None], None, None]:
    """Show how many of ``total`` prompts are finished; the function takes that number, and the tokens so far.

    Args:
        total: prompts.
        shown: ``False`` shows nothing, as must be where results go to the same terminal.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("generating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("prompts, {task.fields[tokens]} tokens"),
        TimeElapsedColumn(),
    )
    progress = Progress(
        *columns,
        console=console,
        disable=not (shown and console.is_terminal),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with progress:
        task = progress.add_task("", total=total, tokens=0)

        def update(finished: int, tokens: int) -> None:
            progress.update(task, completed=finished, tokens=tokens)

        yield update
