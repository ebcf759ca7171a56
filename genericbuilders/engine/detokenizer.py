"""Token ids to text, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence

from genericbuilders.model import Tokenizer

__all__ = ["IncrementalDetokenizer"]

_REPLACEMENT = "\ufffd"
# A character has at most four bytes in UTF-8, so at most three tokens of an unfinished one can be waiting.
_MAX_UNFINISHED = 3
# When more tokens than this wait behind the prefix, all but the last few are dropped.
_MAX_WAITING = 32
_NUM_KEPT = 8


class IncrementalDetokenizer:
    """Turns a request's tokens into text as they come, and ends it where a stop text begins.

    Text is given out once it is certain: not while its last character may be half there, nor while it may be the
    beginning of a stop text. All that was given out, joined, is the text of all tokens decoded at once, cut at the
    first stop text. The first is the one that is complete first; of two that end together, the longer. So the cut
    does not depend on where tokens end. A token costs two decodes of a few tokens, however long the output is.

    Args:
        tokenizer: decodes.
        stop: texts at which the output ends.

    Raises:
        ValueError: a stop text is empty.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._pieces = _Pieces(tokenizer)
        self._stop = _StopFilter(stop)

    @property
    def stopped(self) -> bool:
        """Whether a stop text was met."""
        return self._stop.met is not None

    @property
    def stop_text(self) -> str | None:
        """The stop text that was met."""
        return self._stop.met

    def append(self, token_id: int) -> str:
        """Take the next token. Returns the text that became certain with it; after a stop text, nothing."""
        return "" if self.stopped else self._stop.push(self._pieces.push(token_id))

    def finish(self) -> str:
        """No more tokens come. Returns what was held back; after a stop text, nothing."""
        if self.stopped:
            return ""
        return self._stop.push(self._pieces.flush()) + self._stop.flush()


class _Pieces:
    """Decodes tokens behind a short prefix of those before, since the text of one token depends on its neighbours.

    ``_window`` holds the prefix, its first ``_prefix_len`` tokens, and the tokens that wait; the first ``_given``
    characters of its text were given out.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._prefix_len = 0
        self._given = 0

    def push(self, token_id: int) -> str:
        self._window.append(token_id)
        text = self._tokenizer.decode(self._window)
        certain = len(text) - _num_uncertain(text)
        piece = text[self._given : certain]
        self._given = max(self._given, certain)
        if piece and certain == len(text):
            self._settle()
        elif len(self._window) - self._prefix_len > _MAX_WAITING:
            self._shorten(text)
        return piece

    def flush(self) -> str:
        text = self._tokenizer.decode(self._window)
        piece = text[self._given :]
        self._given = max(self._given, len(text))
        return piece

    def _settle(self) -> None:
        """All waiting tokens become the prefix."""
        del self._window[: self._prefix_len]
        self._prefix_len = len(self._window)
        self._given = len(self._tokenizer.decode(self._window))

    def _shorten(self, text: str) -> None:
        """Keep the window small while its text does not settle: a model may repeat bytes of no character, or tokens
        without text.

        Tokens from the middle can go: how the last bytes are decoded depends on at most three bytes before them.
        """
        decode = self._tokenizer.decode
        if not decode(self._window[-1:]):
            del self._window[-1]
            return
        shorter = self._window[: self._prefix_len] + self._window[-_NUM_KEPT:]
        shorter_text, waiting = decode(shorter), text[self._given :]
        if shorter_text.endswith(waiting):
            self._window = shorter
            self._given = len(shorter_text) - len(waiting)


def _num_uncertain(text: str) -> int:
    """Characters at the end of ``text`` that may be bytes of an unfinished one."""
    return min(len(text) - len(text.rstrip(_REPLACEMENT)), _MAX_UNFINISHED)


class _StopFilter:
    """Lets text through up to the first stop text."""

    def __init__(self, stop: Sequence[str]) -> None:
        if "" in stop:
            raise ValueError("a stop text is empty; it would end every output at once, so leave it out")
        self.met: str | None = None
        self._stop = tuple(stop)
        self._held = ""

    def push(self, text: str) -> str:
        """Returns what is certain not to belong to a stop text."""
        text = self._held + text
        found = [(start + len(stop), start, stop) for stop in self._stop if (start := text.find(stop)) >= 0]
        if found:
            _, start, self.met = min(found)
            self._held = ""
            return text[:start]
        num_held = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def flush(self) -> str:
        """Returns what is held."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that ``stop`` begins with."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
