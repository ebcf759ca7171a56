"""The prompts that every side of a benchmark is given."""

from __future__ import annotations

import random

__all__ = ["NUM_NEW_TOKENS", "NUM_PROMPTS", "make_prompts"]

NUM_PROMPTS = 32
NUM_NEW_TOKENS = 64
WORDS = "the of and city river music light number year people house water small great time world life day hand part"


def make_prompts(count: int = NUM_PROMPTS, shortest: int = 4, longest: int = 24) -> list[str]:
    """``count`` prompts of ``shortest`` to ``longest`` words, the same on every call."""
    rng = random.Random(0)
    words = WORDS.split()
    step = (longest - shortest) / max(count - 1, 1)
    return [" ".join(rng.choices(words, k=round(shortest + step * index))) for index in range(count)]
