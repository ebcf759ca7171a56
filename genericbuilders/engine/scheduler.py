"""Which requests run in the next step, and how many of their tokens.

Continuous batching (Orca, Yu et al. 2022) with chunked prefill (Sarathi, Agrawal et al. 2023): every step
spends one token budget, first on the requests that already run, then on waiting ones. When blocks run out, the request
that came last gives up its blocks and is later computed anew (vLLM, Kwon et al. 2023). A request that finds no blocks,
or no state, waits. Encoders read whole inputs: those of the requests that start in one step have a budget of their own,
as large, and only one alone may be longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from genericbuilders.cache import KVCacheCoordinator
from genericbuilders.config import EngineConfig
from genericbuilders.engine.request import Request, RequestError

__all__ = ["ScheduledRow", "Scheduler", "SchedulerOutput"]


@dataclass(frozen=True)
class ScheduledRow:
    """One request's part of a step.

    Attributes:
        request: whose.
        num_tokens: tokens to feed, starting behind those that are computed.
        samples: whether the step reaches the request's last known token, so that the next one is sampled.
    """

    request: Request
    num_tokens: int
    samples: bool


@dataclass(frozen=True)
class SchedulerOutput:
    """One step's batch.

    Attributes:
        rows: first those of one token that continue a request (decodes), then the others.
        preempted: requests that lost their blocks for it.
        admitted: requests that start with it; their computed tokens were found in the cache.
    """

    rows: tuple[ScheduledRow, ...]
    preempted: tuple[Request, ...]
    admitted: tuple[Request, ...]


class Scheduler:
    """Holds the waiting and the running requests.

    ``coordinator`` owns their blocks: a running request has blocks for its computed and scheduled tokens, a
    waiting one has none.
    """

    def __init__(self, config: EngineConfig, coordinator: KVCacheCoordinator) -> None:
        self.config = config
        self.coordinator = coordinator
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._known: dict[str, Request] = {}
        self._suspects: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, request: Request) -> None:
        """Put a request at the end of the queue.

        Raises:
            RequestError: its id is taken, its prompt is empty or too long, its encoder's output is too long, or the
                pool is too small for it alone.
        """
        if request.request_id in self._known:
            raise RequestError(f"request id {request.request_id!r} is being served already; ids must differ")
        if not request.prompt_token_ids:
            raise RequestError(f"request {request.request_id!r} has an empty prompt; give it at least one token")
        limit = self.config.max_model_len
        if request.num_prompt_tokens >= limit:
            raise RequestError(
                f"request {request.request_id!r} has a prompt of {request.num_prompt_tokens} tokens; the model's "
                f"context is {limit} tokens and one must be left for the output, so shorten it to {limit - 1}"
            )
        # The last token of an output is never fed, so it needs no slot.
        longest = min(request.num_prompt_tokens + request.params.max_tokens, limit) - 1
        try:
            needs = self.coordinator.blocks_needed(longest, request.size)
        except ValueError as error:
            raise RequestError(f"request {request.request_id!r} cannot be served: {error}") from None
        for need in needs:
            if need.needed > need.available:
                raise RequestError(
                    f"request {request.request_id!r} may grow to {longest} tokens in the cache, which in {need.where} "
                    f"needs {need.needed} {need.unit}; the pool has {need.available} beside the null block. Ask for "
                    "more blocks (--num-blocks) or for fewer tokens (--max-tokens)"
                )
        self._known[request.request_id] = request
        self.waiting.append(request)

    def schedule(self) -> SchedulerOutput:
        """Choose the next step's rows and give them blocks."""
        if self._suspects:
            return self._schedule_alone(self._suspects[0])
        budget = self.config.max_num_batched_tokens
        rows: dict[str, ScheduledRow] = {}
        preempted: list[Request] = []
        admitted: list[Request] = []
        index = 0
        # Requests that run but have nothing in the cache are from a step that was broken off.
        encoded = sum(request.num_encoder_tokens for request in self.running if not request.num_computed_tokens)
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            wanted = min(request.num_uncomputed_tokens, budget)
            count = self.coordinator.max_piece(request.num_computed_tokens, wanted)
            while not self.coordinator.grow(request.request_id, request.num_computed_tokens + count):
                victim = self.preempt_last()
                preempted.append(victim)
                taken = rows.pop(victim.request_id, None)
                budget += taken.num_tokens if taken else 0
                if victim is request:
                    break
            else:
                rows[request.request_id] = _row(request, count)
                budget -= count
                index += 1
        while self.waiting and budget > 0 and not preempted and len(self.running) < self.config.max_num_seqs:
            request = self.waiting[0]
            reads = request.num_encoder_tokens
            if reads and encoded and encoded + reads > self.config.max_num_batched_tokens:
                break
            hit = self._start(request, budget)
            if hit is None:
                break
            count = self.coordinator.max_piece(hit, min(len(request.token_ids) - hit, budget))
            request.num_computed_tokens = hit
            encoded += reads
            admitted.append(request)
            self.running.append(self.waiting.popleft())
            rows[request.request_id] = _row(request, count)
            budget -= count
        ordered = sorted(rows.values(), key=lambda row: not _is_decode(row))
        return SchedulerOutput(tuple(ordered), tuple(preempted), tuple(admitted))

    def isolate(self, rows: Sequence[ScheduledRow]) -> None:
        """Compute the requests of a step that failed anew, each in steps of its own until it has caught up.

        A step that fails half-way may have changed some of their states, so that their rows cannot be run again.
        """
        for row in reversed(rows):
            self.preempt(row.request)
        self._suspects.extend(row.request for row in rows if row.request not in self._suspects)

    def _schedule_alone(self, request: Request) -> SchedulerOutput:
        """A step of one request. Any request fits alone, so that taking the others' blocks is always enough."""
        budget = self.config.max_num_batched_tokens
        preempted: list[Request] = []
        admitted: tuple[Request, ...] = ()
        if request in self.waiting:
            self.waiting.remove(request)
            while (hit := self._start(request, budget)) is None:
                preempted.append(self.preempt_last())
            request.num_computed_tokens = hit
            self.running.insert(0, request)
            admitted = (request,)
        computed = request.num_computed_tokens
        count = self.coordinator.max_piece(computed, min(request.num_uncomputed_tokens, budget))
        while not self.coordinator.grow(request.request_id, computed + count):
            victim = next(other for other in reversed(self.running) if other is not request)
            self.preempt(victim)
            preempted.append(victim)
        row = _row(request, count)
        if row.samples:
            self._suspects.popleft()
        return SchedulerOutput((row,), tuple(preempted), admitted)

    def _start(self, request: Request, budget: int) -> int | None:
        salt = request.cache_salt if self.coordinator.enable_prefix_caching else b""
        return self.coordinator.start(request.request_id, request.token_ids, budget, salt, request.size)

    def preempt_last(self) -> Request:
        """`preempt` the request that came last; returns it."""
        victim = self.running[-1]
        self.preempt(victim)
        return victim

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks; it waits in front and is computed anew.

        Raises:
            ValueError: it is not running.
        """
        self.running.remove(request)
        self.coordinator.free(request.request_id)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.waiting.appendleft(request)

    def advance(self, row: ScheduledRow) -> None:
        """Note that a row's tokens are in the cache: later requests share its full blocks, and some are given back."""
        row.request.num_computed_tokens += row.num_tokens
        self.coordinator.cache_blocks(row.request.request_id, row.request.token_ids, row.request.num_computed_tokens)

    def finish(self, request_id: str) -> Request | None:
        """Let a request go, wherever it stands, and free its blocks. Unknown ids are ignored."""
        request = self._known.pop(request_id, None)
        if request is None:
            return None
        if request in self._suspects:
            self._suspects.remove(request)
        if request in self.running:
            self.running.remove(request)
            self.coordinator.free(request_id)
        else:
            self.waiting.remove(request)
        return request


def _is_decode(row: ScheduledRow) -> bool:
    """Whether a row continues a request by one token. One that starts a request has no state yet, however short."""
    return row.num_tokens == 1 and row.request.num_computed_tokens > 0


def _row(request: Request, count: int) -> ScheduledRow:
    return ScheduledRow(request, count, request.num_computed_tokens + count == len(request.token_ids))
