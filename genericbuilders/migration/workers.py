"""Calls a function on many items in several processes; one that breaks down costs its item, not the run."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from traceback import extract_tb
from typing import Generic, Literal, TypeVar

__all__ = ["Crash", "Method", "call_each", "start_method"]

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
Method = Literal["fork", "spawn"]
KILLED_SECONDS = 5.0


@dataclass(frozen=True)
class Crash:
    """The function did not come to its end on an item; ``reason`` says what happened and where."""

    reason: str


def start_method() -> Method:
    """How processes are started: ``fork`` where that is safe, since then nothing need be copied to them."""
    return "fork" if sys.platform == "linux" else "spawn"


def call_each(
    function: Callable[[ItemT], ResultT],
    items: Sequence[ItemT],
    workers: int,
    finished: Callable[[int], None],
    method: Method | None = None,
) -> list[ResultT | Crash]:
    """Call ``function`` on every item, and return the results in the order of the items.

    Args:
        function: with ``spawn`` it must be picklable; its results must be in any case.
        items: what it is called on; picklable.
        workers: how many processes; with 1 everything is done in this one.
        finished: told how many items are done, after each.
        method: of starting processes; ``None``: that of `start_method`.

    Raises:
        KeyboardInterrupt: Ctrl-C; no process is left.
    """
    results: list[ResultT | Crash | None] = [None] * len(items)
    count = min(workers, len(items))
    with _Pool(function, method or start_method()) as pool:
        waiting = deque(range(len(items)))
        if count > 1:
            done = 0
            for _ in range(count):
                pool.add()
            while waiting and pool.idle:
                index = waiting.popleft()
                pool.give(index, items[index])
            while pool.busy:
                for index, result in pool.take():
                    results[index] = result
                    done += 1
                    finished(done)
                while waiting and pool.idle:
                    index = waiting.popleft()
                    pool.give(index, items[index])
        # All of them where one process is enough, or no other could be started.
        for index in waiting:
            results[index] = _guarded(function, items[index])
            finished(sum(result is not None for result in results))
    return [Crash("it was not reached") if result is None else result for result in results]


@dataclass(frozen=True, eq=False)
class _Worker:
    process: BaseProcess
    connection: Connection


class _Pool(Generic[ItemT, ResultT]):
    """Processes that are gone when the ``with`` block is left."""

    def __init__(self, function: Callable[[ItemT], ResultT], method: Method) -> None:
        self._function = function
        self._forks = method == "fork"
        self._context = multiprocessing.get_context("fork") if self._forks else multiprocessing.get_context("spawn")
        self._all: list[_Worker] = []
        self.idle: list[_Worker] = []
        self.busy: dict[_Worker, int] = {}

    def __enter__(self) -> _Pool[ItemT, ResultT]:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.process.kill()
        for worker in self._all:
            _end(worker)

    def add(self) -> None:
        """Start one more process, where the system allows it."""
        here, there = self._context.Pipe()
        # A forked process has copies of these ends, and would keep the others from seeing that this one has gone.
        inherited = (here, *(worker.connection for worker in self._all)) if self._forks else ()
        process = self._context.Process(target=_serve, args=(self._function, there, inherited), daemon=True)
        with _no_interrupts():
            try:
                process.start()
            except OSError:
                here.close()
            else:
                self._all.append(_Worker(process, here))
                self.idle.append(self._all[-1])
        there.close()

    def give(self, index: int, item: ItemT) -> None:
        """Have an idle process work on an item."""
        worker = self.idle.pop()
        self.busy[worker] = index
        # One that has died says so when its result is awaited.
        with suppress(OSError):
            worker.connection.send(item)

    def take(self) -> list[tuple[int, ResultT | Crash]]:
        """Wait for results; processes that died are replaced."""
        ready = wait([worker.connection for worker in self.busy])
        taken: list[tuple[int, ResultT | Crash]] = []
        for worker in [worker for worker in self.busy if worker.connection in ready]:
            index = self.busy.pop(worker)
            try:
                taken.append((index, worker.connection.recv()))
            except (EOFError, OSError):
                self._all.remove(worker)
                _end(worker)
                taken.append((index, Crash(f"the process that worked on it {_ending(worker.process)}")))
                self.add()
            else:
                self.idle.append(worker)
        return taken


def _serve(function: Callable[[ItemT], ResultT], connection: Connection, inherited: Sequence[Connection]) -> None:
    # Ctrl-C is for the first process, which then ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    for each in inherited:
        each.close()
    while True:
        try:
            item = connection.recv()
        except (EOFError, OSError):
            return
        result = _guarded(function, item)
        try:
            connection.send(result)
        except OSError:
            return
        except Exception as error:
            connection.send(Crash(_told(error)))


def _guarded(function: Callable[[ItemT], ResultT], item: ItemT) -> ResultT | Crash:
    try:
        return function(item)
    except Exception as error:
        return Crash(_told(error))


def _told(error: Exception) -> str:
    frames = extract_tb(error.__traceback__)
    # The last frame that is ours: what it called may be a library's.
    own = [frame for frame in frames if "genericbuilders" in Path(frame.filename).parts] or list(frames)
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if said else ''}{said}{where}"


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join(KILLED_SECONDS)
    worker.connection.close()


def _ending(process: BaseProcess) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        return f"was ended by signal {-code}"
    return f"ended with exit code {code}"


@contextmanager
def _no_interrupts() -> Generator[None, None, None]:
    """Ctrl-C waits: neither is a process started of which nobody knows, nor does it get in a new process's way."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
