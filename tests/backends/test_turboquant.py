"""TurboQuant's own: the bytes of its modes, head sizes that it lacks, and its error."""

from __future__ import annotations

import pytest
import torch
from attention_batches import make_batch
from torch import Tensor

from genericbuilders.backends.quantised_base import quantised_spec
from genericbuilders.backends.turboquant import TURBOQUANT
from genericbuilders.cache import allocate_kv_caches
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.kernels.quant.formats import slot_format
from genericbuilders.kernels.quant.slots import SlotCodec
from genericbuilders.specs import FullAttentionSpec, KVQuantMode

CPU = torch.device("cpu")
MODES = [mode for mode in KVQuantMode if mode.name.startswith("TURBOQUANT")]


def plain_spec(head_size: int) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=16, num_kv_heads=3, head_size=head_size, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("mode", "parts"),
    [
        (KVQuantMode.TURBOQUANT_K8V4, 2.56),
        (KVQuantMode.TURBOQUANT_4BIT_NC, 3.65),
        (KVQuantMode.TURBOQUANT_K3V4_NC, 4.12),
        (KVQuantMode.TURBOQUANT_3BIT_NC, 4.74),
        (KVQuantMode.TURBOQUANT_2BIT_NC, 6.74),
    ],
)
def test_a_cache_of_smollm2_is_so_many_times_smaller_than_in_bfloat16(mode: KVQuantMode, parts: float) -> None:
    plain = plain_spec(64)
    assert plain.page_size_bytes / quantised_spec(plain, mode).page_size_bytes == pytest.approx(parts, abs=0.01)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("head_size", [1, 8, 15])
def test_head_sizes_that_it_lacks_are_refused_by_name_and_number(mode: KVQuantMode, head_size: int) -> None:
    with pytest.raises(
        ValueError, match=rf"mode {mode.name} has no head size {head_size}: .*INT8_PER_TOKEN_HEAD takes"
    ):
        quantised_spec(plain_spec(head_size), mode)
    # A spec from elsewhere gets no further.
    heads = AttentionLayerConfig(num_heads=3, num_kv_heads=3, head_size=head_size, scale=1.0)
    spec = FullAttentionSpec(
        block_size=16,
        num_kv_heads=3,
        head_size=head_size,
        dtype=torch.uint8,
        kv_quant_mode=mode,
        state_content_bytes=2 * head_size,
    )
    config = EngineConfig(max_model_len=64, layers={"l0": heads})
    with pytest.raises(ValueError, match=rf"mode {mode.name} has no head size {head_size}"):
        TURBOQUANT.bind(spec, [TURBOQUANT.layer("l0", heads)], config, CPU)


@pytest.mark.parametrize("head_size", [16, 17, 63, 80, 96, 128, 250, 256, 576])
def test_other_head_sizes_run(head_size: int) -> None:
    heads = AttentionLayerConfig(num_heads=6, num_kv_heads=3, head_size=head_size, scale=head_size**-0.5)
    spec = quantised_spec(plain_spec(head_size), KVQuantMode.TURBOQUANT_K3V4_NC)
    layer = TURBOQUANT.layer("l0", heads)
    group = TURBOQUANT.bind(spec, [layer], EngineConfig(max_model_len=64, layers={"l0": heads}), CPU)
    generator = torch.Generator().manual_seed(head_size)
    query = torch.randn(1, 6, head_size, generator=generator)
    key, value = torch.randn(2, 1, 3, head_size, generator=generator).unbind()
    out = layer.impl.forward(
        query,
        key,
        value,
        kv_cache=allocate_kv_caches([group], 2, CPU)[layer],
        attn_metadata=group.builder.build(0, make_batch([1], [0], 16)),
    )
    # One token attends to itself only: what comes out is its value, of the same length and 4 bits a coordinate.
    expected = value.repeat_interleave(2, 1)
    error = (out - expected).square().sum(-1) / expected.square().sum(-1)
    assert float(error.max()) < 0.03
    torch.testing.assert_close(out.square().sum(-1), expected.square().sum(-1), atol=0, rtol=1e-4)


def test_the_error_follows_the_length_alone() -> None:
    """Whether a vector's length stands in one coordinate or is spread over all of them."""
    spread = torch.randn(500, 128, generator=torch.Generator().manual_seed(0))
    peaked = spread.clone()
    peaked[:, 5] = 300.0
    codec = SlotCodec(slot_format(KVQuantMode.TURBOQUANT_4BIT_NC, 128), CPU)

    def relative_error(vectors: Tensor) -> float:
        _, values = codec.decode(codec.encode(vectors, vectors), torch.float64)
        return float((values - vectors).square().sum() / vectors.double().square().sum())

    assert relative_error(peaked) == pytest.approx(relative_error(spread), rel=0.15)
