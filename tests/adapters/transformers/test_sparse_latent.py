"""DeepSeek-V3.2 where tokens attend over fewer tokens than there are, over just as many, and over all."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from hybrid_batches import HandFed
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_attention import tiny_attention, tiny_sparse
from tiny_models import greedy_tokens, tiny_engine
from torch import Tensor, nn
from transformers import DeepseekV32ForCausalLM, PreTrainedModel

from genericbuilders.backends.indexer import INDEXER
from genericbuilders.backends.mla_sparse import MLA_SPARSE
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, plan_model
from genericbuilders.model import LoadError
from genericbuilders_transformers.model import TransformersModel

LOGITS = 1e-4
LENGTH = 21
TOPKS = (1, 5, LENGTH - 1, LENGTH, 200)


@cache
def reference(topk: int) -> PreTrainedModel:
    """transformers' own model, in eager mode."""
    model = tiny_sparse(topk)
    model.set_attn_implementation("eager")
    return model


def prompt(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(97) for _ in range(length)]


@torch.inference_mode()
def logits_alone(topk: int, tokens: list[int]) -> Tensor:
    return reference(topk)(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def test_what_is_selected_matters() -> None:
    """Else what follows would hold for dense attention, too."""
    tokens = prompt(random.Random(3), LENGTH)
    every = logits_alone(200, tokens)
    assert torch.equal(logits_alone(LENGTH, tokens), every)
    for topk in (1, 5, LENGTH - 1):
        apart = (logits_alone(topk, tokens) - every).abs().amax(1)
        torch.testing.assert_close(apart[:topk], torch.zeros(topk), rtol=0, atol=LOGITS)
        assert float(apart[topk:].max()) > 100 * LOGITS


@pytest.mark.parametrize("topk", TOPKS)
@pytest.mark.parametrize("block_size", [4, 7])
def test_every_split_of_a_prompt_and_each_decode_give_its_logits(topk: int, block_size: int) -> None:
    tokens = prompt(random.Random(3), LENGTH + 3)
    expected = logits_alone(topk, tokens)
    model = TransformersModel(tiny_sparse(topk), block_size=block_size)
    fed = HandFed(model, LENGTH, block_size=block_size)
    splits = range(1, LENGTH)
    found = {split: [part] for split, part in fed.step({split: tokens[:split] for split in splits}, 2).items()}
    for first, last in ((None, LENGTH), (LENGTH, LENGTH + 1), (LENGTH + 1, LENGTH + 2), (LENGTH + 2, LENGTH + 3)):
        step = fed.step({split: tokens[split if first is None else first : last] for split in splits}, 2)
        for split, part in step.items():
            found[split].append(part)
    for split in splits:
        torch.testing.assert_close(torch.cat(found[split]), expected, rtol=0, atol=LOGITS)


@pytest.mark.parametrize("topk", [3, 12, 64])
@settings(max_examples=3, deadline=None)
@given(
    seed=st.integers(0, 50),
    block_size=st.sampled_from([1, 4, 8]),
    budget=st.integers(3, 20),
    tight=st.booleans(),
    caching=st.booleans(),
)
def test_tokens_of_continuous_batching_are_transformers_own(
    topk: int, seed: int, block_size: int, budget: int, tight: bool, caching: bool
) -> None:
    rng = random.Random(seed)
    common = prompt(rng, 20)
    prompts = [common[: rng.randint(0, 20)] + prompt(rng, rng.choice([1, 5, 13])) for _ in range(5)]
    options = EngineOptions(
        block_size=block_size,
        num_blocks=1 + 56 // block_size if tight else None,
        max_num_batched_tokens=budget,
        max_num_seqs=3,
        max_model_len=48,
        enable_prefix_caching=caching,
    )
    engine = tiny_engine(tiny_sparse(topk), options)
    found = engine.generate(prompts, SamplingParams(max_tokens=6))
    assert [list(each.token_ids) for each in found] == [greedy_tokens(reference(topk), tokens, 6) for tokens in prompts]
    assert all(pool.num_free_blocks == pool.num_usable_blocks for pool in engine.runner.coordinator.pools)


def test_preempted_requests_and_those_with_a_known_beginning_go_on_as_they_would() -> None:
    rng = random.Random(5)
    common = prompt(rng, 16)
    prompts = [common + prompt(rng, 3), *[common[:12] + prompt(rng, 5) for _ in range(3)], prompt(rng, 9)]
    options = EngineOptions(block_size=4, num_blocks=14, max_num_batched_tokens=24, max_num_seqs=4, max_model_len=48)
    engine = tiny_engine(tiny_sparse(5), options)
    first = engine.generate(prompts[:1], SamplingParams(max_tokens=2))
    found = engine.generate(prompts[1:], SamplingParams(max_tokens=12))
    assert engine.runner.stats.num_preemptions > 0
    assert engine.runner.stats.num_cached_tokens >= 12
    assert [list(each.token_ids) for each in first] == [greedy_tokens(reference(5), prompts[0], 2)]
    assert [list(each.token_ids) for each in found] == [
        greedy_tokens(reference(5), tokens, 12) for tokens in prompts[1:]
    ]


def test_latent_vectors_and_index_keys_are_two_planned_groups() -> None:
    """A token takes 12 + 4 numbers for its latent vector and key with positions, and 8 for its index key."""
    model = TransformersModel(tiny_sparse(5), block_size=4)
    plan = plan_model(model, EngineOptions(block_size=4, num_blocks=10, max_model_len=48))
    assert [group.layer_names for group in plan.groups] == [
        ("model.layers.0.self_attn", "model.layers.1.self_attn"),
        ("model.layers.0.self_attn.indexer", "model.layers.1.self_attn.indexer"),
    ]
    assert [group.page_bytes for group in plan.groups] == [4 * 16 * 4, 4 * 8 * 4]
    assert plan.total_bytes == 10 * 2 * 4 * (16 + 8) * 4
    engine = tiny_engine(tiny_sparse(5), EngineOptions(block_size=4, num_blocks=10, max_model_len=48))
    assert [group.adapter for group in engine.runner.groups] == [MLA_SPARSE, INDEXER]
    shapes = {layer.name: tuple(cache.shape) for layer, cache in engine.runner.kv_caches.items()}
    assert shapes["model.layers.1.self_attn"] == (10, 4, 16)
    assert shapes["model.layers.1.self_attn.indexer"] == (10, 4, 8)


def sparse_model() -> DeepseekV32ForCausalLM:
    model = tiny_sparse(5)
    assert isinstance(model, DeepseekV32ForCausalLM)
    return model


@pytest.mark.parametrize("topk", [0, -2])
def test_a_model_that_selects_nothing_is_refused(topk: int) -> None:
    model = sparse_model()
    setattr(model.get_submodule("model.layers.1.self_attn.indexer"), "index_topk", topk)  # noqa: B010
    with pytest.raises(LoadError, match=f"model.layers.1.self_attn: topk is {topk}; a token attends over at least 1"):
        TransformersModel(model, block_size=4)


@pytest.mark.parametrize(
    ("name", "made", "told"),
    [
        ("indexer.wq_b", (10, 24), r"indexer.wq_b.weight is \(24, 10\); the layer's settings make it \(256, 10\)"),
        ("indexer.wk", (32, 9), r"indexer.wk.weight is \(9, 32\); the layer's settings make it \(8, 32\)"),
        ("indexer.weights_proj", (32, 4), r"weights_proj.weight is \(4, 32\); the layer's settings make it \(32, 32\)"),
        ("kv_b_proj", (12, 40), r"kv_b_proj.weight is \(40, 12\); the layer's settings make it \(44, 12\)"),
        ("q_b_proj", (10, 36), r"q_b_proj.weight is \(36, 10\); the layer's settings make it \(40, 10\)"),
    ],
)
def test_weights_that_do_not_fit_the_settings_are_refused(name: str, made: tuple[int, int], told: str) -> None:
    model = sparse_model()
    model.set_submodule(f"model.layers.0.self_attn.{name}", nn.Linear(*made, bias=False))
    with pytest.raises(LoadError, match=told):
        TransformersModel(model, block_size=4)


def test_keys_shorter_than_what_is_rotated_are_refused() -> None:
    model = sparse_model()
    indexer = model.get_submodule("model.layers.0.self_attn.indexer")
    for name, value in (("head_dim", 2), ("wq_b", nn.Linear(10, 64)), ("wk", nn.Linear(32, 2))):
        setattr(indexer, name, value)
    with pytest.raises(
        LoadError, match="keys of 2 elements, fewer than the 4 that are rotated; index_head_dim must be"
    ):
        TransformersModel(model, block_size=4)


def test_another_module_is_refused() -> None:
    model = sparse_model()
    other = tiny_attention("deepseek_v3").get_submodule("model.layers.0.self_attn")
    model.set_submodule("model.layers.0.self_attn", other)
    with pytest.raises(LoadError, match="is a DeepseekV3Attention, not a DeepseekV32Attention"):
        TransformersModel(model, block_size=4)
