"""The same models with their attention on another back end that is asked for: transformers' own tokens."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_attention import ATTENTION_FAMILIES, WINDOW, tiny_attention
from tiny_encoder_decoders import ENCODER_DECODERS, cross_engine, encoder_input, greedy_alone, tiny_encoder_decoder
from tiny_hybrids import tiny_hybrid
from tiny_models import FAMILIES as FULL_FAMILIES
from tiny_models import greedy_tokens, save, tiny_engine, tiny_model
from torch import Tensor
from transformers import PreTrainedModel
from typer.testing import CliRunner, Result
from typing_extensions import override

from genericbuilders.adapter import AttentionAdapter, BackendAdapter, BindError
from genericbuilders.backends.chunked_local import CHUNKED_LOCAL
from genericbuilders.backends.cross import CROSS
from genericbuilders.backends.fast_prefill import FAST_PREFILL
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.flashinfer import FLASHINFER
from genericbuilders.backends.fp8_kv import FP8_KV
from genericbuilders.backends.hpc import HPC
from genericbuilders.backends.mamba1 import MAMBA1
from genericbuilders.backends.paged import PagedImpl, PagedMetadata, PagedMetadataBuilder
from genericbuilders.backends.triton import TRITON
from genericbuilders.cache import CachePlan
from genericbuilders.cli import serving
from genericbuilders.cli.app import app
from genericbuilders.cli.serving import Plan
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions
from genericbuilders.kernels.select import AttentionKernels
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.model import LoadedModel, LoadError, LoadOptions
from genericbuilders.specs import AttentionSpec, KVQuantMode
from genericbuilders_transformers.loader import TransformersLoader
from genericbuilders_transformers.model import TransformersModel

# Latent attention has back ends of its own, and caches of these are not shared.
FAMILIES = [family for family in ATTENTION_FAMILIES if not family.startswith(("deepseek", "gemma3n"))]
CPU = torch.device("cpu")
SMALL = EngineOptions(block_size=4, max_num_batched_tokens=8, max_num_seqs=3, max_model_len=48)


@dataclass
class OwnMetadata(PagedMetadata):
    """What an author's kernels want to know beside the batch."""

    longest_first: Tensor


class OwnBuilder(PagedMetadataBuilder[OwnMetadata, AttentionSpec]):
    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> OwnMetadata:
        common = common_attn_metadata
        return OwnMetadata(
            common.num_actual_tokens,
            common.max_query_len,
            common.query_start_loc,
            common.max_seq_len,
            common.seq_lens,
            common.block_table_tensor,
            common.slot_mapping,
            common.causal,
            common.seq_lens.argsort(descending=True),
        )


class OwnImpl(PagedImpl[OwnMetadata]):
    """Attends in an order of its own, row by row."""

    @override
    def attend(
        self,
        kernels: AttentionKernels,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        metadata: OwnMetadata,
    ) -> Tensor:
        out = torch.zeros_like(query)
        for place in metadata.longest_first:
            row = int(place)
            start, end = int(metadata.query_start_loc[row]), int(metadata.query_start_loc[row + 1])
            if start == end:
                continue
            out[start:end] = kernels.paged_attention(
                query[start:end],
                key_cache,
                value_cache,
                query_start_loc=torch.tensor([0, end - start], dtype=torch.int32),
                seq_lens=metadata.seq_lens[row : row + 1],
                block_table=metadata.block_table[row : row + 1],
                scale=self.layer.scale,
                causal=self.layer.causal and metadata.causal,
                max_query_len=end - start,
                max_seq_len=int(metadata.seq_lens[row]),
                scoring=self.scoring,
            )
        return out


OWN = BackendAdapter("own", OwnBuilder, OwnImpl)


def tokens_of(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    return [list(each.token_ids) for each in engine.generate(prompts, SamplingParams(max_tokens=6))]


def make_prompts(rng: random.Random) -> list[list[int]]:
    return [[rng.randrange(97) for _ in range(rng.choice([1, 5, WINDOW, 25]))] for _ in range(4)]


def back_ends(model: TransformersModel) -> list[str]:
    return [placed.layer.adapter.name for placed in model.layers]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("adapter", [FLASHINFER, TRITON, HPC, OWN], ids=lambda adapter: adapter.name)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 50), block_size=st.sampled_from([2, 4, 8]), budget=st.integers(3, 20), tight=st.booleans())
def test_tokens_are_transformers_own(
    family: str, adapter: AttentionAdapter, seed: int, block_size: int, budget: int, tight: bool
) -> None:
    prompts = make_prompts(random.Random(seed))
    options = EngineOptions(
        block_size=block_size,
        num_blocks=1 + 56 // block_size if tight else None,
        max_num_batched_tokens=budget,
        max_num_seqs=3,
        max_model_len=48,
        # hpc takes caches that keep all blocks, and windows as what they are promoted from.
        hybrid_kv_cache=adapter is not HPC,
    )
    engine = tiny_engine(tiny_attention(family), options, attention=adapter)
    bound = {group.adapter for group in engine.runner.groups}
    # Chunks stay where they are.
    assert bound == ({adapter, CHUNKED_LOCAL} if family == "llama4" else {adapter})
    reference = tiny_attention(family)
    assert tokens_of(engine, prompts) == [greedy_tokens(reference, tokens, 6) for tokens in prompts]


@pytest.mark.parametrize("family", FULL_FAMILIES)
@pytest.mark.parametrize("fuse", [False, True])
def test_a_back_end_of_ones_own_serves_fused_layers_too(family: str, fuse: bool) -> None:
    prompts = make_prompts(random.Random(1))
    engine = tiny_engine(tiny_model(family), SMALL, fuse=fuse, attention=OWN)
    model = engine.runner.model
    assert isinstance(model, TransformersModel)
    assert model.num_fused_layers == (2 if fuse else 0)
    assert [OWN.owns(group) for group in engine.runner.groups] == [True]
    assert tokens_of(engine, prompts) == [greedy_tokens(tiny_model(family), tokens, 6) for tokens in prompts]


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_a_decoders_own_tokens_beside_an_encoders(family: str) -> None:
    rng = random.Random(4)
    tokens, encoded = [2, 5, 9, 11], encoder_input(family, rng)
    engine = cross_engine(tiny_encoder_decoder(family), EngineOptions(block_size=4), TRITON)
    assert [group.adapter for group in engine.runner.groups] == [TRITON, CROSS]
    (found,) = engine.generate([tokens], SamplingParams(max_tokens=6, ignore_eos=True), [encoded])
    assert list(found.token_ids) == greedy_alone(tiny_encoder_decoder(family), tokens, encoded, 6)


def test_states_stay_on_their_back_end() -> None:
    prompts = make_prompts(random.Random(2))
    engine = tiny_engine(tiny_hybrid("jamba"), SMALL, attention=OWN)
    assert {group.adapter for group in engine.runner.groups} == {OWN, MAMBA1}
    assert tokens_of(engine, prompts) == [greedy_tokens(tiny_hybrid("jamba"), tokens, 6) for tokens in prompts]


def test_the_loader_takes_the_option(tmp_path: Path) -> None:
    folder = save(tiny_model(), tmp_path)
    for chosen, name in ((None, "flash_attn"), (OWN, "own")):
        model = TransformersLoader().load(folder, LoadOptions(CPU, attention=chosen)).model
        assert isinstance(model, TransformersModel)
        assert back_ends(model) == [name] * 2


def refused(
    hf: PreTrainedModel, attention: AttentionAdapter, message: str, mode: KVQuantMode = KVQuantMode.NONE
) -> None:
    with pytest.raises(LoadError, match=message):
        TransformersModel(hf, block_size=4, attention=attention, kv_cache_dtype=mode)


def test_what_cannot_run_on_it_is_refused_with_both_names() -> None:
    refused(tiny_attention("gemma3n"), TRITON, r"which is one of 'triton'; served are those of 'flash_attn'")
    refused(tiny_hybrid("mamba2"), TRITON, r"no layer of it attends over plain keys and values.*'triton'")
    refused(tiny_attention("deepseek_v3"), OWN, r"no layer of it attends over plain keys and values.*'own'")
    mode = KVQuantMode.FP8_PER_TENSOR
    for adapter in (TRITON, FLASH_ATTN):
        told = f"in mode FP8_PER_TENSOR are served by 'fp8_kv', not by '{adapter.name}'"
        refused(tiny_model(), adapter, told, mode)
    refused(tiny_model(), TRITON, "no back end has caches in mode NVFP4", KVQuantMode.NVFP4)
    quantised = TransformersModel(tiny_model(), block_size=4, attention=FP8_KV, kv_cache_dtype=mode)
    assert back_ends(quantised) == ["fp8_kv"] * 2


def test_bind_refuses_specs_that_it_does_not_take() -> None:
    with pytest.raises(BindError, match=r"adapter 'hpc' takes FullAttentionSpec, but layers .* a SlidingWindowSpec"):
        tiny_engine(tiny_attention("mistral"), SMALL, attention=HPC)
    with pytest.raises(BindError, match="'fast_prefill' reads caches that 'flash_attn' has stored"):
        tiny_engine(tiny_model(), SMALL, attention=FAST_PREFILL)


def test_layers_that_share_caches_run_where_flash_attn_is_asked_for() -> None:
    model = TransformersModel(tiny_attention("gemma3n"), block_size=4, attention=FLASH_ATTN)
    assert back_ends(model) == ["flash_attn"] * 3 + ["fast_prefill"] * 4


def generate(folder: Path, *arguments: str) -> Result:
    assert isinstance(app, typer.Typer)
    shared = ["--prompt", "t3 t14 t15 t92", "--max-tokens", "5", "--ignore-eos", "--json"]
    return CliRunner().invoke(app, ["generate", "--model", str(folder), *shared, *arguments])


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Those that the command line makes."""
    seen: list[Engine] = []
    make_engine = serving.make_engine

    def noted(loaded: LoadedModel, plan: Plan, planned: Callable[[CachePlan], None] | None = None) -> Engine:
        engine = make_engine(loaded, plan, planned)
        seen.append(engine)
        return engine

    monkeypatch.setattr(serving, "make_engine", noted)
    return seen


def test_the_command_line_runs_a_model_on_it(tmp_path: Path, engines: list[Engine]) -> None:
    result = generate(save(tiny_model(), tmp_path), "--backend", "triton")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["token_ids"] == greedy_tokens(tiny_model(), [3, 14, 15, 92], 5)
    assert [TRITON.owns(group) for group in engines[0].runner.groups] == [True]


def test_the_command_line_leaves_other_layers_alone(tmp_path: Path, engines: list[Engine]) -> None:
    folder = save(tiny_hybrid("jamba"), tmp_path)
    result = generate(folder, "--backend", "triton")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["token_ids"] == greedy_tokens(tiny_hybrid("jamba"), [3, 14, 15, 92], 5)
    assert {group.adapter for group in engines[0].runner.groups} == {TRITON, MAMBA1}
    # A back end of other layers is asked for as the only one.
    states = generate(folder, "--backend", "mamba1")
    assert states.exit_code == 2
    assert "--backend mamba1: 'model.layers." in states.stderr
    assert "runs on 'flash_attn', as its loader chose; leave --backend out" in states.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--backend", "mamba2"), "--backend mamba2: no layer runs on it: 'model.layers.0.self_attn' runs on 'flash_a"),
        (("--backend", "sink"), "adapter 'sink' takes SinkFullAttentionSpec, but layers ['model.layers.0"),
        (("--backend", "triton", "--kv-cache-dtype", "fp8"), "served by 'fp8_kv', not by 'triton'"),
    ],
)
def test_the_command_line_refuses(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = generate(save(tiny_model(), tmp_path), *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
