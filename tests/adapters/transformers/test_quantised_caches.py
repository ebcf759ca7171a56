"""Models on quantised caches: tokens do not depend on the batch, and logits move no more than storing explains."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
import typer
from attention_batches import ints, make_batch
from quantised_caches import MODES, element_bound, lengths, turned_error
from tiny_attention import tiny_attention
from tiny_hybrids import tiny_hybrid
from tiny_models import IdTokenizer
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel
from typer.testing import CliRunner
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter, Step
from genericbuilders.backends.flash_attn import (
    FlashAttentionImpl,
    FlashAttentionMetadata,
    FlashAttentionMetadataBuilder,
)
from genericbuilders.cache import allocate_kv_caches
from genericbuilders.cli.app import app
from genericbuilders.cli.errors import UserError
from genericbuilders.cli.generate import KVCacheDType
from genericbuilders.cli.serving import make_engine, make_plan
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, bind_groups, build_engine, load_model
from genericbuilders.kernels.quant.formats import FORMATS, Coding, VectorFormat
from genericbuilders.model import ForwardContext, LoadedModel, LoadError, LoadOptions, PlacedLayer
from genericbuilders.rotary import Rotary, apply_rotary
from genericbuilders.specs import FullAttentionSpec, KVQuantMode
from genericbuilders_transformers.default_model import ensure_default_model
from genericbuilders_transformers.loader import TransformersLoader
from genericbuilders_transformers.model import TransformersModel
from genericbuilders_transformers.quantised import quantise_caches

by_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
MAX_TOKENS = 8
TEXT = """The old town lies on both banks of a slow river, and its bridges were built at very different times. The
oldest one carries only people on foot, since its arches are too weak for anything heavier. In the morning the market
opens on the northern side, where farmers from the valley sell bread, apples, honey and cheese. By noon most of the
stalls are empty, and the square belongs to children and pigeons until the evening."""


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
    model = TransformersModel(tiny_llama(), block_size=options.block_size, fuse=fuse)
    quantise_caches(model, mode)
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
    model = TransformersModel(tiny_hybrid("jamba"), block_size=4)
    before = {placed.layer.name: placed for placed in model.layers}
    quantise_caches(model, KVQuantMode.INT8_PER_TOKEN_HEAD)
    for placed in model.layers:
        old = before[placed.layer.name]
        if isinstance(old.kv_cache_spec, FullAttentionSpec):
            assert placed.layer.adapter.name == "int8_kv"
        else:
            assert placed is old
    assert {placed.layer.adapter.name for placed in model.layers} > {"int8_kv"}
    engine = build_engine(LoadedModel(model, IdTokenizer()), EngineOptions(block_size=4))
    assert len(tokens_of(engine, [[1, 2, 3, 4, 5]])[0]) == MAX_TOKENS


def test_none_changes_nothing() -> None:
    model = TransformersModel(tiny_llama(), block_size=4)
    layers = model.layers
    quantise_caches(model, KVQuantMode.NONE)
    assert model.layers is layers


def test_what_cannot_be_quantised_is_refused_by_name() -> None:
    with pytest.raises(
        LoadError, match=r"layer 'model\.layers\.0\..*' .* with a SlidingWindowSpec; only caches of full"
    ):
        quantise_caches(TransformersModel(tiny_attention("mistral"), block_size=4), KVQuantMode.INT8_PER_TOKEN_HEAD)
    with pytest.raises(LoadError, match=r"no layer of it caches keys and values.*INT8_PER_TOKEN_HEAD"):
        quantise_caches(TransformersModel(tiny_hybrid("mamba2"), block_size=4), KVQuantMode.INT8_PER_TOKEN_HEAD)
    with pytest.raises(LoadError, match="no back end has caches in mode NVFP4"):
        quantise_caches(TransformersModel(tiny_llama(), block_size=4), KVQuantMode.NVFP4)
    config = LlamaConfig(
        vocab_size=97, hidden_size=24, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2
    )
    small = TransformersModel(LlamaForCausalLM(config), block_size=4)
    with pytest.raises(LoadError, match=r"layer 'model.*': mode TURBOQUANT_3BIT_NC has no head size 12"):
        quantise_caches(small, KVQuantMode.TURBOQUANT_3BIT_NC)


class NoisyImpl(FlashAttentionImpl):
    """Stores keys and values with errors as large as those of a mode, in a plain cache, and else nothing like it."""

    def __init__(self, layer: AttentionLayerConfig) -> None:
        super().__init__(layer)
        self.mode: KVQuantMode = KVQuantMode.NONE
        self.generator: torch.Generator = torch.Generator().manual_seed(0)

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FlashAttentionMetadata
    ) -> Tensor:
        of_key, of_value = FORMATS[self.mode]
        key, value = self._noisy(key, of_key), self._noisy(value, of_value)
        return super().forward(query, key, value, kv_cache=kv_cache, attn_metadata=attn_metadata)

    @override
    def forward_rotary(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rotary: Rotary,
        kv_cache: Tensor,
        attn_metadata: FlashAttentionMetadata,
    ) -> Tensor:
        query, key = apply_rotary(query, rotary), apply_rotary(key, rotary)
        return self.forward(query, key, value, kv_cache=kv_cache, attn_metadata=attn_metadata)

    def _noisy(self, vectors: Tensor, vector_format: VectorFormat) -> Tensor:
        if vector_format.coding is Coding.LLOYD_MAX:
            size = vectors.shape[-1]
            deviation = lengths(vectors) * (turned_error(vector_format.bits, size) / size) ** 0.5
            return torch.addcmul(vectors, deviation[..., None], torch.randn(vectors.shape, generator=self.generator))
        spread = 2 * torch.rand(vectors.shape, generator=self.generator) - 1
        return torch.addcmul(vectors, spread, element_bound(vectors, vector_format).float())


NOISY = BackendAdapter("noisy", FlashAttentionMetadataBuilder, NoisyImpl)


def add_noise(model: TransformersModel, mode: KVQuantMode) -> None:
    """Let every layer store noisy keys and values."""
    layers = list(model.layers)
    attention = dict(model.attention_layers)
    for index, layer in model.attention_layers.items():
        noisy = attention[index] = NOISY.layer(layer.name, layer.impl.layer)
        assert isinstance(noisy.impl, NoisyImpl)
        noisy.impl.mode = mode
        noisy.impl.generator.manual_seed(index)
        layers[index] = PlacedLayer(noisy, layers[index].kv_cache_spec)
    model.attention_layers = attention
    model.layers = layers


class RealModel:
    """SmolLM2 with any of its caches, on one set of weights, and what it answers to a text."""

    def __init__(self) -> None:
        loaded = load_model(
            ensure_default_model(), [TransformersLoader()], LoadOptions(torch.device("cpu"), torch.float32)
        )
        assert isinstance(loaded.model, TransformersModel)
        self.loaded = loaded
        self.model: TransformersModel = loaded.model
        self.plain = (self.model.attention_layers, self.model.layers)
        self.token_ids: list[int] = loaded.tokenizer.encode(TEXT)
        self.logits: Tensor = self.logits_with(lambda _: None)

    def make_plain(self) -> TransformersModel:
        """The model with its caches as they were loaded."""
        self.model.attention_layers, self.model.layers = self.plain
        return self.model

    @torch.inference_mode()
    def logits_with(
        self, change: Callable[[TransformersModel], None], token_ids: Sequence[int] | None = None
    ) -> Tensor:
        """The logits of every token, by default of the text's, in float64, from one pass over caches that ``change`` sets."""
        token_ids = self.token_ids if token_ids is None else token_ids
        model = self.make_plain()
        change(model)
        config = EngineConfig(
            max_model_len=256, layers={placed.layer.name: placed.layer.config for placed in model.layers}
        )
        groups = bind_groups(model, config)
        common = make_batch([len(token_ids)], [0], 16)
        caches = allocate_kv_caches(groups, 1 + int(common.block_table_tensor.max()), model.device)
        step = Step()
        for group in groups:
            group.build(common, step)
        count = torch.arange(len(token_ids))
        return model.forward(torch.tensor(token_ids), count, ForwardContext(step, caches), count).double()


@pytest.fixture(scope="module")
def real() -> RealModel:
    return RealModel()


@by_mode
def test_logits_of_a_real_model_move_as_much_as_by_noise_of_that_size(mode: KVQuantMode, real: RealModel) -> None:
    """The size is derived: half steps of the formats that have steps, a float64 run of the definition of the others.

    To first order logits follow errors of keys and values linearly, so that errors of one size move them alike, unless
    the mode's errors conspire. Rounding within half a step has at most the root mean square of even noise over it,
    times the root of 3, if every error were as large as may be; twice leaves that, and as much again for chance where
    sizes are equal.
    """
    logits = real.logits_with(lambda model: quantise_caches(model, mode))
    noisy = real.logits_with(lambda model: add_noise(model, mode))
    error = float((logits - real.logits).abs().mean())
    by_noise = float((noisy - real.logits).abs().mean())
    agreement = float((logits.argmax(-1) == real.logits.argmax(-1)).double().mean())
    print(
        f"{mode.name}: logits' mean error {error:.3f}, by noise {by_noise:.3f}, standard deviation "
        f"{float(real.logits.std()):.2f}; greedy tokens agree in {agreement:.1%} of {len(logits)}"
    )
    assert 0 < error <= 2 * by_noise


@by_mode
def test_a_real_model_generates_what_one_pass_says(mode: KVQuantMode, real: RealModel) -> None:
    prompt = real.token_ids[:20]
    quantise_caches(real.make_plain(), mode)
    engine = build_engine(real.loaded, EngineOptions(num_blocks=20, max_model_len=64, max_num_batched_tokens=16))
    (completion,) = engine.generate([prompt], SamplingParams(max_tokens=6, ignore_eos=True))
    tokens = list(completion.token_ids)
    logits = real.logits_with(lambda model: quantise_caches(model, mode), [*prompt, *tokens[:-1]])
    assert ints(logits[len(prompt) - 1 :].argmax(-1)) == tokens


def test_the_loader_takes_the_mode() -> None:
    mode = KVQuantMode.TURBOQUANT_3BIT_NC
    options = LoadOptions(torch.device("cpu"), torch.float32, kv_cache_dtype=mode)
    model = load_model(ensure_default_model(), [TransformersLoader()], options).model
    for placed in model.layers:
        assert placed.layer.adapter.name == "turboquant"
        assert isinstance(placed.kv_cache_spec, FullAttentionSpec)
        assert placed.kv_cache_spec.kv_quant_mode is mode


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


def test_a_loader_that_does_not_quantise_is_not_believed() -> None:
    plan = make_plan(None, "cpu", "auto", EngineOptions(), None, kv_cache_dtype="fp8")
    with pytest.raises(UserError, match=r"--kv-cache-dtype: the caches are not all in mode FP8_PER_TENSOR"):
        make_engine(LoadedModel(TransformersModel(tiny_llama(), block_size=16), IdTokenizer()), plan)
