"""Models with state-space layers, on our back ends: logits, tokens and states as if each request ran alone."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from hybrid_batches import HandFed
from tiny_hybrids import HYBRIDS, VOCAB_SIZE, tiny_hybrid
from tiny_models import greedy_tokens, tiny_engine
from torch import Tensor
from transformers import PreTrainedModel

from genericbuilders.adapter import Adapter
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.gdn import GDN
from genericbuilders.backends.linear import LINEAR
from genericbuilders.backends.mamba1 import MAMBA1
from genericbuilders.backends.mamba2 import MAMBA2
from genericbuilders.backends.short_conv import SHORT_CONV
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import FinishReason, SamplingParams
from genericbuilders.engine.setup import EngineOptions
from genericbuilders.specs import FullAttentionSpec, MambaSpec
from genericbuilders_transformers.model import TransformersModel

LOGITS = 1e-4
STATES = 1e-4
BLOCK_SIZE = 4

LAYERS: dict[str, list[tuple[str, Adapter]]] = {
    "falcon_mamba": [("backbone.layers.0.mixer", MAMBA1), ("backbone.layers.1.mixer", MAMBA1)],
    "jamba": [
        ("model.layers.0.mamba", MAMBA1),
        ("model.layers.1.self_attn", FLASH_ATTN),
        ("model.layers.2.mamba", MAMBA1),
    ],
    "mamba2": [("backbone.layers.0.mixer", MAMBA2), ("backbone.layers.1.mixer", MAMBA2)],
    "bamba": [
        ("model.layers.0.mamba", MAMBA2),
        ("model.layers.1.self_attn", FLASH_ATTN),
        ("model.layers.2.mamba", MAMBA2),
    ],
    "qwen3_next": [
        ("model.layers.0.linear_attn", GDN),
        ("model.layers.1.self_attn", FLASH_ATTN),
        ("model.layers.2.linear_attn", GDN),
    ],
    "minimax": [
        ("model.layers.0.self_attn", LINEAR),
        ("model.layers.1.self_attn", FLASH_ATTN),
        ("model.layers.2.self_attn", LINEAR),
    ],
    "lfm2": [
        ("model.layers.0.conv", SHORT_CONV),
        ("model.layers.1.self_attn", FLASH_ATTN),
        ("model.layers.2.conv", SHORT_CONV),
    ],
}


@cache
def reference(family: str) -> PreTrainedModel:
    """transformers' own model, left as it is."""
    return tiny_hybrid(family)


def served(family: str) -> TransformersModel:
    return TransformersModel(tiny_hybrid(family), block_size=BLOCK_SIZE)


@torch.inference_mode()
def logits_alone(family: str, tokens: list[int]) -> Tensor:
    return reference(family)(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def prompt(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(VOCAB_SIZE) for _ in range(length)]


def assert_same_states(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, state in expected.items():
        torch.testing.assert_close(found[name], state, rtol=STATES, atol=STATES, msg=lambda text: f"{name}: {text}")  # noqa: B023


@pytest.mark.parametrize("family", HYBRIDS)
def test_each_mixer_is_replaced_on_its_own_weights(family: str) -> None:
    hf = tiny_hybrid(family)
    before = {parameter.data_ptr() for parameter in hf.parameters()}
    model = TransformersModel(hf, block_size=BLOCK_SIZE)
    assert [(placed.layer.name, placed.layer.adapter) for placed in model.layers] == LAYERS[family]
    for placed in model.layers:
        kind = FullAttentionSpec if placed.layer.adapter is FLASH_ATTN else MambaSpec
        assert isinstance(placed.kv_cache_spec, kind)
        assert placed.kv_cache_spec.block_size == BLOCK_SIZE
    assert {parameter.data_ptr() for parameter in hf.parameters()} <= before


@pytest.mark.parametrize("family", HYBRIDS)
def test_every_split_of_a_prompt_gives_its_logits_and_states(family: str) -> None:
    """Request ``i`` is fed ``i`` tokens and then the rest; the last one all at once. Chunks end at 8 and 16."""
    tokens = prompt(random.Random(3), 21)
    expected = logits_alone(family, tokens)
    fed = HandFed(served(family), len(tokens), BLOCK_SIZE)
    splits = range(1, len(tokens))
    whole = fed.step({0: tokens})
    first = fed.step({split: tokens[:split] for split in splits})
    rest = fed.step({split: tokens[split:] for split in splits})
    torch.testing.assert_close(whole[0], expected, rtol=0, atol=LOGITS)
    for split in splits:
        found = torch.cat([first[split], rest[split]])
        torch.testing.assert_close(found, expected, rtol=0, atol=LOGITS)
        assert_same_states(fed.states(split), fed.states(0))


@pytest.mark.parametrize("family", HYBRIDS)
def test_all_the_ways_to_cut_a_prompt_give_its_logits_and_states(family: str) -> None:
    """Request ``i`` is cut behind token ``n`` where bit ``n`` of ``i`` is set, on both sides of a chunk's end at 8."""
    tokens = prompt(random.Random(4), 10)
    expected = logits_alone(family, tokens)
    ways = range(2 ** (len(tokens) - 1))
    ends = [[n + 1 for n in range(len(tokens)) if way >> n & 1 or n + 1 == len(tokens)] for way in ways]
    fed = HandFed(served(family), len(ends), BLOCK_SIZE, max_len=12)
    found: list[list[Tensor]] = [[] for _ in ways]
    for turn in range(len(tokens)):
        pieces = {way: tokens[fed.computed[way] : ends[way][turn]] for way in ways if turn < len(ends[way])}
        for way, logits in fed.step(pieces).items():
            found[way].append(logits)
    whole = fed.states(0)
    for way in ways:
        torch.testing.assert_close(torch.cat(found[way]), expected, rtol=0, atol=LOGITS)
        assert_same_states(fed.states(way), whole)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", HYBRIDS)
def test_logits_of_mixed_batches_are_those_of_each_request_alone(family: str, seed: int) -> None:
    """Random lengths, arrivals and pieces, some batches with padding rows behind them."""
    rng = random.Random(seed)
    prompts = [prompt(rng, rng.choice([1, 2, 3, 7, 8, 9, 16, 17, rng.randint(1, 40)])) for _ in range(6)]
    expected = [logits_alone(family, tokens) for tokens in prompts]
    fed = HandFed(served(family), len(prompts), BLOCK_SIZE)
    null = fed.null_states()
    while any(fed.computed[request] < len(tokens) for request, tokens in enumerate(prompts)):
        pieces: dict[int, list[int]] = {}
        for request in rng.sample(range(len(prompts)), rng.randint(1, len(prompts))):
            done = fed.computed[request]
            left = prompts[request][done : done + rng.choice([1, 1, 2, 5, 11, 40])]
            if left:
                pieces[request] = left
        if not pieces:
            continue
        before = {request: fed.computed[request] for request in pieces}
        for request, logits in fed.step(pieces, padding=rng.choice([0, 0, 1, 3])).items():
            start = before[request]
            torch.testing.assert_close(logits, expected[request][start : start + len(logits)], rtol=0, atol=LOGITS)
    for name, state in fed.null_states().items():
        assert torch.equal(state, null[name])


@pytest.mark.parametrize("family", HYBRIDS)
def test_padding_rows_touch_no_live_state(family: str) -> None:
    """A batch of decodes as a graph has it: empty rows with stale numbers behind the real ones."""
    rng = random.Random(8)
    tokens = [prompt(rng, 12) for _ in range(3)]
    plain, padded = (HandFed(served(family), 3, BLOCK_SIZE) for _ in range(2))
    for fed in (plain, padded):
        fed.step({request: each[:10] for request, each in enumerate(tokens)})
    for place in (10, 11):
        rows = {request: [tokens[request][place]] for request in (0, 2)}
        idle, null = padded.states(1), padded.null_states()
        expected, found = plain.step(rows), padded.step(rows, padding=5)
        for request in rows:
            torch.testing.assert_close(found[request], expected[request], rtol=0, atol=LOGITS)
            assert_same_states(padded.states(request), plain.states(request))
        for before, after in ((idle, padded.states(1)), (null, padded.null_states())):
            assert all(torch.equal(after[name], state) for name, state in before.items())


def preempt_sometimes(engine: Engine, rng: random.Random) -> dict[str, list[int]]:
    """Step until all have ended, and take the last request's blocks now and then."""
    found: dict[str, list[int]] = {}
    while engine.has_unfinished():
        if engine.scheduler.running and rng.random() < 0.2:
            engine.runner.release(engine.scheduler.preempt_last().request_id)
        for event in engine.step():
            if event.completion is not None:
                assert event.completion.finish_reason is FinishReason.LENGTH, event.completion.error
                found[event.request_id] = list(event.completion.token_ids)
    return found


@pytest.mark.parametrize("family", HYBRIDS)
def test_tokens_of_continuous_batching_are_transformers_own(family: str) -> None:
    """Prompts come in pieces of at most 12 tokens, requests arrive late, and blocks are few."""
    rng = random.Random(5)
    prompts = [prompt(rng, rng.choice([1, 5, 8, 13, 30])) for _ in range(8)]
    options = EngineOptions(
        block_size=BLOCK_SIZE, num_blocks=22, max_num_batched_tokens=12, max_num_seqs=4, max_model_len=64
    )
    engine = tiny_engine(tiny_hybrid(family), options)
    params = SamplingParams(max_tokens=8)
    for request, tokens in enumerate(prompts[:5]):
        engine.add_request(str(request), tokens, params)
    # None of them can end that soon.
    for _ in range(4):
        engine.step()
    for request, tokens in enumerate(prompts[5:], 5):
        engine.add_request(str(request), tokens, params)
    found = preempt_sometimes(engine, rng)
    assert found == {
        str(request): greedy_tokens(reference(family), tokens, 8) for request, tokens in enumerate(prompts)
    }
    if family not in ("falcon_mamba", "mamba2"):
        assert engine.stats.num_preemptions > 0
