"""Models with state-space layers from their folders, and what of them is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import typer
from tiny_attention import ATTENTION_FAMILIES, tiny_attention
from tiny_encoder_decoders import ENCODER_DECODERS, tiny_encoder_decoder
from tiny_hybrids import HYBRIDS, VOCAB_SIZE, hybrid_of, tiny_hybrid
from tiny_models import greedy_tokens, save, tiny_engine
from torch import nn
from transformers import (
    BambaConfig,
    BambaForCausalLM,
    FalconMambaConfig,
    Lfm2Config,
    Lfm2ForCausalLM,
    MiniMaxConfig,
    MiniMaxForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)
from typer.testing import CliRunner

from genericbuilders.cli.app import app
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, load_model
from genericbuilders.model import LoadError, LoadOptions
from genericbuilders.specs import MambaSpec
from genericbuilders_transformers.families import FAMILIES
from genericbuilders_transformers.layers import attention_heads
from genericbuilders_transformers.loader import TransformersLoader
from genericbuilders_transformers.model import UNBOUNDED_MODEL_LEN, TransformersModel, check_supported

CPU = torch.device("cpu")
PROMPTS = ([3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46], [26], [43, 38, 32])


def load(folder: Path, dtype: torch.dtype | None = None) -> TransformersModel:
    model = load_model(folder, [TransformersLoader()], LoadOptions(CPU, dtype)).model
    assert isinstance(model, TransformersModel)
    return model


@pytest.mark.parametrize("family", HYBRIDS)
def test_generate_serves_a_saved_model(family: str, tmp_path: Path) -> None:
    assert isinstance(app, typer.Typer)
    folder = save(tiny_hybrid(family), tmp_path / family)
    texts = [" ".join(f"t{token}" for token in prompt) for prompt in PROMPTS]
    arguments = [argument for text in texts for argument in ("--prompt", text)]
    limits = ("--max-tokens", "6", "--max-num-batched-tokens", "8", "--ignore-eos", "--json")
    result = CliRunner().invoke(app, ["generate", "--model", str(folder), *arguments, *limits])
    assert result.exit_code == 0, result.stderr
    found = [json.loads(line)["token_ids"] for line in result.stdout.splitlines()]
    hf = tiny_hybrid(family)
    assert found == [greedy_tokens(hf, prompt, 6) for prompt in PROMPTS]


@pytest.mark.parametrize("family", HYBRIDS)
def test_generate_without_the_hybrid_manager_in_little_memory(family: str, tmp_path: Path) -> None:
    """Three requests through two states; the plan names what each group holds."""
    folder = save(tiny_hybrid(family), tmp_path / family)
    texts = [" ".join(f"t{token}" for token in prompt) for prompt in PROMPTS]
    arguments = [argument for text in texts for argument in ("--prompt", text)]
    limits = ("--max-num-seqs", "2", "--num-blocks", "40", "--max-tokens", "3", "--ignore-eos", "--json")
    plan = ("--no-hybrid-kv-cache", "--show-cache-plan")
    assert isinstance(app, typer.Typer)
    result = CliRunner().invoke(app, ["generate", "--model", str(folder), *arguments, *limits, *plan])
    assert result.exit_code == 0, result.stderr
    hf = tiny_hybrid(family)
    found = [json.loads(line)["token_ids"] for line in result.stdout.splitlines()]
    assert found == [greedy_tokens(hf, prompt, 3) for prompt in PROMPTS]
    states_alone = family in ("falcon_mamba", "mamba2")
    # The null state and two more.
    assert re.search(r"MambaSpec +\W+ +\d+ \W+ +\d+ \W+ +3 ", result.stderr)
    assert ("FullAttentionSpec" in result.stderr) is not states_alone
    assert ("--num-blocks changes nothing" in result.stderr) is states_alone


def test_every_family_has_its_architecture() -> None:
    served = set(TransformersLoader().architectures())
    assert {type(tiny_hybrid(family)).__name__ for family in HYBRIDS} <= served
    assert {type(tiny_attention(family)).__name__ for family in ATTENTION_FAMILIES} <= served
    assert {type(tiny_encoder_decoder(family)).__name__ for family in ENCODER_DECODERS} <= served
    # Mistral is in the one list and among the four of full attention.
    assert len(served) == 4 + len(HYBRIDS) + len(ATTENTION_FAMILIES) - 1 + len(ENCODER_DECODERS)
    assert set(FAMILIES) - set(HYBRIDS) == {"deepseek_v2", "deepseek_v3", "deepseek_v32"}


@pytest.mark.parametrize("family", HYBRIDS)
def test_states_of_narrow_models_keep_what_sums_up_in_float32(family: str, tmp_path: Path) -> None:
    model = load(save(tiny_hybrid(family), tmp_path), torch.bfloat16)
    for placed in model.layers:
        spec = placed.kv_cache_spec
        if isinstance(spec, MambaSpec):
            rolling = () if family == "minimax" else (torch.bfloat16,)
            assert spec.dtypes == (*rolling, *([] if family == "lfm2" else [torch.float32]))
    engine = tiny_engine(tiny_hybrid(family).bfloat16(), EngineOptions(max_num_batched_tokens=8))
    for completion in engine.generate(PROMPTS, SamplingParams(max_tokens=3)):
        assert len(completion.token_ids) == 3, completion.error


def test_models_that_name_no_length_have_one() -> None:
    assert TransformersModel(tiny_hybrid("mamba2"), block_size=4).max_model_len == UNBOUNDED_MODEL_LEN
    assert TransformersModel(tiny_hybrid("jamba"), block_size=4).max_model_len == 256


def test_a_model_outside_a_step_is_refused() -> None:
    hf = tiny_hybrid("falcon_mamba")
    engine = tiny_engine(hf, EngineOptions())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="outside a step"):
            hf(input_ids=torch.tensor([[1, 2]]), use_cache=False)
        engine.generate([[1, 2]], SamplingParams(max_tokens=2))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (FalconMambaConfig(hidden_act="gelu"), "'gelu'.*'silu' only"),
        (BambaConfig(hidden_act="relu"), "'relu'"),
        (MiniMaxConfig(sliding_window=128), "window of 128 tokens"),
        (Lfm2Config(num_hidden_layers=2, layer_types=["conv", "sliding_attention"]), "type sliding_attention"),
        (Qwen3NextConfig(num_hidden_layers=1, layer_types=["conv"]), "layers of type conv"),
        (
            Lfm2Config(rope_parameters={"rope_theta": 1e4, "rope_type": "dynamic", "factor": 2.0}),
            "'dynamic'",
        ),
    ],
)
def test_settings_that_are_not_served_are_refused(config: PretrainedConfig, told: str) -> None:
    with pytest.raises(LoadError, match=told):
        check_supported(config)


def test_an_activation_outside_the_kernels_is_served() -> None:
    def model() -> PreTrainedModel:
        torch.random.set_rng_state(torch.Generator().manual_seed(4).get_state())
        sizes = MiniMaxConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=4,
            hidden_act="gelu",
        )
        return hybrid_of(MiniMaxForCausalLM(sizes))

    found = tiny_engine(model(), EngineOptions()).generate(PROMPTS, SamplingParams(max_tokens=5))
    assert [list(each.token_ids) for each in found] == [greedy_tokens(model(), prompt, 5) for prompt in PROMPTS]


def scrambled(family: str, change: Callable[[nn.Module], None]) -> PreTrainedModel:
    hf = tiny_hybrid(family)
    where = FAMILIES[family]
    change(hf.get_submodule(f"{where.layers}.0.{where.mixer}"))
    return hf


def wider(name: str) -> Callable[[nn.Module], None]:
    """Give a weight one more row."""

    def change(mixer: nn.Module) -> None:
        owner, _, last = name.rpartition(".")
        weight = mixer.get_parameter(name)
        setattr(mixer.get_submodule(owner), last, nn.Parameter(torch.zeros(len(weight) + 1, *weight.shape[1:])))

    return change


@pytest.mark.parametrize(
    ("family", "weight"),
    [
        ("falcon_mamba", "A_log"),
        ("falcon_mamba", "dt_proj.weight"),
        ("falcon_mamba", "in_proj.weight"),
        ("jamba", "x_proj.weight"),
        ("jamba", "conv1d.weight"),
        ("mamba2", "in_proj.weight"),
        ("mamba2", "dt_bias"),
        ("bamba", "norm.weight"),
        ("bamba", "conv1d.weight"),
        ("qwen3_next", "in_proj_qkvz.weight"),
        ("qwen3_next", "in_proj_ba.weight"),
        ("qwen3_next", "A_log"),
        ("minimax", "qkv_proj.weight"),
        ("minimax", "output_gate.weight"),
        ("lfm2", "in_proj.weight"),
        ("lfm2", "conv.weight"),
    ],
)
def test_weights_that_do_not_match_the_states_are_refused(family: str, weight: str) -> None:
    where = FAMILIES[family]
    with pytest.raises(LoadError, match=rf"{where.layers}\.0\.{where.mixer}\.{weight} is \(.*settings make it"):
        TransformersModel(scrambled(family, wider(weight)), block_size=4)


@pytest.mark.parametrize("family", HYBRIDS)
def test_a_mixer_of_another_class_is_refused(family: str) -> None:
    hf = tiny_hybrid(family)
    where = FAMILIES[family]
    hf.set_submodule(f"{where.layers}.0.{where.mixer}", nn.Identity())
    with pytest.raises(LoadError, match=r"\.0\.\w+ is a Identity, not a "):
        TransformersModel(hf, block_size=4)


@pytest.mark.parametrize("width", [1, 9])
def test_widths_that_the_kernels_lack_are_refused(width: int) -> None:
    sizes = Lfm2Config(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        layer_types=["conv"],
        conv_L_cache=width,
    )
    with pytest.raises(LoadError, match=f"width of {width}; the kernels serve widths of 2 to 8"):
        TransformersModel(Lfm2ForCausalLM(sizes), block_size=4)


def test_key_value_heads_that_do_not_divide_the_query_heads_are_refused() -> None:
    with pytest.raises(LoadError, match="num_heads 4 is not a multiple of num_kv_heads 3"):
        attention_heads(BambaConfig(num_attention_heads=4, num_key_value_heads=3))


def test_heads_that_cannot_be_grouped_are_refused() -> None:
    sizes = Qwen3NextConfig(
        vocab_size=8,
        hidden_size=8,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        linear_num_key_heads=2,
        linear_num_value_heads=3,
        linear_key_head_dim=4,
        linear_value_head_dim=4,
        num_experts=2,
        num_experts_per_tok=1,
    )
    with pytest.raises(LoadError, match="3 value heads, which is no multiple of 2"):
        TransformersModel(Qwen3NextForCausalLM(sizes), block_size=4)


def test_folders_whose_weights_do_not_fit_are_refused(tmp_path: Path) -> None:
    save(tiny_hybrid("jamba"), tmp_path)
    config = tmp_path / "config.json"
    settings = json.loads(config.read_text())
    for changes, told in (
        ({"num_hidden_layers": 2}, r"are not the model's \['model\.layers\.2"),
        ({"num_hidden_layers": 5}, r"tensors are missing \['model\.layers\.3"),
        ({"mamba_d_state": 7}, "cannot be loaded"),
        ({"hidden_act": "gelu"}, "'gelu'"),
    ):
        config.write_text(json.dumps({**settings, **changes}))
        with pytest.raises(LoadError, match=told) as refused:
            load(tmp_path)
        assert str(tmp_path) in str(refused.value)
    config.write_text(json.dumps(settings))
    load(tmp_path)


def test_a_step_limit_that_is_not_set_is_no_limit() -> None:
    sizes = BambaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        mamba_n_heads=4,
        mamba_d_state=4,
        mamba_chunk_size=8,
        time_step_limit=None,
    )
    hf = hybrid_of(BambaForCausalLM(sizes))
    (completion,) = tiny_engine(hf, EngineOptions()).generate([[1, 2, 3]], SamplingParams(max_tokens=2))
    assert len(completion.token_ids) == 2, completion.error
