"""Ctrl-C: stop soon, and never in the middle of a line of output."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

from genericbuilders.cli.errors import ExitCode

__all__ = ["Interrupt"]

GRACE_SECONDS = 0.7


class Interrupt:
    """While entered, the first Ctrl-C raises `KeyboardInterrupt` in the main thread; later ones change nothing.

    The main thread may be busy in native code, or the exception may get lost in a destructor. If the process has not
    left the ``with`` block after ``grace`` seconds, a second thread says the last words and ends the process.
    Elsewhere than in the main thread, entering does nothing.

    Args:
        last_words: called in that second thread.
        grace: seconds.
    """

    def __init__(self, last_words: Callable[[], None], grace: float = GRACE_SECONDS) -> None:
        self._last_words = last_words
        self._grace = grace
        self._requested = False
        self._deferring = False
        self._left = threading.Event()
        self._restore: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        # Set for a process started in the background, too, which inherits that Ctrl-C is ignored.
        previous = signal.signal(signal.SIGINT, self._handle)
        # The signal's number arrives here at once, even when Python code cannot run in the main thread.
        previous_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

        def restore() -> None:
            signal.set_wakeup_fd(previous_fd)
            signal.signal(signal.SIGINT, previous)
            writer.close()

        self._restore = restore
        threading.Thread(target=self._watch, args=(reader,), name="interrupt", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        if self._restore is not None:
            self._restore()

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C was pressed: for loops, in case the exception got lost."""
        if self._requested:
            raise KeyboardInterrupt

    @contextmanager
    def deferred(self) -> Generator[None, None, None]:
        """What is done in here is done whole: Ctrl-C takes effect at its end."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
        self.check()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        first, self._requested = not self._requested, True
        if first and not self._deferring:
            raise KeyboardInterrupt

    def _watch(self, reader: socket.socket) -> None:
        with reader:
            while numbers := reader.recv(64):
                if signal.SIGINT in numbers:
                    break
            else:
                return
            if not self._left.wait(self._grace):
                self._last_words()
                os._exit(ExitCode.INTERRUPTED)
