"""BART and Whisper on our back ends: logits and tokens as if each request ran alone in transformers."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
import typer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_encoder_decoders import (
    ENCODER_DECODERS,
    MAX_ENCODER_LEN,
    MODEL_LEN,
    START,
    VOCAB_SIZE,
    EncoderDecoder,
    cross_engine,
    encoder_input,
    greedy_alone,
    logits_alone,
    tiny_bart,
    tiny_encoder_decoder,
    tiny_whisper,
)
from tiny_models import IdTokenizer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from transformers import TokenizersBackend
from typer.testing import CliRunner

from genericbuilders.backends.cross import CROSS
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.triton import TRITON
from genericbuilders.cache import PoolStrategy
from genericbuilders.cli.app import app
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import FinishReason, Request, RequestError, SamplingParams
from genericbuilders.engine.scheduler import ScheduledRow
from genericbuilders.engine.setup import EngineOptions, load_model, prepare
from genericbuilders.model import LoadedModel, LoadError, LoadOptions
from genericbuilders.request_encoder import EncoderFeatures, EncoderInput, EncoderTokens
from genericbuilders.specs import CrossAttentionSpec, FullAttentionSpec
from genericbuilders_transformers.encoder_decoder import BartServed
from genericbuilders_transformers.loader import TransformersLoader

LOGITS = 1e-4
CPU = LoadOptions(torch.device("cpu"))
PARAMS = SamplingParams(max_tokens=6, ignore_eos=True)


@cache
def reference(family: str) -> EncoderDecoder:
    """transformers' own model with its eager attention."""
    hf = tiny_encoder_decoder(family)
    hf.set_attn_implementation("eager")
    return hf


def prompt(rng: random.Random, length: int) -> list[int]:
    return [START, *(rng.randrange(VOCAB_SIZE) for _ in range(length - 1))]


def expected(family: str, prompts: list[list[int]], inputs: list[EncoderInput], count: int = 6) -> list[list[int]]:
    return [greedy_alone(reference(family), *each, count) for each in zip(prompts, inputs, strict=True)]


class HandRun:
    """Steps made by hand on an engine's runner: the test says how many tokens of which requests run together."""

    def __init__(self, family: str, block_size: int, num_requests: int) -> None:
        options = EngineOptions(
            block_size=block_size, max_num_batched_tokens=num_requests * MODEL_LEN, max_num_seqs=num_requests
        )
        self.engine = cross_engine(tiny_encoder_decoder(family), options)
        self.requests: dict[str, Request] = {}

    def start(self, name: str, tokens: list[int], given: EncoderInput) -> None:
        encoder = self.engine.runner.model.encoder
        assert encoder is not None
        request = Request(name, tokens, PARAMS, encoder.num_tokens(given), given)
        coordinator = self.engine.runner.coordinator
        assert coordinator.start(name, tokens, len(tokens), size=request.size) == 0
        self.requests[name] = request

    def step(self, pieces: Mapping[str, int]) -> dict[str, Tensor]:
        """Each request's logits behind its last token of this step."""
        rows = [ScheduledRow(self.requests[name], count, True) for name, count in pieces.items()]
        logits = self.engine.runner.execute(rows)
        for row in rows:
            self.engine.scheduler.advance(row)
        return dict(zip(pieces, logits, strict=True))


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_each_decoder_layer_has_two_back_ends_and_two_caches(family: str) -> None:
    engine = cross_engine(tiny_encoder_decoder(family), EngineOptions(block_size=4))
    own, cross = engine.runner.groups
    assert FLASH_ATTN.owns(own)
    assert isinstance(own.spec, FullAttentionSpec)
    assert CROSS.owns(cross)
    assert cross.spec == CrossAttentionSpec(
        block_size=4, num_kv_heads=3, head_size=8, dtype=torch.float32, max_encoder_len=MAX_ENCODER_LEN[family]
    )
    assert own.layer_names == tuple(f"model.decoder.layers.{index}.self_attn" for index in range(2))
    assert cross.layer_names == tuple(f"model.decoder.layers.{index}.encoder_attn" for index in range(2))


@pytest.mark.parametrize("family", ENCODER_DECODERS)
@pytest.mark.parametrize("block_size", [1, 4, 5])
def test_prefill_and_decode_logits_are_those_of_eager_transformers(family: str, block_size: int) -> None:
    """One request a split of the prompt, each with an encoder input of its own; then three decodes of all together."""
    rng = random.Random(3)
    tokens = prompt(rng, 12)
    # One token, up to, at and behind a block's end, and as many as the encoder's positions reach.
    lengths = [1, 2, 3, 4, 5, 6, 8, 9, 16, 17, MODEL_LEN - 1, MODEL_LEN]
    inputs = {f"at {split}": encoder_input(family, rng, length) for split, length in enumerate(lengths)}
    right = {name: logits_alone(reference(family), tokens, given) for name, given in inputs.items()}
    run = HandRun(family, block_size, len(inputs))
    for name, each in inputs.items():
        run.start(name, tokens, each)
    prompt_len, worst = 9, 0.0
    places = dict.fromkeys(inputs, 0)

    def step(pieces: Mapping[str, int]) -> None:
        nonlocal worst
        for name, logits in run.step(pieces).items():
            places[name] += pieces[name]
            worst = max(worst, float((logits - right[name][places[name] - 1]).abs().max()))

    step({name: split for split, name in enumerate(inputs) if 0 < split < prompt_len})
    step({name: prompt_len - places[name] for name in inputs})
    for _ in range(3):
        step(dict.fromkeys(inputs, 1))
    assert set(places.values()) == {12}
    assert worst < LOGITS
    assert run.engine.stats.num_encoder_tokens == sum(request.num_encoder_tokens for request in run.requests.values())


@pytest.mark.parametrize("family", ENCODER_DECODERS)
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 50),
    block_size=st.sampled_from([1, 2, 4, 8]),
    budget=st.integers(3, 60),
    tight=st.booleans(),
    caching=st.booleans(),
)
@example(seed=0, block_size=4, budget=7, tight=True, caching=True)
def test_tokens_of_continuous_batching_are_transformers_own(
    family: str, seed: int, block_size: int, budget: int, tight: bool, caching: bool
) -> None:
    """Requests come while others run, share prompts or encoder inputs or both, and lose their blocks."""
    rng = random.Random(seed)
    common, shared = prompt(rng, 20), encoder_input(family, rng)
    prompts = [common[: rng.randint(1, 20)] + prompt(rng, rng.choice([1, 3, 9])) for _ in range(5)]
    inputs = [rng.choice([shared, encoder_input(family, rng), encoder_input(family, rng, 1)]) for _ in prompts]
    options = EngineOptions(
        block_size=block_size,
        num_blocks=1 + 56 // block_size if tight else None,
        max_num_batched_tokens=budget,
        max_num_seqs=3,
        enable_prefix_caching=caching,
    )
    engine = cross_engine(tiny_encoder_decoder(family), options)
    found: dict[str, list[int]] = {}
    waiting = list(enumerate(zip(prompts, inputs, strict=True)))
    while waiting or engine.has_unfinished():
        if waiting and (rng.random() < 0.5 or not engine.has_unfinished()):
            index, (tokens, given) = waiting.pop(0)
            engine.add_request(str(index), tokens, PARAMS, given)
        for event in engine.step():
            if event.completion is not None:
                assert event.completion.error is None
                found[event.request_id] = list(event.completion.token_ids)
    assert [found[str(index)] for index in range(len(prompts))] == expected(family, prompts, inputs)
    assert all(pool.num_free_blocks == pool.num_usable_blocks for pool in engine.runner.coordinator.pools)


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_an_encoder_runs_once_a_request_and_again_after_a_preemption(family: str) -> None:
    rng = random.Random(5)
    prompts = [prompt(rng, 9) for _ in range(4)]
    inputs = [encoder_input(family, rng, 11) for _ in prompts]
    params = SamplingParams(max_tokens=14, ignore_eos=True)
    for num_blocks in (None, 14):
        options = EngineOptions(block_size=4, num_blocks=num_blocks, max_num_batched_tokens=24)
        engine = cross_engine(tiny_encoder_decoder(family), options)
        found = engine.generate(prompts, params, inputs)
        assert [list(each.token_ids) for each in found] == expected(family, prompts, inputs, 14)
        preempted = engine.stats.num_preemptions
        assert (preempted > 0) is (num_blocks is not None)
        assert engine.stats.num_encoder_tokens == 11 * (len(prompts) + preempted)


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_equal_prompts_share_nothing_where_encoder_inputs_differ(family: str) -> None:
    """The prompt fills four blocks; what stands in them depends on the encoder's output from the second layer on."""
    rng = random.Random(7)
    tokens = prompt(rng, 17)
    inputs = [encoder_input(family, rng, 9) for _ in range(3)]
    engine = cross_engine(tiny_encoder_decoder(family), EngineOptions(block_size=4, enable_prefix_caching=True))
    right = expected(family, [tokens] * 3, inputs)
    assert len({tuple(each) for each in right}) == 3
    for each, answer in zip([*inputs, inputs[0]], [*right, right[0]], strict=True):
        (found,) = engine.generate([tokens], PARAMS, [each])
        assert list(found.token_ids) == answer
    assert engine.stats.num_cached_tokens == 0


def test_groups_that_share_one_pool_stay_apart() -> None:
    """Blocks go from one group to the other and back, and requests wait for each other's."""
    rng = random.Random(9)
    prompts = [prompt(rng, rng.randint(1, 20)) for _ in range(6)]
    inputs = [encoder_input("bart", rng) for _ in prompts]
    setup = prepare(
        LoadedModel(BartServed(tiny_bart(), block_size=4), IdTokenizer()), EngineOptions(block_size=4, max_num_seqs=4)
    )
    groups = tuple(replace(group, num_blocks=24) for group in setup.plan.groups)
    engine = replace(setup, plan=replace(setup.plan, groups=groups, strategy=PoolStrategy.ONE_POOL)).start()
    found = engine.generate(prompts, PARAMS, inputs)
    assert [list(each.token_ids) for each in found] == expected("bart", prompts, inputs)
    (pool,) = engine.runner.coordinator.pools
    assert pool.num_free_blocks == pool.num_usable_blocks == 23


def test_features_are_the_request_s_own_once_it_is_queued() -> None:
    rng = random.Random(2)
    given = encoder_input("whisper", rng)
    assert isinstance(given, EncoderFeatures)
    features = given.features.clone()
    engine = cross_engine(tiny_whisper(), EngineOptions())
    engine.add_request("a", [START], PARAMS, EncoderFeatures(features))
    features.zero_()
    (found,) = [event.completion for event in engine.stream() if event.completion is not None]
    assert [list(found.token_ids)] == expected("whisper", [[START]], [given])


def bart_engine() -> Engine:
    return cross_engine(tiny_bart(), EngineOptions(block_size=4))


def whisper_engine() -> Engine:
    return cross_engine(tiny_whisper(), EngineOptions(block_size=4))


@pytest.mark.parametrize(
    ("family", "given", "told"),
    [
        ("bart", EncoderTokens(()), "request 'bad': its encoder input has 0 tokens; it must have 1 to 48"),
        ("bart", EncoderTokens((1,) * 49), "request 'bad': its encoder input has 49 tokens; it must have 1 to 48"),
        ("bart", EncoderTokens((1, 97)), r"request 'bad': its encoder input has token ids \[97\]; the model knows 0"),
        ("bart", EncoderFeatures(torch.zeros(6, 22)), "request 'bad': its encoder input is EncoderFeatures"),
        ("bart", None, "request 'bad' has no encoder input, and the model attends .* EncoderTokens, or a text"),
        ("whisper", EncoderFeatures(torch.zeros(6, 0)), r"request 'bad': .* the shape \(6, 0\); the encoder takes \(6"),
        ("whisper", EncoderFeatures(torch.zeros(6, 24)), r"request 'bad': .* the shape \(6, 24\)"),
        ("whisper", EncoderFeatures(torch.zeros(22)), r"request 'bad': .* the shape \(22,\)"),
        ("whisper", EncoderFeatures(torch.ones(6, 22, dtype=torch.int32)), "request 'bad': its .* is torch.int32"),
        ("whisper", EncoderTokens((1, 2)), "request 'bad': its encoder input is EncoderTokens"),
        ("whisper", None, "request 'bad' has no encoder input, and the model attends .* EncoderFeatures"),
    ],
)
def test_encoder_inputs_that_cannot_be_read_are_refused_by_request(
    family: str, given: EncoderInput | None, told: str
) -> None:
    """Its neighbour, queued before, is served as if nothing had been."""
    engine = cross_engine(tiny_encoder_decoder(family), EngineOptions(block_size=4))
    right = encoder_input(family, random.Random(1))
    engine.add_request("good", [START, 5], PARAMS, right)
    with pytest.raises(RequestError, match=told):
        engine.add_request("bad", [START], PARAMS, given)
    (found,) = [event.completion for event in engine.stream() if event.completion is not None]
    assert [list(found.token_ids)] == expected(family, [[START, 5]], [right])


def test_features_that_are_no_numbers_end_their_request_only() -> None:
    """Their keys and values are NaN and stay in blocks that the next request gets."""
    rng = random.Random(4)
    broken = EncoderFeatures(torch.full((6, 22), torch.nan))
    inputs = [encoder_input("whisper", rng), broken, encoder_input("whisper", rng), encoder_input("whisper", rng)]
    prompts = [prompt(rng, 3) for _ in inputs]
    engine = cross_engine(tiny_whisper(), EngineOptions(block_size=4, max_num_seqs=2, num_blocks=20))
    found = engine.generate(prompts, PARAMS, inputs)
    assert [each.finish_reason for each in found] == [
        FinishReason.LENGTH, FinishReason.ERROR, FinishReason.LENGTH, FinishReason.LENGTH
    ]  # fmt: skip
    assert "no finite maximum" in str(found[1].error)
    right = expected("whisper", prompts, inputs)
    assert [list(found[index].token_ids) for index in (0, 2, 3)] == [right[index] for index in (0, 2, 3)]


def test_as_many_encoder_inputs_as_prompts_are_asked_for() -> None:
    with pytest.raises(ValueError, match="there are 1 encoder inputs for 2 prompts"):
        bart_engine().generate([[1], [2]], PARAMS, [EncoderTokens((1,))])


# From here on: models in folders.


def save(hf: EncoderDecoder, folder: Path) -> Path:
    """A folder with the model and a tokenizer that writes token 5 as t5."""
    hf.save_pretrained(folder)
    words = {f"t{token}": token for token in range(VOCAB_SIZE)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    TokenizersBackend(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


def run_cli(folder: Path, *texts: str) -> tuple[int, list[list[int]], str]:
    assert isinstance(app, typer.Typer)
    arguments = [argument for text in texts for argument in ("--prompt", text)]
    limits = ("--max-tokens", "6", "--block-size", "4", "--max-num-batched-tokens", "8", "--ignore-eos", "--json")
    result = CliRunner().invoke(app, ["generate", "--model", str(folder), *arguments, *limits])
    return result.exit_code, [json.loads(line)["token_ids"] for line in result.stdout.splitlines()], result.stderr


def test_generate_reads_a_text_with_the_encoder(tmp_path: Path) -> None:
    """The command's prompts are the encoder's; the decoder starts with the model's start token."""
    texts = ["t5 t6 t7 t8 t9 t10 t11 t12 t13 t14 t15", "t90", "t3 t1 t4 t1 t5"]
    code, found, errors = run_cli(save(tiny_bart(), tmp_path), *texts)
    assert code == 0, errors
    inputs: list[EncoderInput] = [EncoderTokens(tuple(int(word[1:]) for word in text.split())) for text in texts]
    assert found == expected("bart", [[START]] * 3, inputs)


def test_generate_says_what_an_encoder_of_sounds_needs(tmp_path: Path) -> None:
    code, _, errors = run_cli(save(tiny_whisper(), tmp_path), "t5")
    assert code != 0
    assert "has no encoder input, and the model attends over an encoder's output" in " ".join(errors.split())


def test_a_text_beyond_the_encoder_s_positions_is_refused_by_its_name(tmp_path: Path) -> None:
    code, _, errors = run_cli(save(tiny_bart(), tmp_path), "t1 " * 49)
    assert code != 0
    assert "request '--prompt #1': its encoder input has 49 tokens; it must have 1 to 48" in " ".join(errors.split())


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_a_loaded_model_gives_what_transformers_generates(family: str, tmp_path: Path) -> None:
    """transformers' own ``generate`` knows how a decoder starts, and where a text ends."""
    hf = tiny_encoder_decoder(family)
    loaded = load_model(save(hf, tmp_path), [TransformersLoader()], CPU)
    encoder = loaded.model.encoder
    assert encoder is not None
    assert encoder.start_token_ids == (START,)
    engine = prepare(loaded, EngineOptions()).start()
    rng = random.Random(8)
    for _ in range(3):
        given = encoder_input(family, rng)
        (found,) = engine.generate([list(encoder.start_token_ids)], SamplingParams(max_tokens=8), [given])
        right = greedy_alone(hf, [START], given, 8)
        ends = [place for place, token in enumerate(right) if token in loaded.model.eos_token_ids]
        assert list(found.token_ids) == right[: ends[0] + 1 if ends else None]


def test_a_first_token_that_is_forced_follows_the_start_token(tmp_path: Path) -> None:
    hf = tiny_bart()
    assert hf.generation_config is not None
    hf.generation_config.forced_bos_token_id = 11
    loaded = load_model(save(hf, tmp_path), [TransformersLoader()], CPU)
    assert loaded.model.encoder is not None
    assert loaded.model.encoder.start_token_ids == (START, 11)
    (found,) = prepare(loaded, EngineOptions()).start().generate(["t7 t8 t9"], PARAMS)
    assert found.prompt_token_ids == (START, 11)
    assert [list(found.token_ids)] == expected("bart", [[START, 11]], [EncoderTokens((7, 8, 9))])


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_the_loader_takes_another_back_end_for_the_decoders_own_tokens(family: str, tmp_path: Path) -> None:
    folder = save(tiny_encoder_decoder(family), tmp_path)
    model = load_model(folder, [TransformersLoader()], replace(CPU, attention=TRITON)).model
    assert [placed.layer.adapter for placed in model.layers] == [TRITON, CROSS] * 2


def test_folders_that_cannot_be_served_are_named(tmp_path: Path) -> None:
    folder = save(tiny_bart(), tmp_path)
    settings = json.loads((folder / "config.json").read_text())
    generation = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**generation, "decoder_start_token_id": None}))
    for changes, told in (
        ({"decoder_layers": 3}, "26 tensors are missing"),
        ({"decoder_start_token_id": None}, "its settings name no decoder_start_token_id"),
        ({"model_type": "llama"}, "its settings are a LlamaConfig; BART and Whisper are served"),
    ):
        (folder / "config.json").write_text(json.dumps({**settings, **changes}))
        with pytest.raises(LoadError, match=told):
            load_model(folder, [TransformersLoader()], CPU)
