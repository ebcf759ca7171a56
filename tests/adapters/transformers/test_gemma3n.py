"""Gemma 3n, whose last layers share the caches of earlier ones: with and without skipping tokens in them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
import typer
from hybrid_batches import HandFed
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_attention import WINDOW, tiny_attention
from tiny_models import IdTokenizer, greedy_tokens, save, tiny_engine, tiny_model
from torch import Tensor, nn
from transformers import PreTrainedModel
from typer.testing import CliRunner

from genericbuilders.backends.fast_prefill import FAST_PREFILL
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.cli.app import app
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, load_model, prepare
from genericbuilders.model import LoadedModel, LoadError, LoadOptions, ModelLoader
from genericbuilders.specs import KVQuantMode
from genericbuilders_transformers.loader import TransformersLoader
from genericbuilders_transformers.model import TransformersModel

CPU = torch.device("cpu")
LOGITS = 1e-4
# Of the seven layers, the ones that store; the others read the last of their own type among these.
STORING = (0, 1, 2)
TARGETS = {3: 1, 4: 2, 5: 1, 6: 2}


@cache
def reference() -> PreTrainedModel:
    """transformers' own model, left as it is."""
    return tiny_attention("gemma3n")


@torch.inference_mode()
def logits_alone(tokens: list[int]) -> Tensor:
    return reference()(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def prompt(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(97) for _ in range(length)]


class Counted(nn.Module):
    """A feed-forward part that counts the tokens that it is given."""

    def __init__(self, inner: nn.Module, counts: list[int]) -> None:
        super().__init__()
        self.inner = inner
        self.counts = counts

    def forward(self, hidden_states: Tensor) -> Tensor:
        self.counts.append(hidden_states.shape[-2])
        out: Tensor = self.inner(hidden_states)
        return out


def tokens_run(model: TransformersModel) -> Mapping[int, list[int]]:
    """How many tokens each decoder layer's feed-forward part is given from now on, by step; none where it does not run."""
    found: dict[int, list[int]] = {}
    for index in range(model.hf.config.num_hidden_layers):
        layer = model.hf.get_submodule(f"model.layers.{index}")
        if any(name == "layer" for name, _ in layer.named_children()):
            layer = layer.get_submodule("layer")
        found[index] = []
        layer.register_module("mlp", Counted(layer.get_submodule("mlp"), found[index]))
    return found


@pytest.mark.parametrize("fast", [False, True])
def test_the_last_layers_read_the_caches_of_their_own_type(fast: bool) -> None:
    model = TransformersModel(tiny_attention("gemma3n"), block_size=4, fast_prefill=fast)
    assert sorted(model.attention_layers) == list(STORING)
    assert {
        index: next(place for place, own in model.attention_layers.items() if own is layer.cache_owner)
        for index, layer in model.sharing_layers.items()
    } == TARGETS
    assert {layer.adapter for layer in model.sharing_layers.values()} == {FAST_PREFILL if fast else FLASH_ATTN}
    assert [placed.layer.name for placed in model.layers] == [f"model.layers.{index}.self_attn" for index in range(7)]


def test_skipping_is_the_default() -> None:
    assert LoadOptions(CPU).fast_prefill
    model = TransformersModel(tiny_attention("gemma3n"), block_size=4)
    assert {layer.adapter for layer in model.sharing_layers.values()} == {FAST_PREFILL}


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("last", [0, 1, 3])
def test_every_split_of_a_prompt_gives_the_logits_that_are_wanted(fast: bool, last: int) -> None:
    """Of each piece only the last tokens' logits are wanted, or none, as in a prompt's first pieces."""
    tokens = prompt(random.Random(3), 21)
    expected = logits_alone(tokens)
    fed = HandFed(TransformersModel(tiny_attention("gemma3n"), block_size=4, fast_prefill=fast), len(tokens))
    splits = range(1, len(tokens))
    whole = fed.step({0: tokens}, wanted={0: last})
    torch.testing.assert_close(whole[0], expected[len(tokens) - last :], rtol=0, atol=LOGITS)
    first = {split: min(split, last) for split in splits}
    rest = {split: min(len(tokens) - split, max(last, 1)) for split in splits}
    got = fed.step({split: tokens[:split] for split in splits}, wanted=first)
    for split in splits:
        torch.testing.assert_close(got[split], expected[split - first[split] : split], rtol=0, atol=LOGITS)
    got = fed.step({split: tokens[split:] for split in splits}, wanted=rest)
    for split in splits:
        torch.testing.assert_close(got[split], expected[len(tokens) - rest[split] :], rtol=0, atol=LOGITS)


def test_prompts_and_decodes_in_one_batch_with_padding_behind() -> None:
    """Request 0 decodes, 1 is in mid-prompt, 2 ends its prompt; rows of padding have stale lengths."""
    fed = HandFed(TransformersModel(tiny_attention("gemma3n"), block_size=4), 3)
    tokens = [prompt(random.Random(seed), 14) for seed in range(3)]
    fed.step({0: tokens[0][:9], 2: tokens[2][:3]}, wanted={0: 1, 2: 0})
    run = tokens_run(fed.model)
    got = fed.step({0: tokens[0][9:10], 1: tokens[1][:11], 2: tokens[2][3:]}, padding=2, wanted={0: 1, 1: 0, 2: 1})
    torch.testing.assert_close(got[0], logits_alone(tokens[0])[9:10], rtol=0, atol=LOGITS)
    torch.testing.assert_close(got[2], logits_alone(tokens[2])[13:], rtol=0, atol=LOGITS)
    assert run == {index: [25] if index in STORING else [2] for index in range(7)}


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 50),
    block_size=st.sampled_from([1, 2, 4, 8]),
    budget=st.integers(1, 20),
    tight=st.booleans(),
    caching=st.booleans(),
    hybrid=st.booleans(),
    fast=st.booleans(),
)
def test_tokens_are_transformers_own_with_and_without(
    seed: int, block_size: int, budget: int, tight: bool, caching: bool, hybrid: bool, fast: bool
) -> None:
    rng = random.Random(seed)
    common = prompt(rng, 20)
    prompts = [common[: rng.randint(0, 20)] + prompt(rng, rng.choice([1, 5, WINDOW, 13])) for _ in range(5)]
    options = EngineOptions(
        block_size=block_size,
        num_blocks=1 + 56 // block_size if tight else None,
        max_num_batched_tokens=budget,
        max_num_seqs=3,
        max_model_len=48,
        enable_prefix_caching=caching,
        hybrid_kv_cache=hybrid,
    )
    engine = tiny_engine(tiny_attention("gemma3n"), options, fast_prefill=fast)
    found = engine.generate(prompts, SamplingParams(max_tokens=6))
    assert [list(each.token_ids) for each in found] == [greedy_tokens(reference(), tokens, 6) for tokens in prompts]
    assert all(pool.num_free_blocks == pool.num_usable_blocks for pool in engine.runner.coordinator.pools)


def test_preempted_and_cached_requests_end_with_the_same_tokens() -> None:
    prompts = [prompt(random.Random(seed), 24) for seed in range(3)]
    prompts.append(prompts[0])
    options = EngineOptions(block_size=4, num_blocks=15, max_num_batched_tokens=16, max_num_seqs=4, max_model_len=48)
    engine = tiny_engine(tiny_attention("gemma3n"), options)
    found = engine.generate(prompts, SamplingParams(max_tokens=12))
    assert [list(each.token_ids) for each in found] == [greedy_tokens(reference(), tokens, 12) for tokens in prompts]
    again = engine.generate(prompts[:1], SamplingParams(max_tokens=12))
    assert again[0].token_ids == found[0].token_ids
    assert engine.stats.num_preemptions > 0
    assert engine.stats.num_cached_tokens > 0


def serve(fast: bool) -> tuple[Engine, Mapping[int, list[int]]]:
    options = EngineOptions(block_size=4, max_num_batched_tokens=8, enable_prefix_caching=False)
    engine = tiny_engine(tiny_attention("gemma3n"), options, fast_prefill=fast)
    model = engine.runner.model
    assert isinstance(model, TransformersModel)
    run = tokens_run(model)
    engine.generate([prompt(random.Random(0), 21)], SamplingParams(max_tokens=3))
    return engine, run


def test_layers_that_share_run_for_the_wanted_tokens_alone() -> None:
    """A prompt in pieces of 8, 8 and 5, then two decodes: of the first two pieces nothing is wanted."""
    slow, everything = serve(fast=False)
    assert everything == {index: [8, 8, 5, 1, 1] for index in range(7)}
    fast, run = serve(fast=True)
    assert run == {index: [8, 8, 5, 1, 1] if index in STORING else [1, 1, 1] for index in range(7)}
    # In layer and step: sequences of 8, 16 and 21 to 23 tokens, 2 key-value heads, 12 elements of key and of value.
    token = 2 * 2 * 12 * 4
    assert slow.stats.kv_bytes_read == 7 * (8 + 16 + 21 + 22 + 23) * token
    assert fast.stats.kv_bytes_read == slow.stats.kv_bytes_read - 4 * (8 + 16) * token


def test_pieces_of_one_token_run_whole() -> None:
    """Like the decodes that they look like, so that one graph holds both."""
    options = EngineOptions(block_size=4, max_num_batched_tokens=1, enable_prefix_caching=False)
    engine = tiny_engine(tiny_attention("gemma3n"), options)
    model, tokens = engine.runner.model, prompt(random.Random(0), 4)
    assert isinstance(model, TransformersModel)
    run = tokens_run(model)
    (found,) = engine.generate([tokens], SamplingParams(max_tokens=2))
    assert list(found.token_ids) == greedy_tokens(reference(), tokens, 2)
    assert run == {index: [1] * 5 for index in range(7)}


@pytest.mark.parametrize("fast", [False, True])
def test_only_layers_that_store_take_memory(fast: bool) -> None:
    options = EngineOptions(block_size=4, num_blocks=20)
    model = TransformersModel(tiny_attention("gemma3n"), block_size=4, fast_prefill=fast)
    setup = prepare(LoadedModel(model, IdTokenizer()), options)
    # One page: 4 tokens, 2 heads, 12 elements of key and of value, 4 bytes each.
    page = 4 * 2 * 2 * 12 * 4
    assert setup.plan.total_bytes == 20 * 3 * page
    assert [group.layer_names for group in setup.plan.groups] == [
        ("model.layers.0.self_attn", "model.layers.1.self_attn"),
        ("model.layers.2.self_attn",),
    ]
    caches = setup.start().runner.kv_caches
    assert len({cache.data_ptr() for cache in caches.values()}) == 3
    for index, target in TARGETS.items():
        assert caches[model.sharing_layers[index]] is caches[model.attention_layers[target]]


@pytest.mark.parametrize("fast", [False, True])
def test_a_saved_model_is_served_by_the_option(fast: bool, tmp_path: Path) -> None:
    save(tiny_attention("gemma3n"), tmp_path)
    model = load_model(tmp_path, [TransformersLoader()], LoadOptions(CPU, block_size=4, fast_prefill=fast)).model
    assert isinstance(model, TransformersModel)
    assert {layer.adapter for layer in model.sharing_layers.values()} == {FAST_PREFILL if fast else FLASH_ATTN}
    tokens = prompt(random.Random(1), 12)
    got = HandFed(model, 1).step({0: tokens}, wanted={0: 1})
    torch.testing.assert_close(got[0], logits_alone(tokens)[11:], rtol=0, atol=LOGITS)


@pytest.mark.parametrize("fast", [False, True])
def test_the_command_line_has_the_option(fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tiny_attention("gemma3n"), tmp_path)
    given: list[bool] = []

    def watched(folder: Path, loaders: Sequence[ModelLoader], options: LoadOptions) -> LoadedModel:
        given.append(options.fast_prefill)
        return load_model(folder, loaders, options)

    monkeypatch.setattr("genericbuilders.cli.serving.load_model", watched)
    tokens = prompt(random.Random(2), 9)
    text = " ".join(f"t{token}" for token in tokens)
    arguments = ["generate", "--model", str(tmp_path), "--prompt", text, "--max-tokens", "4", "--ignore-eos", "--json"]
    assert isinstance(app, typer.Typer)
    result = CliRunner().invoke(app, [*arguments, *([] if fast else ["--no-fast-prefill"])])
    assert result.exit_code == 0, result.stderr
    assert given == [fast]
    assert json.loads(result.stdout)["token_ids"] == greedy_tokens(reference(), tokens, 4)


def refused(hf: PreTrainedModel, message: str, mode: KVQuantMode = KVQuantMode.NONE) -> None:
    with pytest.raises(LoadError, match=message):
        TransformersModel(hf, block_size=4, kv_cache_dtype=mode)


def test_what_is_not_served_is_refused() -> None:
    llama = tiny_model()
    llama.config.num_kv_shared_layers = 1  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue] - a setting that Llama's lack
    refused(llama, "its last 1 layers share the caches of others, which is served for gemma3n_text, not for llama")
    hf = tiny_attention("gemma3n")
    hf.config.num_kv_shared_layers = 5  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue] - no full layer is left to store
    refused(hf, "layer 2 is of type 'full_attention' and shares a cache, but none of the first 2 layers")
    refused(
        tiny_attention("gemma3n"), "only caches of full attention can be quantised", KVQuantMode.INT8_PER_TOKEN_HEAD
    )
    full = tiny_attention("gemma3n")
    full.config.layer_types = ["full_attention"] * 7  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue] - so that caches can be quantised
    refused(full, "which is one of 'int8_kv'; served are those of 'flash_attn'", KVQuantMode.INT8_PER_TOKEN_HEAD)
