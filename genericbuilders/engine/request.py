"""A request: what is asked, how far it has come, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from genericbuilders.cache import RequestSize
from genericbuilders.request_encoder import EncoderInput

__all__ = ["Completion", "FinishReason", "Request", "RequestError", "SamplingParams", "TokenEvent", "unknown_token_ids"]


class RequestError(ValueError):
    """A request cannot be served; the message says why and what to do."""


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ERROR = "error"
    ABORTED = "aborted"


@dataclass(frozen=True)
class SamplingParams:
    """How a request's tokens are chosen, and when it ends.

    Attributes:
        max_tokens: tokens to generate at most.
        temperature: 0 takes the most likely token (greedy); otherwise logits are divided by it.
        top_k: how many of the most likely tokens may be drawn; 0 means all.
        top_p: the least probability mass, of the most likely tokens, that may be drawn (nucleus sampling,
            Holtzman et al. 2020); 1 means all.
        seed: makes draws repeatable; ``None`` draws anew each time.
        stop: texts at which the output ends; they are not part of it.
        ignore_eos: go on after an end-of-sequence token.

    Raises:
        RequestError: a value is out of its range.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        for name in ("max_tokens", "top_k", "seed"):
            value: object = getattr(self, name)
            if type(value) is not int and not (name == "seed" and value is None):
                raise RequestError(f"{name} is {value!r}; it must be a whole number")
        if self.seed is not None and not -(2**63) <= self.seed < 2**64:
            raise RequestError(f"seed is {self.seed}; it must fit into 64 bits")
        stop: object = self.stop
        if isinstance(stop, str):
            raise RequestError(f"stop is the text {self.stop!r}; give a tuple of texts: ({self.stop!r},)")
        if self.max_tokens < 1:
            raise RequestError(f"max_tokens is {self.max_tokens}; ask for at least 1 token")
        if not 0.0 <= self.temperature < float("inf"):
            raise RequestError(f"temperature is {self.temperature}; it must be 0 (greedy) or a positive number")
        if self.top_k < 0:
            raise RequestError(f"top_k is {self.top_k}; it must be 0 (all tokens) or a positive number")
        if not 0.0 < self.top_p <= 1.0:
            raise RequestError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
        if "" in self.stop:
            raise RequestError("a stop text is empty; it would end every request at once, so leave it out")


class Request:
    """One prompt on its way through the engine.

    Attributes:
        request_id: its name; unique among those being served.
        prompt_token_ids: the prompt.
        params: how to sample and when to end.
        encoder_input: what the model's encoder reads for it; ``None`` if the model has none.
        num_encoder_tokens: tokens that an encoder gives for it, for layers that attend over them.
        token_ids: prompt and output so far.
        num_computed_tokens: tokens whose keys and values are in the cache.
        num_preemptions: how often its blocks were taken away.
    """

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        num_encoder_tokens: int = 0,
        encoder_input: EncoderInput | None = None,
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids: tuple[int, ...] = tuple(prompt_token_ids)
        self.params = params
        self.num_encoder_tokens = num_encoder_tokens
        self.encoder_input = encoder_input
        self.token_ids: list[int] = list(prompt_token_ids)
        self.num_computed_tokens = 0
        self.num_preemptions = 0

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_token_ids)

    @property
    def size(self) -> RequestSize:
        """What decides its blocks beside the number of its tokens."""
        return RequestSize(self.num_prompt_tokens, self.num_encoder_tokens)

    @cached_property
    def cache_salt(self) -> bytes:
        """What keeps its blocks apart from those of requests with equal tokens: its encoder input, if it has one."""
        return b"" if self.encoder_input is None else self.encoder_input.digest()

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.token_ids) - len(self.prompt_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        """The tokens generated so far."""
        return self.token_ids[len(self.prompt_token_ids) :]

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens that a step must still feed before the next one can be sampled."""
        return len(self.token_ids) - self.num_computed_tokens


@dataclass(frozen=True)
class Completion:
    """A request that has ended.

    Attributes:
        request_id: whose.
        prompt_token_ids: what was asked.
        token_ids: what was generated, the end-of-sequence token included.
        text: the same as text, cut where a stop text begins.
        finish_reason: why it ended.
        error: what went wrong, if it ended with ``ERROR``.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    error: str | None = None


@dataclass(frozen=True)
class TokenEvent:
    """One step's news of one request.

    Attributes:
        request_id: whose.
        token_id: the new token, or ``None`` if the request ended without one.
        text: the text that became certain with it; may be empty.
        completion: the whole, on a request's last event.
    """

    request_id: str
    token_id: int | None
    text: str
    completion: Completion | None = None


def unknown_token_ids(token_ids: Sequence[int], vocab_size: int) -> list[int]:
    """Those that a model of ``vocab_size`` tokens does not know; a caller may hand over what is no integer at all."""
    return [token for token in token_ids if type(token) is not int or not 0 <= token < vocab_size]
