"""The engine: requests in, tokens out, one step at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from genericbuilders.engine.detokenizer import IncrementalDetokenizer
from genericbuilders.engine.request import (
    Completion,
    FinishReason,
    Request,
    RequestError,
    SamplingParams,
    TokenEvent,
    unknown_token_ids,
)
from genericbuilders.engine.runner import ModelRunner
from genericbuilders.engine.sampler import Sampler
from genericbuilders.engine.scheduler import ScheduledRow, Scheduler
from genericbuilders.engine.stats import EngineStats
from genericbuilders.model import Tokenizer
from genericbuilders.request_encoder import EncoderInput, EncoderTokens, RequestEncoder

__all__ = ["Engine"]


@dataclass
class _Output:
    detokenizer: IncrementalDetokenizer
    parts: list[str] = field(default_factory=list[str])


class Engine:
    """Serves requests with continuous batching.

    A request's tokens do not depend on the others in its batch, and a request that fails ends alone.
    """

    def __init__(self, runner: ModelRunner, tokenizer: Tokenizer) -> None:
        self.runner = runner
        self.tokenizer = tokenizer
        self.scheduler: Scheduler = Scheduler(runner.config, runner.coordinator)
        self.sampler: Sampler = Sampler()
        self.stats: EngineStats = runner.stats
        self._outputs: dict[str, _Output] = {}

    def add_request(
        self,
        request_id: str,
        prompt: str | Sequence[int],
        params: SamplingParams,
        encoder_input: EncoderInput | None = None,
    ) -> None:
        """Queue a prompt, as text or as token ids.

        Args:
            request_id: a name that no other unfinished request has.
            prompt: what the output goes on from. Where the model's encoder reads text, a text without an
                ``encoder_input`` is that encoder's, and the output begins as the model's outputs do.
            params: how to sample and when to end.
            encoder_input: what the model's encoder reads, if it has one.

        Raises:
            RequestError: it cannot be served; nothing is queued.
        """
        encoder = self.runner.model.encoder
        if isinstance(prompt, str) and encoder_input is None and encoder is not None and encoder.reads_text:
            token_ids = list(encoder.start_token_ids)
            encoder_input = EncoderTokens(tuple(self.tokenizer.encode(prompt)))
        else:
            token_ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        vocab_size = self.runner.model.vocab_size
        if unknown := unknown_token_ids(token_ids, vocab_size):
            raise RequestError(
                f"request {request_id!r} has token ids {unknown[:5]}; the model knows 0 to {vocab_size - 1}"
            )
        num_encoder_tokens = _num_encoder_tokens(request_id, encoder, encoder_input)
        self.scheduler.add(Request(request_id, token_ids, params, num_encoder_tokens, encoder_input))
        self._outputs[request_id] = _Output(IncrementalDetokenizer(self.tokenizer, params.stop))

    def abort(self, request_id: str) -> Completion | None:
        """Drop a request; what it had generated is returned. Unknown ids are ignored."""
        request = self.scheduler.finish(request_id)
        return None if request is None else self._close(request, FinishReason.ABORTED)

    def has_unfinished(self) -> bool:
        """Whether any request is waiting or running."""
        return len(self.scheduler) > 0

    def stream(self) -> Iterator[TokenEvent]:
        """Step until every request has ended, giving out each token as it comes."""
        while self.has_unfinished():
            yield from self.step()

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        params: SamplingParams,
        encoder_inputs: Sequence[EncoderInput | None] | None = None,
    ) -> list[Completion]:
        """Serve ``prompts`` together; completions come in their order.

        Args:
            prompts: as `add_request` takes them.
            params: how to sample and when to end.
            encoder_inputs: one for each prompt, likewise; ``None`` for none.

        Raises:
            ValueError: there are not as many encoder inputs as prompts.
            RequestError: one of them cannot be served, or other requests are unfinished; none is left queued.
        """
        if self.has_unfinished():
            raise RequestError(
                f"generate() serves its prompts alone, and {len(self.scheduler)} requests are unfinished; "
                "use add_request() and stream(), or abort them first"
            )
        ids = [f"prompt-{index}" for index in range(len(prompts))]
        given = [None] * len(prompts) if encoder_inputs is None else encoder_inputs
        if len(given) != len(prompts):
            raise ValueError(f"there are {len(given)} encoder inputs for {len(prompts)} prompts; give one for each")
        try:
            for request_id, prompt, encoder_input in zip(ids, prompts, given, strict=True):
                self.add_request(request_id, prompt, params, encoder_input)
        except Exception:
            for request_id in ids:
                self.abort(request_id)
            raise
        ended = {event.request_id: event.completion for event in self.stream() if event.completion is not None}
        return [ended[request_id] for request_id in ids]

    def step(self) -> list[TokenEvent]:
        """Run one batch. Returns its news; nothing, if no request is left."""
        output = self.scheduler.schedule()
        for victim in output.preempted:
            self.runner.release(victim.request_id)
        self.stats.num_steps += 1
        self.stats.num_preemptions += len(output.preempted)
        for request in output.admitted:
            if request.num_preemptions == 0:
                self.stats.num_prompt_tokens += request.num_prompt_tokens
                self.stats.num_cached_tokens += request.num_computed_tokens
        return self._run(output.rows) if output.rows else []

    def _run(self, rows: Sequence[ScheduledRow]) -> list[TokenEvent]:
        """Run ``rows`` together; if that fails, each alone, so that a fault ends only the request that has it.

        Running a row again is safe where it writes the same keys and values to the same slots. A state that has moved
        on is another matter: then the requests are computed anew.
        """
        sampled = [row for row in rows if row.samples]
        try:
            logits = self.runner.execute(rows)
            tokens = self._sample(logits, sampled)
        except BaseException as error:
            if not isinstance(error, Exception):
                # Ctrl-C in mid-step, say: whoever goes on stepping must find states and counts in step.
                self._compute_anew(rows)
                raise
            if len(rows) == 1:
                return [self._fail(rows[0].request, f"{type(error).__name__}: {error}")]
            if self.runner.keeps_states:
                self._compute_anew(rows)
                return []
            return [event for row in rows for event in self._run((row,))]
        events: list[TokenEvent] = []
        for row in rows:
            self.scheduler.advance(row)
        for row, token in zip(sampled, tokens, strict=True):
            if isinstance(token, str):
                events.append(self._fail(row.request, token))
            else:
                events.append(self._append_or_fail(row.request, token))
        return events

    def _compute_anew(self, rows: Sequence[ScheduledRow]) -> None:
        """Where states may have moved on, let the rows' requests start over, each alone."""
        if self.runner.keeps_states:
            self.scheduler.isolate(rows)
            for row in rows:
                self.runner.release(row.request.request_id)

    def _append_or_fail(self, request: Request, token: int) -> TokenEvent:
        """`_append`; a fault in turning the token into text ends its request only."""
        try:
            return self._append(request, token)
        except Exception as error:
            return self._fail(request, f"{type(error).__name__}: {error}")

    def _sample(self, logits: Tensor, rows: Sequence[ScheduledRow]) -> list[int | str]:
        if not rows:
            return []
        ids = [row.request.request_id for row in rows]
        return self.sampler.sample(logits, ids, [row.request.params for row in rows])

    def _append(self, request: Request, token: int) -> TokenEvent:
        request.token_ids.append(token)
        self.stats.num_output_tokens += 1
        output = self._outputs[request.request_id]
        text = output.detokenizer.append(token)
        output.parts.append(text)
        reason = None
        if output.detokenizer.stopped or (token in self.runner.model.eos_token_ids and not request.params.ignore_eos):
            reason = FinishReason.STOP
        elif (
            request.num_output_tokens >= request.params.max_tokens
            or len(request.token_ids) >= self.runner.config.max_model_len
        ):
            reason = FinishReason.LENGTH
        if reason is None:
            return TokenEvent(request.request_id, token, text)
        self.scheduler.finish(request.request_id)
        completion = self._close(request, reason)
        return TokenEvent(request.request_id, token, completion.text[len("".join(output.parts[:-1])) :], completion)

    def _fail(self, request: Request, error: str) -> TokenEvent:
        self.scheduler.finish(request.request_id)
        return TokenEvent(request.request_id, None, "", self._close(request, FinishReason.ERROR, error))

    def _close(self, request: Request, reason: FinishReason, error: str | None = None) -> Completion:
        self.runner.release(request.request_id)
        self.sampler.forget(request.request_id)
        output = self._outputs[request.request_id]
        try:
            rest = output.detokenizer.finish()
        except Exception:
            if reason is not FinishReason.ERROR:
                raise
            rest = ""
        del self._outputs[request.request_id]
        text = "".join(output.parts) + rest
        return Completion(
            request.request_id, request.prompt_token_ids, tuple(request.output_token_ids), text, reason, error
        )


def _num_encoder_tokens(request_id: str, encoder: RequestEncoder | None, given: EncoderInput | None) -> int:
    """The tokens that the model's encoder gives for a request's input; 0 if there is neither.

    Raises:
        RequestError: there is one without the other, or the encoder cannot read the input.
    """
    if encoder is None:
        if given is None:
            return 0
        raise RequestError(f"request {request_id!r} has an encoder input, but the model has no encoder; leave it out")
    if given is None:
        reads = "EncoderTokens, or a text as the prompt" if encoder.reads_text else "EncoderFeatures"
        raise RequestError(
            f"request {request_id!r} has no encoder input, and the model attends over an encoder's output; give it "
            f"encoder_input: {reads}"
        )
    try:
        count = encoder.num_tokens(given)
    except ValueError as error:
        raise RequestError(f"request {request_id!r}: {error}") from None
    if count < 1:
        raise RequestError(f"request {request_id!r}: its encoder input gives {count} tokens; it must give at least 1")
    return count
