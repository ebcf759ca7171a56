"""What goes to stdout: each prompt's result, in the order of the prompts."""

from __future__ import annotations

import io
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.rule import Rule
from rich.text import Text
from typing_extensions import override

from genericbuilders.cli.errors import ExitCode, UserError, discard
from genericbuilders.cli.prompts import Prompt

if TYPE_CHECKING:
    from genericbuilders.engine.request import Completion, TokenEvent

__all__ = ["JsonWriter", "OrderedResults", "RuleWriter", "StreamWriter", "Writer"]

TITLE_LENGTH = 60


class Writer(ABC):
    """Writes results, one after the other, in one form."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        if isinstance(out, io.TextIOWrapper):
            # A terminal that cannot show a character is no reason to stop.
            out.reconfigure(errors="replace")

    @abstractmethod
    def result(self, index: int, prompt: str, completion: Completion) -> None:
        """A prompt's whole result."""

    def piece(self, text: str) -> None:
        """Text of a prompt as it comes. Unless overridden: nothing is written."""
        return

    def cut(self) -> None:
        """No more text comes for a prompt that has no result. Unless overridden: nothing is written."""
        return


class JsonWriter(Writer):
    """One JSON object a line; all characters in ASCII, so that no locale can spoil it."""

    @override
    def result(self, index: int, prompt: str, completion: Completion) -> None:
        fields: dict[str, int | str | list[int]] = {
            "index": index,
            "prompt": prompt,
            "token_ids": list(completion.token_ids),
            "text": completion.text,
            "finish_reason": completion.finish_reason.value,
        }
        if completion.error is not None:
            fields["error"] = completion.error
        self.out.write(json.dumps(fields) + "\n")


class RuleWriter(Writer):
    """A rule with the prompt's beginning, then the text."""

    @override
    def result(self, index: int, prompt: str, completion: Completion) -> None:
        title = " ".join(prompt.split())
        if len(title) > TITLE_LENGTH:
            title = title[: TITLE_LENGTH - 3] + "..."
        Console(file=self.out).print(Rule(Text(f"{index}: {title}"), align="left"))
        self.out.write(completion.text + "\n")


class StreamWriter(Writer):
    """The only prompt's text, as it comes."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._num_written = 0

    @override
    def piece(self, text: str) -> None:
        self.out.write(text)
        self._num_written += len(text)

    @override
    def result(self, index: int, prompt: str, completion: Completion) -> None:
        # A request that fails may have had text that was not certain yet.
        self.out.write(completion.text[self._num_written :] + "\n")
        self._num_written = 0

    @override
    def cut(self) -> None:
        if self._num_written:
            self.out.write("\n")


class OrderedResults:
    """Gives results to a writer in the order of their prompts, each as soon as those before it are there.

    Its methods may be called from two threads, since an interrupt may come while the main one is busy.
    """

    def __init__(self, prompts: Sequence[Prompt], writer: Writer) -> None:
        self.completions: dict[int, Completion] = {}
        self._prompts = prompts
        self._writer = writer
        self._index = {prompt.source: index for index, prompt in enumerate(prompts)}
        self._next = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._prompts)

    def take(self, event: TokenEvent) -> None:
        """Write what is new.

        Raises:
            BrokenPipeError: nobody reads any more.
            UserError: it cannot be written.
        """
        with self._lock:
            if event.completion is not None:
                self.completions[self._index[event.request_id]] = event.completion
            with self._flushed():
                self._writer.piece(event.text)
                while (completion := self.completions.get(self._next)) is not None:
                    self._writer.result(self._next, self._prompts[self._next].text, completion)
                    self._next += 1

    def release(self, timeout: float = -1) -> list[Prompt]:
        """Write the results that wait for unfinished prompts before them, and return the unfinished ones.

        Args:
            timeout: seconds to wait for a thread that is writing; -1 waits as long as it takes.
        """
        held = self._lock.acquire(timeout=timeout)
        try:
            waiting = range(self._next, len(self._prompts))
            if held:
                self._next = len(self._prompts)
                with self._flushed():
                    self._writer.cut()
                    for index in waiting:
                        if index in self.completions:
                            self._writer.result(index, self._prompts[index].text, self.completions[index])
            return [prompt for index, prompt in enumerate(self._prompts) if index not in self.completions]
        finally:
            if held:
                self._lock.release()

    @contextmanager
    def _flushed(self) -> Generator[None, None, None]:
        try:
            yield
            self._writer.out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            discard(self._writer.out)
            raise UserError(f"results cannot be written: {error.strerror or error}", ExitCode.FAILED) from None
