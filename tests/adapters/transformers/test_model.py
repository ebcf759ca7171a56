"""Hugging Face models through the engine: what is loaded, what is refused, and that fusing changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny_models import FAMILIES, SIZES, IdTokenizer, greedy_tokens, tiny_model
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, build_engine, load_model
from genericbuilders.model import LoadedModel, LoadError, LoadOptions
from genericbuilders.plugins import discover
from genericbuilders.specs import KVCacheSpec, SlidingWindowSpec
from genericbuilders_transformers.loader import TransformersLoader
from genericbuilders_transformers.model import TransformersModel, check_supported, check_weights

CPU = LoadOptions(torch.device("cpu"))


@pytest.mark.parametrize("family", FAMILIES)
def test_all_layers_of_the_known_families_are_fused(family: str) -> None:
    model = TransformersModel(tiny_model(family), block_size=4)
    assert model.num_fused_layers == len(model.layers) == 2
    assert TransformersModel(tiny_model(family), block_size=4, fuse=False).num_fused_layers == 0


def test_another_activation_is_left_to_transformers() -> None:
    hf = LlamaForCausalLM(LlamaConfig(**SIZES, hidden_act="gelu")).eval()
    expected = greedy_tokens(hf, [1, 2, 3], 5)
    model = TransformersModel(hf, block_size=4)
    assert model.num_fused_layers == 0
    engine = build_engine(LoadedModel(model, IdTokenizer()), EngineOptions())
    assert list(engine.generate([[1, 2, 3]], SamplingParams(max_tokens=5))[0].token_ids) == expected


def test_biases_are_kept_by_fusing() -> None:
    config = LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)
    hf = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in hf.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.3)
    expected = greedy_tokens(hf, [1, 2, 3], 6)
    engine = build_engine(LoadedModel(TransformersModel(hf, block_size=4), IdTokenizer()), EngineOptions())
    assert list(engine.generate([[1, 2, 3]], SamplingParams(max_tokens=6))[0].token_ids) == expected


def test_windows_are_read_layer_by_layer() -> None:
    mistral = TransformersModel(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=32)), block_size=4)
    assert [windows(placed.kv_cache_spec) for placed in mistral.layers] == [32, 32]
    config = Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=32, max_window_layers=1)
    check_supported(config)
    qwen = TransformersModel(Qwen2ForCausalLM(config), block_size=4)
    assert [windows(placed.kv_cache_spec) for placed in qwen.layers] == [None, 32]


def windows(spec: KVCacheSpec) -> int | None:
    return spec.sliding_window if isinstance(spec, SlidingWindowSpec) else None


def test_rotations_that_depend_on_the_batch_are_refused() -> None:
    config = LlamaConfig(**SIZES, rope_parameters={"rope_theta": 10000.0, "rope_type": "dynamic", "factor": 2.0})
    with pytest.raises(LoadError, match="'dynamic'"):
        check_supported(config)


def test_the_plug_in_is_found_through_its_entry_point() -> None:
    found = discover()
    assert not found.failures
    assert [loader.name for loader in found.model_loaders] == ["transformers"]
    assert "LlamaForCausalLM" in found.model_loaders[0].architectures()


def test_folders_that_hold_no_model_are_named(tmp_path: Path) -> None:
    loaders = [TransformersLoader()]
    with pytest.raises(LoadError, match="no model folder at"):
        load_model(tmp_path / "absent", loaders, CPU)
    with pytest.raises(LoadError, match=r"has no config\.json"):
        load_model(tmp_path, loaders, CPU)
    config = tmp_path / "config.json"
    config.write_text("{")
    with pytest.raises(LoadError, match=r"config\.json cannot be read"):
        load_model(tmp_path, loaders, CPU)
    config.write_text(json.dumps({"architectures": ["GPT2LMHeadModel"]}))
    with pytest.raises(LoadError, match=r"GPT2LMHeadModel, which no adapter serves; served are: BambaFor.*, LlamaFor"):
        load_model(tmp_path, loaders, CPU)
    config.write_text("[]")
    with pytest.raises(LoadError, match="names none"):
        load_model(tmp_path, loaders, CPU)
    config.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))
    with pytest.raises(LoadError, match="cannot be loaded"):
        load_model(tmp_path, loaders, CPU)


def test_weights_that_do_not_fit_the_configuration_are_refused(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    for layers, told in ((3, "9 tensors are missing"), (1, "9 are not the model's")):
        (tmp_path / "config.json").write_text(json.dumps({**settings, "num_hidden_layers": layers}))
        with pytest.raises(LoadError, match=told):
            load_weights(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    load_weights(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    with pytest.raises(LoadError, match="cannot be loaded"):
        load_model(tmp_path, [TransformersLoader()], CPU)


def load_weights(path: Path) -> None:
    _, info = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, local_files_only=True, output_loading_info=True
    )
    check_weights(info)
