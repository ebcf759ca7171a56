"""The local stubs say about transformers what is true of the installed one."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import transformers
from tiny_attention import ATTENTION_FAMILIES, tiny_attention
from tiny_encoder_decoders import ENCODER_DECODERS, tiny_encoder_decoder
from tiny_hybrids import HYBRIDS, tiny_hybrid
from tokenizers import Tokenizer
from tokenizers.models import BPE
from torch import nn
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPast,
    BaseModelOutputWithPooling,
    CausalLMOutputWithPast,
    Seq2SeqLMOutput,
    TokenClassifierOutput,
)

STUBS = Path(__file__).parents[3] / "typings"
PACKAGE = STUBS / "transformers"
FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")
HYBRID_NAMES = ("FalconMamba", "Jamba", "Mamba2", "Bamba", "Qwen3Next", "MiniMax", "Lfm2")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class StubClass:
    """A class of the stubs."""

    module: str
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return self.node.name

    def methods(self) -> Iterator[FunctionNode]:
        return (item for item in self.node.body if isinstance(item, FunctionNode))

    def attributes(self) -> Iterator[str]:
        for item in self.node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                yield item.target.id


def modules() -> dict[str, ast.Module]:
    """The stubs' modules by dotted name."""
    found: dict[str, ast.Module] = {}
    for path in sorted(PACKAGE.rglob("*.pyi")):
        parts = path.relative_to(STUBS).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return found


def stub_only(module: str) -> bool:
    return module.rpartition(".")[2].startswith("_")


MODULES = modules()
CLASSES = [
    StubClass(module, node) for module, tree in MODULES.items() for node in tree.body if isinstance(node, ast.ClassDef)
]
BY_NAME = {each.name: each for each in CLASSES}
PUBLIC = [each for each in CLASSES if not stub_only(each.module)]


def lineage(stub: StubClass) -> list[StubClass]:
    """``stub`` and the stubs' classes that it inherits from."""
    bases = [BY_NAME[base.id] for base in stub.node.bases if isinstance(base, ast.Name) and base.id in BY_NAME]
    return [stub, *(each for base in bases for each in lineage(base))]


def is_typed_dict(stub: StubClass) -> bool:
    return "TypedDict" in [base.id for base in stub.node.bases if isinstance(base, ast.Name)]


def runtime(stub: StubClass) -> type[object]:
    actual = getattr(importlib.import_module(stub.module), stub.name)
    assert isinstance(actual, type)
    return actual


@cache
def small_model(family: str) -> nn.Module:
    config = getattr(transformers, f"{family}Config")(
        hidden_size=8,
        intermediate_size=8,
        num_attention_heads=2,
        num_hidden_layers=1,
        num_key_value_heads=1,
        vocab_size=8,
    )
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    assert isinstance(model, nn.Module)
    return model


@cache
def examples() -> dict[str, object]:
    """An object of each class whose objects have attributes, by the class's name."""
    found: dict[str, object] = {}
    for model in [
        *map(small_model, FAMILIES),
        *map(tiny_hybrid, HYBRIDS),
        *map(tiny_attention, ATTENTION_FAMILIES),
        *map(tiny_encoder_decoder, ENCODER_DECODERS),
    ]:
        parts: list[object] = [*model.modules(), getattr(model, "config"), getattr(model, "generation_config")]  # noqa: B009
        found |= {type(part).__name__: part for part in parts}
    bert = transformers.BertConfig(
        hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1, vocab_size=8
    )
    berts = transformers.BertModel(bert), transformers.BertForTokenClassification(bert)
    found |= {type(each).__name__: each for each in (bert, *berts)}
    tokenizer = transformers.TokenizersBackend(tokenizer_object=Tokenizer(BPE()))
    outputs = (
        BaseModelOutput(),
        CausalLMOutputWithPast(),
        BaseModelOutputWithPast(),
        BaseModelOutputWithPooling(),
        Seq2SeqLMOutput(),
        TokenClassifierOutput(),
    )
    # What the stubs say of these two is what a causal language model has.
    found["PreTrainedModel"], found["PreTrainedConfig"] = found["LlamaForCausalLM"], found["LlamaConfig"]
    found["PreTrainedTokenizerBase"] = tokenizer
    return found | {type(each).__name__: each for each in (tokenizer, *outputs)}


@pytest.mark.parametrize("module", [name for name in MODULES if not stub_only(name)])
def test_every_module_and_name_exists(module: str) -> None:
    actual = importlib.import_module(module)
    for node in MODULES[module].body:
        names: list[str] = []
        if isinstance(node, ast.ClassDef | FunctionNode):
            names = [node.name]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.ImportFrom) and not stub_only(node.module or ""):
            names = [alias.asname for alias in node.names if alias.asname is not None]
        for name in names:
            assert hasattr(actual, name), f"{module}.{name} does not exist"


def accepts(function: object, parameter: str) -> bool:
    """Whether a function takes ``parameter`` by name."""
    assert callable(function)
    parameters = inspect.signature(function).parameters
    return parameter in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


@pytest.mark.parametrize("stub", PUBLIC, ids=lambda each: each.name)
def test_every_method_exists_and_takes_the_parameters(stub: StubClass) -> None:
    owner: object = type(examples()[stub.name]) if stub.name in examples() else runtime(stub)
    for each in lineage(stub):
        for method in each.methods():
            # A module is called through forward.
            name = "forward" if method.name == "__call__" and hasattr(owner, "forward") else method.name
            actual = inspect.getattr_static(owner, name, None)
            assert actual is not None, f"{stub.name}.{name} does not exist"
            if isinstance(actual, property):
                continue
            names = [arg.arg for arg in (*method.args.args[1:], *method.args.kwonlyargs)]
            missing = [arg for arg in names if not accepts(getattr(owner, name), arg)]
            assert not missing, f"{stub.name}.{name} does not take {missing}"


@pytest.mark.parametrize(
    "stub", [each for each in PUBLIC if not is_typed_dict(each) and any(each.attributes())], ids=lambda each: each.name
)
def test_every_attribute_exists(stub: StubClass) -> None:
    for each in lineage(stub):
        for name in each.attributes():
            assert hasattr(examples()[stub.name], name), f"{stub.name}.{name} does not exist"


def test_every_key_of_a_typed_dictionary_exists() -> None:
    for stub in filter(is_typed_dict, PUBLIC):
        assert set(stub.attributes()) <= set(inspect.get_annotations(runtime(stub)))


def test_all_classes_of_the_families_have_an_example() -> None:
    named = [each.name for each in PUBLIC if each.name.startswith((*FAMILIES, *HYBRID_NAMES))]
    assert set(named) <= examples().keys()
    # Configuration, mixer and model of each hybrid, the norms of two mixers, and two classes of Llama 4.
    assert len(named) == 8 * len(FAMILIES) + 3 * len(HYBRID_NAMES) + 2 + 2
