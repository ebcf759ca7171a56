"""The next token of each row, from its logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from genericbuilders.engine.request import SamplingParams

__all__ = ["Sampler", "filter_logits"]


class Sampler:
    """Draws tokens, each request from a random stream of its own.

    A request's draws depend on its seed and on how many it has made, never on its neighbours: a draw
    takes one uniform number from the request's generator and inverts the cumulated probabilities with it.
    """

    def __init__(self) -> None:
        self._generators: dict[str, torch.Generator] = {}

    def forget(self, request_id: str) -> None:
        """Drop the random stream of a request that has ended."""
        self._generators.pop(request_id, None)

    def sample(self, logits: Tensor, request_ids: Sequence[str], params: Sequence[SamplingParams]) -> list[int | str]:
        """One token a row.

        Args:
            logits: ``[num_rows, vocab_size]``.
            request_ids: the row's request.
            params: the row's way of sampling.

        Returns:
            A row's token, or what went wrong with it; other rows are not touched by that.
        """
        indices, finite = _most_likely(logits)
        tokens: list[int | str] = []
        for row, (request_id, how) in enumerate(zip(request_ids, params, strict=True)):
            if not finite[row]:
                tokens.append("the logits have no finite maximum; the model's weights or this input overflow its dtype")
            elif how.temperature > 0.0:
                tokens.append(self._try_draw(logits[row], request_id, how))
            else:
                tokens.append(int(indices[row]))
        return tokens

    def _try_draw(self, logits: Tensor, request_id: str, params: SamplingParams) -> int | str:
        """A row that cannot be drawn must not make the others draw again: their streams have moved on."""
        try:
            return self._draw(logits, request_id, params)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def _draw(self, logits: Tensor, request_id: str, params: SamplingParams) -> int:
        filtered, tokens = filter_logits(logits, params)
        cumulated = filtered.softmax(dim=-1, dtype=torch.float64).cumsum(dim=-1)
        uniform = torch.rand((), dtype=torch.float64, generator=self._generator(request_id, params.seed))
        mark = uniform.to(cumulated.device) * cumulated[-1]
        drawn = int(torch.searchsorted(cumulated, mark, right=True))
        return int(tokens[min(drawn, cumulated.shape[0] - 1)])

    def _generator(self, request_id: str, seed: int | None) -> torch.Generator:
        generator = self._generators.get(request_id)
        if generator is None:
            generator = torch.Generator()
            if seed is None:
                generator.seed()
            else:
                generator.manual_seed(seed)
            self._generators[request_id] = generator
        return generator


def _most_likely(logits: Tensor) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Each row's most likely token, and whether its logit is finite; a row with a NaN is not."""
    if logits.is_cpu and logits.dtype == torch.float32:
        # numpy's argmax is several times faster than torch's on the CPU.
        array: npt.NDArray[np.float32] = logits.numpy()
        indices = array.argmax(axis=1)
        return indices, np.isfinite(array[np.arange(len(array)), indices])
    best = logits.max(dim=-1)
    return best.indices.cpu().numpy(), torch.isfinite(best.values).cpu().numpy()


def filter_logits(logits: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """The logits that may be drawn, divided by the temperature, largest first, and their tokens.

    ``top_k`` cuts first, then ``top_p``: the shortest front of the list whose mass reaches ``top_p``
    (Holtzman et al. 2020). At least one token is left.

    Args:
        logits: ``[vocab_size]``.
        params: temperature, top-k and top-p.

    Returns:
        Scaled logits and token ids, both ``[num_kept]``.
    """
    count = logits.shape[0] if params.top_k == 0 else min(params.top_k, logits.shape[0])
    # Shifting by the maximum first keeps a tiny temperature from overflowing.
    values, tokens = logits.double().sort(descending=True, stable=True)
    values, tokens = (values[:count] - values[0]) / params.temperature, tokens[:count]
    if params.top_p < 1.0:
        before = values.softmax(dim=-1).cumsum(dim=-1) - values.softmax(dim=-1)
        kept = max(1, int((before < params.top_p).sum()))
        values, tokens = values[:kept], tokens[:kept]
    return values, tokens
