"""Models on quantised caches: tokens do not depend on the batch, and what cannot be quantised is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from quantised_caches import MODES
from tiny_attention import tiny_attention
from tiny_hybrids import tiny_hybrid
from tiny_models import IdTokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel
from typer.testing import CliRunner
from typing_extensions import override

from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.int8_kv import INT8_KV
from genericbuilders.backends.quantised_base import quantised_spec
from genericbuilders.backends.turboquant import TURBOQUANT
from genericbuilders.cli.app import app
from genericbuilders.cli.generate import KVCacheDType
from genericbuilders.cli.serving import make_plan
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, build_engine, load_model
from genericbuilders.kernels.quant.formats import slot_format
from genericbuilders.model import LoadedModel, LoadError, LoadOptions, ModelLoader, PlacedLayer
from genericbuilders.specs import FullAttentionSpec, KVQuantMode
from genericbuilders_transformers.default_model import ensure_default_model
from genericbuilders_transformers.loader import TransformersLoader
from genericbuilders_transformers.model import TransformersModel, load_transformers_model
from genericbuilders_transformers.quantised import quantised_layers

by_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
MAX_TOKENS = 8


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny_llama() -> PreTrainedModel:
    """Two layers with heads of 16 elements, of which every mode has a form."""
    torch.random.set_rng_state(torch.Generator().manual_seed(1).get_state())
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8.0)
    return model.eval()


def tiny_engine(mode: KVQuantMode, options: EngineOptions, *, fuse: bool = True) -> Engine:
    model = TransformersModel(tiny_llama(), block_size=options.block_size, fuse=fuse, kv_cache_dtype=mode)
    return build_engine(LoadedModel(model, IdTokenizer()), options)


def make_prompts() -> list[list[int]]:
    """Six prompts, every second one with the beginning of the first."""
    rng = random.Random(3)
    prompts = [[rng.randrange(97) for _ in range(rng.randint(4, 30))] for _ in range(6)]
    return [prompts[0] + prompt if index % 2 else prompt for index, prompt in enumerate(prompts)]


def tokens_of(engine: Engine, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    completions = engine.generate([list(prompt) for prompt in prompts], SamplingParams(max_tokens=MAX_TOKENS))
    return [list(completion.token_ids) for completion in completions]


@by_mode
def test_tokens_are_the_same_alone_shared_and_after_preemption(mode: KVQuantMode) -> None:
    prompts = make_prompts()
    roomy = EngineOptions(block_size=7, max_num_batched_tokens=256, enable_prefix_caching=False)
    alone = [tokens for prompt in prompts for tokens in tokens_of(tiny_engine(mode, roomy), [prompt])]
    longest = max(map(len, prompts)) + MAX_TOKENS

    tight = EngineOptions(
        block_size=4, num_blocks=4 + longest // 4, max_num_batched_tokens=16, enable_prefix_caching=False
    )
    engine = tiny_engine(mode, tight)
    assert tokens_of(engine, prompts) == alone
    assert engine.stats.num_preemptions > 0

    engine = tiny_engine(mode, EngineOptions(block_size=4, max_num_batched_tokens=24), fuse=False)
    assert tokens_of(engine, prompts) == alone
    assert tokens_of(engine, prompts) == alone
    assert engine.stats.num_cached_tokens > 0


def test_states_stay_as_they_are_beside_quantised_attention() -> None:
    mode = KVQuantMode.INT8_PER_TOKEN_HEAD
    before = TransformersModel(tiny_hybrid("jamba"), block_size=4).layers
    model = TransformersModel(tiny_hybrid("jamba"), block_size=4, kv_cache_dtype=mode)
    assert [placed.layer.name for placed in model.layers] == [placed.layer.name for placed in before]
    for placed, old in zip(model.layers, before, strict=True):
        if isinstance(old.kv_cache_spec, FullAttentionSpec):
            assert placed.layer.adapter is INT8_KV
            assert placed.kv_cache_spec == quantised_spec(old.kv_cache_spec, mode)
        else:
            assert placed.layer.adapter is old.layer.adapter
            assert placed.kv_cache_spec == old.kv_cache_spec
    assert len({placed.layer.adapter.name for placed in model.layers}) == 2
    engine = build_engine(LoadedModel(model, IdTokenizer()), EngineOptions(block_size=4))
    assert len(tokens_of(engine, [[1, 2, 3, 4, 5]])[0]) == MAX_TOKENS


def test_what_cannot_be_quantised_is_refused_by_name() -> None:
    mode = KVQuantMode.INT8_PER_TOKEN_HEAD
    with pytest.raises(
        LoadError, match=r"layer 'model\.layers\.0\..*' .* with a SlidingWindowSpec; only caches of full"
    ):
        TransformersModel(tiny_attention("mistral"), block_size=4, kv_cache_dtype=mode)
    with pytest.raises(LoadError, match=r"no layer of it caches plain keys and values.*INT8_PER_TOKEN_HEAD"):
        TransformersModel(tiny_hybrid("mamba2"), block_size=4, kv_cache_dtype=mode)
    with pytest.raises(
        LoadError, match=r"cannot be quantised: no back end has caches in mode NVFP4 \(5\); served are FP8_"
    ):
        TransformersModel(tiny_llama(), block_size=4, kv_cache_dtype=KVQuantMode.NVFP4)
    config = LlamaConfig(
        vocab_size=97, hidden_size=24, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2
    )
    with pytest.raises(
        LoadError, match=r"layer 'model.*' cannot be quantised: mode TURBOQUANT_3BIT_NC has no head size 12"
    ):
        TransformersModel(LlamaForCausalLM(config), block_size=4, kv_cache_dtype=KVQuantMode.TURBOQUANT_3BIT_NC)


def test_scores_that_need_more_than_a_mask_are_refused_when_the_model_is_loaded() -> None:
    heads = AttentionLayerConfig(num_heads=4, num_kv_heads=2, head_size=16, scale=0.25, logits_soft_cap=30.0)
    spec = FullAttentionSpec(block_size=4, num_kv_heads=2, head_size=16, dtype=torch.float32)
    layer = FLASH_ATTN.layer("l0", heads)
    with pytest.raises(LoadError, match=r"'l0' cannot be quantised: .* has logits_soft_cap"):
        quantised_layers({0: (layer, PlacedLayer(layer, spec))}, KVQuantMode.FP8_PER_TENSOR)


@pytest.mark.parametrize("load", [load_transformers_model, TransformersLoader().load], ids=["function", "loader"])
def test_whoever_loads_takes_the_mode(load: Callable[[Path, LoadOptions], LoadedModel]) -> None:
    mode = KVQuantMode.TURBOQUANT_3BIT_NC
    model = load(ensure_default_model(), LoadOptions(torch.device("cpu"), torch.float32, kv_cache_dtype=mode)).model
    for placed in model.layers:
        assert placed.layer.adapter is TURBOQUANT
        assert isinstance(placed.kv_cache_spec, FullAttentionSpec)
        assert placed.kv_cache_spec.kv_quant_mode is mode


def test_bytes_read_are_those_of_the_spec() -> None:
    for mode in MODES:
        engine = tiny_engine(mode, EngineOptions(block_size=4, enable_prefix_caching=False))
        engine.generate([[1, 2, 3]], SamplingParams(max_tokens=3))
        # Sequences of 3, 4 and 5 tokens; 2 layers, 2 key-value heads.
        assert engine.stats.kv_bytes_read == (3 + 4 + 5) * 2 * 2 * slot_format(mode, 16).slot_bytes


@pytest.mark.parametrize("choice", KVCacheDType)
def test_every_choice_of_the_command_line_is_a_mode(choice: KVCacheDType) -> None:
    plan = make_plan(None, "cpu", "auto", EngineOptions(), None, kv_cache_dtype=choice.value)
    mode = plan.load.kv_cache_dtype
    assert (mode is KVQuantMode.NONE) == (choice is KVCacheDType.AUTO)
    assert mode.name.lower().startswith(choice.value) or mode is KVQuantMode.NONE


def test_the_command_line_has_every_mode() -> None:
    plans = [make_plan(None, "cpu", "auto", EngineOptions(), None, kv_cache_dtype=each.value) for each in KVCacheDType]
    assert {plan.load.kv_cache_dtype for plan in plans} == {KVQuantMode.NONE, *MODES}


def test_the_command_line_generates() -> None:
    assert isinstance(app, typer.Typer)
    arguments = [
        "generate",
        "--json",
        "--prompt",
        "The capital of France is",
        "--max-tokens",
        "4",
        "--num-blocks",
        "20",
    ]
    result = CliRunner().invoke(app, [*arguments, "--kv-cache-dtype", "turboquant_4bit_nc"])
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["token_ids"]) == 4
    # 20 blocks of 16 tokens, 30 layers, 3 heads, 70 bytes each: 2.02 million, not 14.7.
    assert "20 blocks of 16 tokens, 1.9 MiB" in result.stderr
    wrong = CliRunner().invoke(app, [*arguments, "--kv-cache-dtype", "nvfp4"])
    assert wrong.exit_code == 2


class DeafLoader(ModelLoader):
    """Loads a tiny model and does not look at the options."""

    @property
    @override
    def name(self) -> str:
        return "deaf"

    @override
    def architectures(self) -> Sequence[str]:
        return ("DeafForCausalLM",)

    @override
    def load(self, path: Path, options: LoadOptions) -> LoadedModel:
        return LoadedModel(TransformersModel(tiny_llama(), block_size=16), IdTokenizer())


def test_a_loader_that_does_not_quantise_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["DeafForCausalLM"]}')
    options = LoadOptions(torch.device("cpu"))
    assert load_model(tmp_path, [DeafLoader()], options).model.layers
    with pytest.raises(
        LoadError, match=r"'model\.layers\.0.*' is in mode NONE, though kv_cache_dtype is FP8_PER_TENSOR: .* 'deaf'"
    ):
        load_model(tmp_path, [DeafLoader()], replace(options, kv_cache_dtype=KVQuantMode.FP8_PER_TENSOR))
