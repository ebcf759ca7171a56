"""SmolLM2 on quantised caches: logits move no more than storing explains, and tokens are those of the definition.

It runs in float64. Quantising a cache turns a key's last bit into a whole step once in a while, and one step of one key
moves logits by as much as 1: only where sums agree far better than that does the same text give the same tokens whatever
it is batched with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from attention_batches import ints, make_batch
from quantised_caches import MODES, element_bound, lengths, turned_deviation, turned_error
from quantised_models import RoundTripImpl, StoringImpl, attention_of, heads_of, put_layers, quantise, round_trip
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import AttentionLayer, BackendAdapter, Step
from genericbuilders.backends.flash_attn import FlashAttentionMetadata, FlashAttentionMetadataBuilder
from genericbuilders.cache import allocate_kv_caches
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, bind_groups, build_engine, load_model
from genericbuilders.kernels.quant.formats import FORMATS, Coding, VectorFormat
from genericbuilders.model import ForwardContext, LoadOptions, PlacedLayer
from genericbuilders.specs import KVQuantMode
from genericbuilders_transformers.default_model import ensure_default_model
from genericbuilders_transformers.loader import TransformersLoader
from genericbuilders_transformers.model import TransformersModel

by_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
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


class NoisyImpl(StoringImpl):
    """Stores keys and values with errors as large as those of a mode, in a plain cache, and else nothing like it."""

    def __init__(self, layer: AttentionLayerConfig) -> None:
        super().__init__(layer)
        self.mode: KVQuantMode = KVQuantMode.NONE
        self.generator: torch.Generator = torch.Generator().manual_seed(0)

    @override
    def stored(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        of_key, of_value = FORMATS[self.mode]
        return self._noisy(key, of_key), self._noisy(value, of_value)

    def _noisy(self, vectors: Tensor, vector_format: VectorFormat) -> Tensor:
        if vector_format.coding is Coding.LLOYD_MAX:
            size = vectors.shape[-1]
            deviation = lengths(vectors) * (turned_error(vector_format.bits, size) / size) ** 0.5
            return torch.addcmul(
                vectors, deviation[..., None], torch.randn(vectors.shape, generator=self.generator, dtype=vectors.dtype)
            )
        spread = 2 * torch.rand(vectors.shape, generator=self.generator, dtype=vectors.dtype) - 1
        return torch.addcmul(vectors, spread, element_bound(vectors, vector_format).to(vectors.dtype))


NOISY = BackendAdapter("noisy", FlashAttentionMetadataBuilder, NoisyImpl)


def add_noise(model: TransformersModel, mode: KVQuantMode) -> None:
    """Let every layer store noisy keys and values."""
    made: dict[int, tuple[AttentionLayer[FlashAttentionMetadata], PlacedLayer]] = {}
    for index, (layer, placed) in attention_of(model).items():
        noisy = NOISY.layer(layer.name, heads_of(layer))
        assert isinstance(noisy.impl, NoisyImpl)
        noisy.impl.mode = mode
        noisy.impl.generator.manual_seed(index)
        made[index] = noisy, PlacedLayer(noisy, placed.kv_cache_spec)
    put_layers(model, made)


class RealModel:
    """SmolLM2 with any of its caches, on one set of weights, and what it answers to a text."""

    def __init__(self) -> None:
        loaded = load_model(
            ensure_default_model(), [TransformersLoader()], LoadOptions(torch.device("cpu"), torch.float64)
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
        self, change: Callable[[TransformersModel], object], token_ids: Sequence[int] | None = None
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
    logits = real.logits_with(lambda model: quantise(model, mode))
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
def test_every_layer_stores_within_the_formats_error(mode: KVQuantMode, real: RealModel) -> None:
    """Elements within half a step; turned vectors within what the quantiser loses of vectors that point anywhere.

    Keys of one head are far from that: they lie close together, so that their errors are no independent draws, and
    each layer has a mean of its own. The float64 run also says by how much one vector's error differs from another's;
    a layer whose vectors were all alike would lie that far off, and none may lie further.
    """
    impls: list[RoundTripImpl] = []
    real.logits_with(lambda model: impls.extend(round_trip(model, mode)))
    assert len(impls) == 30
    for impl in impls:
        ((key, value, stored_key, stored_value),) = impl.seen
        for vectors, stored, vector_format in zip((key, value), (stored_key, stored_value), FORMATS[mode], strict=True):
            error = (stored.double() - vectors.double()).abs()
            if vector_format.coding is not Coding.LLOYD_MAX:
                assert bool((error <= element_bound(vectors, vector_format)).all())
                continue
            share = (lengths(error) / lengths(vectors.double())).square()
            mean, deviation = turned_error(vector_format.bits, 64), turned_deviation(vector_format.bits, 64)
            assert abs(float(share.mean()) - mean) <= deviation


@by_mode
def test_tokens_are_those_of_a_float_cache_with_the_same_numbers_in_it(mode: KVQuantMode, real: RealModel) -> None:
    """The engine, feeding prompts in pieces, chooses what the definition does: a float cache of what decoding gives."""
    prompts = [real.token_ids[:19], real.token_ids[53:60]]
    quantise(real.make_plain(), mode)
    options = EngineOptions(num_blocks=12, max_model_len=64, max_num_batched_tokens=13)
    completions = build_engine(real.loaded, options).generate(prompts, SamplingParams(max_tokens=5, ignore_eos=True))
    for prompt, completion in zip(prompts, completions, strict=True):
        fed = [*prompt, *completion.token_ids[:-1]]
        logits = real.logits_with(lambda model: round_trip(model, mode), fed)[len(prompt) - 1 :]
        assert ints(logits.argmax(-1)) == list(completion.token_ids)
