"""The default model through the engine: its greedy tokens are those of transformers' own `generate`, in float32."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, build_engine, load_model
from genericbuilders.model import LoadedModel, LoadOptions, PlacedLayer
from genericbuilders_transformers.default_model import ensure_default_model
from genericbuilders_transformers.loader import TransformersLoader

ROOT = Path(__file__).parents[3]
PARIS = "The capital of France is"
NUM_PARIS_TOKENS = 16
NUM_PROMPTS = 32
NUM_NEW_TOKENS = 12
SHORTEST, LONGEST = 4, 200  # words
TEXT = """
The old town lies on both banks of a slow river, and its bridges were built at very different times. The oldest one
carries only people on foot, since its arches are too weak for anything heavier. In the morning the market opens on the
northern side, where farmers from the valley sell bread, apples, honey and cheese. By noon most of the stalls are empty,
and the square belongs to children and pigeons until the evening. Visitors usually come for the cathedral, whose two
towers were never finished because the money ran out during a long war. Those who stay longer find the small museum
behind it, which shows tools, maps and letters from four centuries. One letter, written in 1742, describes how the water
rose within a single night and took three houses with it. Since then a stone on the quay has marked the height of every
flood, and the highest mark is far above the head of a tall man. Engineers have often proposed a dam, but the people of
the town prefer to move their things upstairs once in a generation. On summer nights there is music on the water, played
from boats that drift under the bridges while listeners sit along the walls. When the last boat has passed, somebody
always starts to sing, and the whole bank joins in. In winter, however, the river freezes at the edges, and then the town
is so quiet that one can hear the bells of the next village.
"""


def make_prompts() -> list[str]:
    """Prompts of 4 to 200 words; every second one starts where the text starts, so that there are prefixes to share."""
    words = TEXT.split()
    growth = (LONGEST / SHORTEST) ** (1 / (NUM_PROMPTS - 1))
    lengths = [round(SHORTEST * growth**index) for index in range(NUM_PROMPTS)]
    starts = [0 if index % 2 else 3 * index % (len(words) - length + 1) for index, length in enumerate(lengths)]
    prompts = [" ".join(words[start : start + length]) for start, length in zip(starts, lengths, strict=True)]
    # Short and long ones side by side.
    return prompts[::2] + prompts[1::2]


@pytest.fixture(scope="module")
def folder() -> Path:
    return ensure_default_model()


class Expected:
    """What transformers itself generates: for the one prompt, and for the many."""

    def __init__(self, folder: Path) -> None:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.paris = greedy(model, tokenizer.encode(PARIS), NUM_PARIS_TOKENS)
        self.prompts = [greedy(model, tokenizer.encode(prompt), NUM_NEW_TOKENS) for prompt in make_prompts()]


def greedy(model: PreTrainedModel, prompt: Sequence[int], count: int) -> list[int]:
    ids = torch.tensor([prompt])
    output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
    return [int(token) for token in output[0, len(prompt) :].numpy()]


@pytest.fixture(scope="module")
def expected(folder: Path) -> Expected:
    return Expected(folder)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return load_model(folder, [TransformersLoader()], LoadOptions(torch.device("cpu"), torch.float32))


def make_engine(loaded: LoadedModel, options: EngineOptions) -> Engine:
    """An engine over the one loaded model; only its caches are described anew, in blocks of another size."""
    model = loaded.model
    model.layers = [
        PlacedLayer(placed.layer, placed.kv_cache_spec.copy_with_new_block_size(options.block_size))
        for placed in model.layers
    ]
    return build_engine(loaded, options)


def test_it_says_paris(loaded: LoadedModel, expected: Expected) -> None:
    engine = make_engine(loaded, engine_options(16, 512, 512, caching=True))
    (completion,) = engine.generate([PARIS], SamplingParams(max_tokens=NUM_PARIS_TOKENS))
    assert "Paris" in completion.text
    assert list(completion.token_ids) == expected.paris


def test_the_prompts_are_what_they_should_be() -> None:
    lengths = [len(prompt.split()) for prompt in make_prompts()]
    assert (len(lengths), min(lengths), max(lengths)) == (NUM_PROMPTS, SHORTEST, LONGEST)


def engine_options(block_size: int, pool_tokens: int, budget: int, *, caching: bool) -> EngineOptions:
    """Options for a pool that holds ``pool_tokens`` tokens."""
    return EngineOptions(
        block_size=block_size,
        num_blocks=1 + pool_tokens // block_size,
        max_num_batched_tokens=budget,
        max_model_len=512,
        enable_prefix_caching=caching,
    )


ROOMY = [
    engine_options(16, 8192, 512, caching=True),
    engine_options(7, 8192, 16, caching=True),
    engine_options(1, 8192, 100, caching=False),
    engine_options(64, 8192, 512, caching=False),
]
# The longest request fits, and little beside it.
TIGHT = [
    engine_options(7, 320, 100, caching=False),
    engine_options(64, 320, 100, caching=True),
]
TIGHT_TOO = [
    engine_options(1, 320, 512, caching=True),
    engine_options(16, 320, 16, caching=False),
]


def describe(options: EngineOptions) -> str:
    caching = "caching" if options.enable_prefix_caching else "no-caching"
    return f"{options.block_size}-{options.max_num_batched_tokens}-{caching}"


@pytest.mark.parametrize("options", ROOMY, ids=describe)
def test_a_batch_gives_the_same_tokens(options: EngineOptions, loaded: LoadedModel, expected: Expected) -> None:
    engine = make_engine(loaded, options)
    assert run(engine) == expected.prompts
    assert engine.stats.num_preemptions == 0
    assert (engine.stats.num_cached_tokens > 0) == options.enable_prefix_caching


@pytest.mark.parametrize("options", TIGHT, ids=describe)
def test_preempted_requests_give_the_same_tokens(
    options: EngineOptions, loaded: LoadedModel, expected: Expected
) -> None:
    engine = make_engine(loaded, options)
    assert run(engine) == expected.prompts
    assert engine.stats.num_preemptions > 0


@pytest.mark.slow
@pytest.mark.parametrize("options", TIGHT_TOO, ids=describe)
def test_more_preempted_requests_give_the_same_tokens(
    options: EngineOptions, loaded: LoadedModel, expected: Expected
) -> None:
    test_preempted_requests_give_the_same_tokens(options, loaded, expected)


def run(engine: Engine) -> list[list[int]]:
    completions = engine.generate(make_prompts(), SamplingParams(max_tokens=NUM_NEW_TOKENS))
    return [list(completion.token_ids) for completion in completions]


def test_the_command_line_gives_the_same_tokens(folder: Path, expected: Expected) -> None:
    command = [sys.executable, "-m", "genericbuilders.cli", "generate", "--json", "--prompt", PARIS]
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    result = subprocess.run(
        [*command, "--max-tokens", str(NUM_PARIS_TOKENS)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (line,) = result.stdout.splitlines()
    answer = json.loads(line)
    assert answer["token_ids"] == expected.paris
    assert answer["prompt"] == PARIS
    assert "Paris" in answer["text"]
